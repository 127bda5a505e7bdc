"""Every key under our prefix, in one place: labels, annotations, resources.

What a user may write is listed in ``POD_KEYS``; what we write carries the ``status.`` prefix and
is never trusted back.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "gpu.sharing"
STATUS_PREFIX: Final = "status.gpu.sharing"

PROFILE_LABEL: Final = "gpu.sharing/profile"
"""On a namespace: the SharingProfile that governs it."""
MODE_LABEL: Final = "gpu.sharing/mode"
"""On a namespace: the built-in profile of that mode. As a pod's annotation: the mode asked for."""
MANAGED_LABEL: Final = "gpu.sharing/managed"
"""On a node, "true": the agent serves its GPUs."""

FRACTION: Final = "fraction"
MEMORY: Final = "memory"
MODE: Final = "mode"
MIG_PROFILE: Final = "mig-profile"
POD_KEYS: Final = (FRACTION, MEMORY, MODE, MIG_PROFILE)
"""What a pod may ask by annotation, after ``gpu.sharing/`` or ``<container>.gpu.sharing/``."""

GRANTS_ANNOTATION: Final = "status.gpu.sharing/grants"

GPU: Final = "nvidia.com/gpu"
MILLI_GPU: Final = "gpu.sharing/milli-gpu"
"""Accounting resource: 1000 for each healthy GPU of a node."""

MODES_LABEL: Final = "gpu.sharing/modes"
"""On a node: the modes it offers, sorted, joined by ``_`` (a label value takes no comma)."""
BOARD_LABEL: Final = "gpu.sharing/board"
DRIVER_LABEL: Final = "gpu.sharing/driver-version"
