"""A cluster in one process, for laptops, demos and tests.

An API server, a scheduler and kubelets that speak the real protocols to our programs. It knows
nothing of shares: to it, they are extended resources like any other. It may be smaller than the
real thing, never easier: where the two differ, this package is wrong.
"""
