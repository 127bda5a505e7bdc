"""The controller: GPULayouts become GPUNode.spec, faults become evictions, states become status.

One instance works at a time, chosen by a Lease. The decisions are pure (``layouts``, ``profiles``,
``faults``); ``controller`` follows the cluster and writes what differs. It may be restarted at any
instant: nothing is remembered that the API server does not hold.
"""
