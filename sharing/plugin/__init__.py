"""Serving shares to the kubelet: registration, device lists, allocation answers, CDI.

What belongs here: gRPC towards one kubelet and the files that a container runtime reads.
What does not: decisions about layouts (``sharing``), the driver (``sharing.nvml``) and
the loop that joins them (``sharing.node``).
"""
