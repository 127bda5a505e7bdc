"""The length of time slices: set while a layout asks for one, given back as found.

slices (what shall be) → record (what was found, on disk) → policy (NVIDIA's command, or its
stand-in on machines without GPUs).
"""
