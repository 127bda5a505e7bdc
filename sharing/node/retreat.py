"""Going back to the layout before, when the driver refuses the wanted one again and again (pure).

A layout that cannot be made would leave its GPU without any shares. So after some failures in a
row the layout that was served before is wanted again, for a while that doubles each time; then the
wanted one gets its next chance. A layout that has none before it is only tried more slowly.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharing.layout import GpuLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class RetreatPolicy:
    """When to go back, and for how long; seconds."""

    failures: int = 5
    """Refusals in a row; their pauses add up to a quarter of a minute."""
    first_s: float = 300.0
    longest_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retreat:
    """One GPU went back."""

    layout: GpuLayout
    """What is wanted and could not be made."""
    reason: str
    """What the driver said last."""
    until: float
    """When it is tried again, seconds since the epoch."""
    times: int = 1
    """How often it was given up."""


def lasts(standing: Retreat, *, now: float, policy: RetreatPolicy) -> bool:
    """Whether it is not over; one that began before the clock was set back is.

    Args:
        standing: A GPU's retreat.
        now: Seconds since the epoch.
        policy: For how long at most.
    """
    return now < standing.until <= now + policy.longest_s


def retreat(
    before: Retreat | None, layout: GpuLayout, reason: str, *, now: float, policy: RetreatPolicy
) -> Retreat:
    """A layout is given up for a while.

    Args:
        before: The GPU's last retreat, if any.
        layout: What could not be made.
        reason: What the driver said.
        now: Seconds since the epoch.
        policy: For how long.
    """
    times = before.times + 1 if before is not None and before.layout == layout else 1
    pause_s = min(policy.first_s * 2.0 ** min(times - 1, 30), policy.longest_s)
    return Retreat(layout=layout, reason=reason, until=now + pause_s, times=times)


def previous(
    wanted: GpuLayout, applied: GpuLayout | None, standing: Retreat | None
) -> GpuLayout | None:
    """The layout to go back to; None where the wanted one is to be made.

    Args:
        wanted: What the GPU shall be.
        applied: What it served last.
        standing: Its retreat, as long as it lasts.
    """
    if standing is None or standing.layout != wanted or applied == wanted:
        return None
    return applied
