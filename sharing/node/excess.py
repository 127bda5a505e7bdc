"""Shares whose holder uses more memory than the share has (pure).

Under time-slicing nothing keeps a process within its share's memory, under MPS the limit is each
process's and not the pod's. So a share's memory is a budget: more than that for a while is told,
and evicted where the namespace's profile says so (``onMemoryExcess``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sharing.mode import Mode
from sharing.node.usage import ShareUse
from sharing.share import Share

BUDGETED: Final = frozenset({Mode.TIME_SLICING, Mode.MPS})
"""Modes in which the hardware does not keep a pod within its share."""
_WHOLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessPolicy:
    """When use counts as excess."""

    allowance_percent: int = 10
    """Above the budget: contexts and libraries take memory that no program asks for."""
    grace_s: float = 30.0
    """For how long it has to last; a peak while a model loads is no excess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """One share that is over its budget now."""

    device_id: str
    since: float
    """When it was first seen, seconds since the epoch."""
    used_mib: int
    budget_mib: int
    lasting: bool = False
    """Whether it lasted longer than the grace, and counts."""
    pids: tuple[int, ...] = ()
    """Whose it is: with none of these left it is somebody else's, and begins anew."""

    def __str__(self) -> str:
        return (
            f"uses {self.used_mib} MiB of GPU memory; its share {self.device_id} has "
            f"{self.budget_mib} MiB, which its neighbours count on: use less, or ask for a larger "
            "share"
        )


def excesses(
    before: Mapping[str, Excess],
    shares: Mapping[str, Share],
    uses: Mapping[str, ShareUse],
    *,
    now: float,
    policy: ExcessPolicy,
) -> dict[str, Excess]:
    """Who is over budget after a look, by device id.

    A share of which nothing is known now is as it was before.

    Args:
        before: Who was.
        shares: All shares of the node by device id.
        uses: What holders use, by device id; those that are not named hold nothing.
        now: Seconds since the epoch.
        policy: When use counts as excess.
    """
    found: dict[str, Excess] = {}
    for device_id, use in sorted(uses.items()):
        share, known = shares.get(device_id), before.get(device_id)
        if share is None or share.share_class.mode not in BUDGETED:
            continue
        if use.memory_mib is None:
            if known is not None:
                found[device_id] = known
            continue
        if use.memory_mib * _WHOLE <= share.memory_mib * (_WHOLE + policy.allowance_percent):
            continue
        if known is not None and not set(known.pids) & set(use.pids):
            known = None
        since = now if known is None else min(known.since, now)
        found[device_id] = Excess(
            device_id=device_id,
            since=since,
            used_mib=use.memory_mib,
            budget_mib=share.memory_mib,
            lasting=now - since >= policy.grace_s,
            pids=use.pids,
        )
    return found
