"""Benchmarks: the figures that the README states, each by ``python -m benchmarks.NAME``."""
