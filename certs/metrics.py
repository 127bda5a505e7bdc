"""Every metric of the certificates: names, units, label sets. Labels come from closed sets.

Dates are exported only once they are known, so that an alert on ``not_after - time()``
does not fire for a program that has just started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from certs.cluster import Outcome
from certs.errors import Fault
from certs.healing import voucher_of
from certs.leaf import fingerprint
from certs.schedule import renew_at
from certs.sight import live_bundles
from certs.step import Act

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from certs.leaf import Leaf
    from certs.secret import Stored
    from certs.sight import Configuration

_PREFIX: Final = "gpu_sharing_certs"


class CertsMetrics:
    """What the keeper of certificates counts and knows.

    Args:
        registry: Where the metrics appear.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._dates: dict[str, float] = {}
        self._authorities: dict[str, float] = {}
        attempts = Counter(
            f"{_PREFIX}_attempts",
            "Steps tried, by result.",
            ["result"],
            registry=registry,
        )
        steps = Counter(f"{_PREFIX}_steps", "Steps done, by kind.", ["act"], registry=registry)
        failures = Counter(
            f"{_PREFIX}_swap_failures",
            "Certificates that were not taken into service, by what is wrong with them.",
            ["fault"],
            registry=registry,
        )
        # Each label value is there from the start, so that rates begin at zero.
        self._attempts = {outcome: attempts.labels(outcome.value) for outcome in Outcome}
        self._steps = {act: steps.labels(act.value) for act in Act}
        self._swap_failures = {fault: failures.labels(fault.value) for fault in Fault}
        registry.register(self)

    def count(self, act: Act, outcome: Outcome) -> None:
        """Count a step that was tried."""
        self._attempts[outcome].inc()
        if outcome is Outcome.DONE:
            self._steps[act].inc()

    def count_swap_failure(self, fault: Fault) -> None:
        """Count a certificate that was not taken into service."""
        self._swap_failures[fault].inc()

    def note_served(self, leaf: Leaf) -> None:
        """Note what is served from now on."""
        self._dates["leaf_not_after"] = leaf.not_after.timestamp()
        self._dates["leaf_renewal"] = renew_at(leaf).timestamp()

    def note(self, stored: Stored, configurations: tuple[Configuration, ...]) -> None:
        """Note what a look found."""
        self._authorities = {}
        for role, leaf in (("current", stored.current), ("next", stored.next)):
            authority = voucher_of(leaf, stored.trusted)
            if authority is not None:
                self._authorities[role] = authority.not_valid_after_utc.timestamp()
        current = voucher_of(stored.current, stored.trusted)
        wanted = "" if current is None else fingerprint(current)
        live = live_bundles(configurations)
        # A bundle without the current authority is as good as expired.
        ends = [
            max((one.not_valid_after_utc.timestamp() for one in held), default=0.0)
            if wanted in held.fingerprints
            else 0.0
            for held in live
        ]
        self._dates.pop("bundle_not_after", None)
        if ends:
            self._dates["bundle_not_after"] = min(ends)

    def collect(self) -> Iterator[Metric]:
        """The dates that are known, for the registry."""
        meanings = {
            "leaf_not_after": "When the served certificate ends.",
            "leaf_renewal": "When the served certificate is to be renewed.",
            "bundle_not_after": "When the last authority of the worst live caBundle ends; "
            "0 if it lacks the current one.",
        }
        for name, meaning in meanings.items():
            family = GaugeMetricFamily(f"{_PREFIX}_{name}_timestamp_seconds", meaning)
            if name in self._dates:
                family.add_metric([], self._dates[name])
            yield family
        authorities = GaugeMetricFamily(
            f"{_PREFIX}_authority_not_after_timestamp_seconds",
            "When the authorities of the current and the next certificate end.",
            labels=["role"],
        )
        for role, end in sorted(self._authorities.items()):
            authorities.add_metric([role], end)
        yield authorities
