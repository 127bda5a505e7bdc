"""Limits of MPS clients, computed in integers with one division each.

A daemon enforces one ceiling for all of its clients; a container's own limits may only tighten
it. So shares of several sizes live on one GPU: the ceiling is the largest share's.
Limits hold for each client process, not for a container with several.

Source: NVIDIA MPS documentation, "Memory Protection" and ``set_default_active_thread_percentage``;
NVIDIA/k8s-device-plugin#720 (limits are per process).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sharing.errors import shown
from sharing.mps.errors import MpsLimitError
from sharing.size import MOST_PARTS, OneOf

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsLimits:
    """What one client process may use.

    Raises:
        MpsLimitError: A limit rounds to nothing, or is more than a whole GPU's threads.
    """

    memory_mib: int
    thread_percentage: int

    def __post_init__(self) -> None:
        if self.memory_mib < 1:
            raise MpsLimitError(
                "MPS memory limit",
                f"{self.memory_mib} MiB is nothing",
                expected="at least 1 MiB",
                fix="cut the GPU into fewer shares",
            )
        if not 1 <= self.thread_percentage <= _WHOLE:
            raise MpsLimitError(
                "MPS thread percentage",
                f"{self.thread_percentage} is out of range",
                expected="1 to 100",
                fix="cut the GPU into fewer shares",
            )


def share_limits(size: OneOf, gpu_memory_mib: int) -> MpsLimits:
    """The limits of one ``1ofN`` share of a GPU or MIG device.

    Both are rounded down, so that all shares together never exceed what is cut.

    Raises:
        MpsLimitError: The share's memory rounds to nothing.
    """
    if gpu_memory_mib < size.parts:
        raise MpsLimitError(
            f"MPS share {size}",
            f"its part of {gpu_memory_mib} MiB rounds to nothing",
            expected=f"at least {size.parts} MiB of memory, 1 MiB for each share",
            fix="cut it into fewer shares",
        )
    return MpsLimits(
        memory_mib=gpu_memory_mib // size.parts, thread_percentage=_WHOLE // size.parts
    )


def ceiling(limits: Iterable[MpsLimits]) -> MpsLimits:
    """What the daemon has to allow so that each of the limits can be reached.

    Raises:
        MpsLimitError: There are no limits, or more than an MPS server has clients.
    """
    each = tuple(limits)
    if not 1 <= len(each) <= MOST_PARTS:
        raise MpsLimitError(
            "MPS daemon",
            f"{shown(len(each))} shares on one GPU",
            expected=f"1 to {MOST_PARTS}, the clients that one MPS server takes",
        )
    return MpsLimits(
        memory_mib=max(one.memory_mib for one in each),
        thread_percentage=max(one.thread_percentage for one in each),
    )
