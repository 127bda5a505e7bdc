"""How long a process may keep a time-sliced GPU before the next one gets its turn."""

from __future__ import annotations

from enum import StrEnum


class TimeSlice(StrEnum):
    """The driver's four lengths; it does not say them in seconds.

    Short serves requests evenly, long wastes less on changing over. NVIDIA's DRA driver uses the
    same words.
    """

    DEFAULT = "default"
    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"

    @property
    def number(self) -> int:
        """What ``nvidia-smi compute-policy --set-timeslice`` takes.

        Source: ``nvidia-smi compute-policy --help``; NVIDIA/k8s-device-plugin#354.
        """
        return tuple(TimeSlice).index(self)
