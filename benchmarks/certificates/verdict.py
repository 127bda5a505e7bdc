"""Whether a campaign showed what it is for, and what lay around reviews that failed (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.certificates.campaign import Size

_LONGEST_DRAIN_S: Final = 105.0
"""The drain's delay and limit by the chart's values; the pod's grace period is 10 s more."""
_MOST_AUTHORITIES: Final = 3
_TOLD: Final = 10
_NEIGHBOURS: Final = 3


def faults(found: Mapping[str, Any], size: Size) -> list[str]:
    """What a whole campaign did not show, one sentence each; nothing if it showed all."""
    expected = {
        "reviews failed": found["failed_reviews"] == 0,
        "callers saw reviews fail": not found["failed_as_callers_saw"],
        "a replica served what was not trusted": found["untrusted_handshakes"] == 0,
        f"fewer than {size.least_rate:g} reviews a second": _slowest(found) >= size.least_rate,
        f"fewer than {size.all_rotations} rotations": found["rotations"] >= size.all_rotations,
        "a bundle held more than three authorities": (
            found["max_authorities"] <= _MOST_AUTHORITIES
        ),
        "a replica did not end in order": found["unclean_ends"] == 0,
        "a drain took longer than the chart allows": found["drain_longest_s"] <= _LONGEST_DRAIN_S,
        "not every kill was made": found["kills"] == len(size.kill_points) * len(size.kill_counts),
        "no certificate was looked at": found["handshakes_observed"] > 0,
    }
    return [fault for fault, is_well in expected.items() if not is_well]


def _slowest(found: Mapping[str, Any]) -> float:
    """The rate of the slowest phase."""
    return min((phase["reviews_per_s"] for phase in found["phases"]), default=0.0)


def explained(
    failed: Sequence[tuple[float, str]], changes: Sequence[tuple[float, str]]
) -> list[dict[str, Any]]:
    """The first failures, and how long before each something else was trusted or served.

    Args:
        failed: When, and how.
        changes: When, and what, in order.
    """
    return [
        {
            "why": why,
            "after": [
                f"{at_s - changed_s:.2f} s after {what}"
                for changed_s, what in changes
                if changed_s <= at_s
            ][-_NEIGHBOURS:],
        }
        for at_s, why in failed[:_TOLD]
    ]
