"""MPS control daemons: one for each GPU or MIG device that is shared by MPS.

What belongs here: running the daemons, speaking their control protocol, their limits, and a
stand-in program for machines without GPUs. What does not: which GPUs are shared by MPS
(``sharing``), and how a container is bound to a daemon (``sharing.plugin``).
"""
