"""From phases to the figures of the report (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.certificates.campaign import Phase
    from benchmarks.certificates.scene import Ended

EMPTIED: Final = "bundles emptied"
"""The one phase in which the API server itself was told by others to trust nobody."""


def figures(phases: Sequence[Phase], ends: Sequence[Ended], **about: object) -> dict[str, Any]:
    """The keys of the report; ``failed_reviews`` has to be 0.

    Counted by the API server are ``reviews``, ``failed_reviews`` and ``failed_while_emptied``; the
    callers' own view is beside it. Rates are over the time in which there was an API server.
    """
    steady = [phase for phase in phases if phase.name != EMPTIED]
    emptied = [phase for phase in phases if phase.name == EMPTIED]
    reviews = sum(phase.reviews for phase in phases)
    times = sorted(time for phase in steady for time in phase.seen.times_s)
    return {
        **about,
        "reviews": reviews,
        "reviews_per_s": round(reviews / max(sum(phase.up_s for phase in phases), 1.0), 1),
        "failed_reviews": sum(phase.failed for phase in steady),
        "failed_while_emptied": sum(phase.failed for phase in emptied),
        "emptied_longest_ms": max((phase.extra["longest_ms"] for phase in emptied), default=0.0),
        "failed_as_callers_saw": _sum(phase.seen.failed for phase in steady),
        "refused_by_api_server": _sum(phase.seen.refused for phase in steady),
        "lost_with_api_server": _sum(phase.seen.lost for phase in steady),
        "restarts": len(ends),
        "unclean_ends": sum(end.status != 0 for end in ends),
        "drain_longest_s": round(max((end.took_s for end in ends), default=0.0), 1),
        "create_p50_ms": _quantile_ms(times, 0.5),
        "create_p99_ms": _quantile_ms(times, 0.99),
        "phases": [_of(phase) for phase in phases],
    }


def _of(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "replicas": phase.replicas,
        "seconds": round(phase.took_s, 1),
        "reviews": phase.reviews,
        "reviews_per_s": round(phase.reviews / phase.up_s, 1),
        "failed": phase.failed,
        **phase.extra,
    }


def _sum(counters: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counter in counters:
        total += counter
    return dict(sorted(total.items()))


def _quantile_ms(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return 0.0
    return round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 1)
