"""Every metric of the webhook: names, units, label sets. Labels come from closed sets only."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from sharing.mode import Mode
from webhook.outcome import Drop, Outcome
from webhook.snapshot import Snapshot

_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PREFIX: Final = "gpu_sharing_webhook"
_OTHER_CODE: Final = 400
_CODES: Final = (_OTHER_CODE, 403, 422)
"""Of denials: a malformed review, what policy forbids, what the author got wrong."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        # A second series for each counter, which says nothing that a query needs.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        reviews = self._counter("reviews", "Calls by what became of them.", "outcome")
        grants = self._counter("grants", "Shares granted to containers, by mode.", "mode")
        # Each label value is there from the start, so that rates begin at zero.
        self._reviews = {outcome: reviews.labels(outcome.value) for outcome in Outcome}
        self._grants = {mode: grants.labels(mode.value) for mode in Mode}
        self._duration = Histogram(
            f"{_PREFIX}_review_duration_seconds",
            "From the end of a call's head to its answer.",
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        denials = self._counter(
            "denials", "Objects refused, by the code that their authors are told.", "code"
        )
        self._denials = {code: denials.labels(str(code)) for code in _CODES}
        drops = self._counter(
            "dropped_connections", "Connections that ended without an answer, by why.", "reason"
        )
        self._drops = {drop: drops.labels(drop.value) for drop in Drop}
        ProcessCollector(registry=self.registry)
        Gauge(
            "gpu_sharing_build_info",
            "1, labelled with what runs.",
            ["version"],
            registry=self.registry,
        ).labels(_version()).set(1)
        self._draining = self._gauge("draining", "1 from the signal to end on, else 0.")
        self._handshakes = self._gauge("handshakes", "TLS handshakes under way.")
        self._connections = self._gauge("connections", "Open connections.")
        self._lag = self._gauge("loop_lag_seconds", "How late the event loop runs.")
        self._buffered = self._gauge("buffered_bytes", "Bytes of bodies on their way.")
        self._not_after = self._gauge(
            "certificate_not_after_timestamp_seconds", "When the served certificate ends."
        )
        self._age = self._labelled(
            "cache_age_seconds", "Seconds since a watch was last known to be up to date.", "kind"
        )
        self._namespaces = self._gauge("namespaces", "Namespaces that are known.")
        self._profiles = self._labelled(
            "profiles", "SharingProfiles by whether they can be used.", "state"
        )
        self._nodes = self._gauge("nodes", "Nodes of the inventory.")
        self._offered = self._by_mode(
            "offered_shares", "Shares that ready nodes offer, free or held, as decisions see them."
        )

    def _counter(self, name: str, meaning: str, label: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", meaning, [label], registry=self.registry)

    def _by_mode(self, name: str, meaning: str) -> dict[Mode, Gauge]:
        gauge = self._labelled(name, meaning, "mode")
        return {mode: gauge.labels(mode.value) for mode in Mode}

    def _labelled(self, name: str, meaning: str, label: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", meaning, [label], registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", meaning, registry=self.registry)

    def count(self, outcome: Outcome, duration_s: float) -> None:
        """Count a call that was answered."""
        self._reviews[outcome].inc()
        self._duration.observe(duration_s)

    def count_denial(self, code: int) -> None:
        """Count an object that was refused, by HTTP's code for why."""
        self._denials[code if code in self._denials else _OTHER_CODE].inc()

    def count_drop(self, drop: Drop) -> None:
        """Count a connection that ended without an answer."""
        self._drops[drop].inc()

    def count_grant(self, mode: Mode) -> None:
        """Count a share that was granted."""
        self._grants[mode].inc()

    def watch_server(
        self,
        *,
        connections: Callable[[], int],
        lag_s: Callable[[], float],
        buffered: Callable[[], int],
        handshakes: Callable[[], int],
        draining: Callable[[], bool],
    ) -> None:
        """Read the server's own state whenever metrics are asked for."""
        self._connections.set_function(connections)
        self._lag.set_function(lag_s)
        self._buffered.set_function(buffered)
        self._handshakes.set_function(handshakes)
        self._draining.set_function(lambda: float(draining()))

    def watch_certificate(self, not_after_s: Callable[[], float]) -> None:
        """Read the served certificate's end, in Unix seconds, whenever metrics are asked for."""
        self._not_after.set_function(not_after_s)

    def watch_cache(self, kind: str, age_s: Callable[[], float]) -> None:
        """Read a cache's age whenever metrics are asked for."""
        self._age.labels(kind).set_function(age_s)

    def watch_folder(self, is_current: Callable[[], bool]) -> None:
        """Read whether a folder's newest content is in force, whenever metrics are asked for."""
        gauge = self._gauge(
            "folder_current", "1 where the folder's newest policies are in force, 0 where not."
        )
        gauge.set_function(lambda: float(is_current()))

    def describe(self, snapshot: Snapshot) -> None:
        """Take the sizes of a new snapshot."""
        broken = len(snapshot.broken)
        self._namespaces.set(len(snapshot.policies.namespaces))
        self._profiles.labels("usable").set(len(snapshot.policies.profiles) - broken)
        self._profiles.labels("broken").set(broken)
        self._nodes.set(len(snapshot.inventory.nodes) if snapshot.inventory else 0)
        offers = snapshot.inventory.offers() if snapshot.inventory else {}
        for mode, gauge in self._offered.items():
            gauge.set(sum(o.count for c, o in offers.items() if c.mode is mode))

    def render(self) -> bytes:
        """The metrics as Prometheus' text."""
        return generate_latest(self.registry)


def _version() -> str:
    try:
        return metadata.version("gpu-sharing")
    except metadata.PackageNotFoundError:
        return "unknown"
