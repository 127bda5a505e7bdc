"""Every metric of the controller. Labels come from closed sets."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from sharing.controller.audit import Slip

_PREFIX: Final = "gpu_sharing_controller"


class EvictionResult(StrEnum):
    """What became of an attempt to evict a pod."""

    DONE = "done"
    BUDGET = "budget"
    """A disruption budget does not allow it now."""
    FAILED = "failed"


class ControllerMetrics:
    """What the controller counts and knows.

    Args:
        registry: Where the metrics appear.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leading = Gauge(
            f"{_PREFIX}_leading", "Whether this instance does the work.", registry=registry
        )
        self.turns = Counter(f"{_PREFIX}_turns", "Times that it decided.", registry=registry)
        self.silent_nodes = Gauge(
            f"{_PREFIX}_silent_nodes",
            "Nodes whose agent has not taken in its newest spec for too long.",
            registry=registry,
        )
        self.unready_layouts = Gauge(
            f"{_PREFIX}_unready_layouts", "GPULayouts that are not applied.", registry=registry
        )
        self.broken_profiles = Gauge(
            f"{_PREFIX}_broken_profiles",
            "SharingProfiles that cannot be understood.",
            registry=registry,
        )
        self.waiting_evictions = Gauge(
            f"{_PREFIX}_waiting_evictions",
            "Pods that are to leave a faulty GPU and have not left it yet.",
            registry=registry,
        )
        evictions = Counter(
            f"{_PREFIX}_evictions", "Evictions tried, by result.", ["result"], registry=registry
        )
        slips = Gauge(
            f"{_PREFIX}_ungranted_containers",
            "Containers that hold a GPU which no profile granted, by kind.",
            ["kind"],
            registry=registry,
        )
        # Each label value is there from the start, so that rates begin at zero.
        self._evictions = {result: evictions.labels(result.value) for result in EvictionResult}
        self._slips = {slip: slips.labels(slip.value) for slip in Slip}

    def count_eviction(self, result: EvictionResult) -> None:
        """Count an attempt."""
        self._evictions[result].inc()

    def note_slips(self, counts: dict[Slip, int]) -> None:
        """Note how many containers slipped past admission."""
        for slip, gauge in self._slips.items():
            gauge.set(counts.get(slip, 0))
