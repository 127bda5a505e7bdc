"""What an agent's metrics say of shares and of serving them; read when somebody asks.

Two kinds: by share, where labels name shares and pods (at most as many series as the node has
shares; may be left out), and by class, GPU or reason, all closed sets. A GPU's own figure is never
given out as a share's: what cannot be put down to one share has no series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sharing.mode import Mode
from sharing.mps.daemons import MpsDaemons
from sharing.mps.limits import share_limits
from sharing.node.clientlists import Known
from sharing.node.doubles import doubles
from sharing.node.excess import BUDGETED
from sharing.node.held import Holder
from sharing.node.status import GpuReport, NodeReport
from sharing.node.usage import ShareUse
from sharing.plugin.plugins import DevicePlugins
from sharing.plugin.tally import Refusal
from sharing.share import Share
from sharing.size import OneOf
from sharing.timeslicing.slices import TimeSlices

_PREFIX: Final = "gpu_sharing"
_MIB: Final = 1 << 20
_WHOLE: Final = 100.0
_NOBODY: Final = Holder(namespace="", pod="", container="")
_INFO: Final = (
    "share", "gpu", "resource", "mode", "size", "pool", "namespace", "pod", "container",
)  # fmt: skip


class ShareState(StrEnum):
    """What a share is to the kubelet."""

    FREE = "free"
    HELD = "held"
    UNHEALTHY = "unhealthy"
    """Free, and not handed out."""
    DRAINING = "draining"
    """Held, and not handed out again: its layout is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One share as metrics tell of it."""

    share: Share
    state: ShareState
    holders: tuple[Holder, ...]
    use: ShareUse | None
    over_budget: bool
    thread_percentage: int | None


def told(report: NodeReport) -> Iterator[Told]:
    """The shares of a node, in order of GPUs."""
    for each in report.gpus:
        for share in each.offer.shares:
            yield _told(report, each, share, draining=False)
        for share in each.offer.draining:
            yield _told(report, each, share, draining=True)


def _told(report: NodeReport, each: GpuReport, share: Share, *, draining: bool) -> Told:
    holders = {
        hold.holder
        for hold in each.holds
        if hold.device_id == share.device_id and hold.holder is not None
    }
    held = any(hold.device_id == share.device_id for hold in each.holds)
    if draining:
        state = ShareState.DRAINING
    elif held:
        state = ShareState.HELD
    else:
        state = ShareState.FREE if each.is_healthy(share) else ShareState.UNHEALTHY
    excess = report.excesses.get(share.device_id)
    size, threads = share.share_class.size, None
    if share.share_class.mode is Mode.MPS and isinstance(size, OneOf):
        # Of what it is cut from; that the share has memory is known.
        threads = share_limits(size, max(each.gpu.memory_mib, size.parts)).thread_percentage
    return Told(
        share=share,
        state=state,
        holders=tuple(sorted(holders)),
        use=report.accounts.uses.get(share.device_id),
        over_budget=excess is not None and excess.lasting,
        thread_percentage=threads,
    )


class ShareMetrics(Collector):
    """Shares and their serving on one node.

    Args:
        report: What is known now.
        plugins: What the kubelet was answered.
        daemons: The MPS daemons.
        slices: The time slices.
        by_share: Whether series name shares and pods.
    """

    def __init__(
        self,
        report: Callable[[], NodeReport],
        plugins: DevicePlugins,
        daemons: MpsDaemons,
        slices: TimeSlices,
        *,
        by_share: bool = True,
    ) -> None:
        self._report = report
        self._plugins = plugins
        self._daemons = daemons
        self._slices = slices
        self._by_share = by_share

    def collect(self) -> Iterator[Metric]:
        """All of it, as it is now."""
        report = self._report()
        shares = tuple(told(report))
        if self._by_share:
            yield from _by_share(shares)
        yield from _by_class(shares)
        yield from _by_gpu(report)
        yield from self._serving()
        yield from self._mechanisms()
        yield self._disputed(report)

    def _serving(self) -> Iterator[Metric]:
        tally = self._plugins.tally
        given = CounterMetricFamily(
            f"{_PREFIX}_allocations",
            "Containers that were given shares, by extended resource.",
            labels=["resource"],
        )
        for resource, count in sorted(tally.allocations.items()):
            given.add_metric([resource], count)
        refused = CounterMetricFamily(
            f"{_PREFIX}_refusals",
            "Containers that were not, by extended resource and reason.",
            labels=["resource", "reason"],
        )
        served = {one.resource for one in self._plugins.status()}
        # From 0 on: a series that begins with its first refusal shows no increase.
        refusals = {(resource, reason): 0 for resource in served for reason in Refusal}
        for (resource, reason), count in sorted((refusals | tally.refusals).items()):
            refused.add_metric([resource, str(reason)], count)
        registered = CounterMetricFamily(
            f"{_PREFIX}_registrations",
            "Registrations of a share class at the kubelet; one for each of its restarts.",
            labels=["resource"],
        )
        for one in self._plugins.status():
            registered.add_metric([one.resource], one.registrations)
        yield from (given, refused, registered)

    def _mechanisms(self) -> Iterator[Metric]:
        ready = _gauge(
            "mps_daemon_ready", "1 if the MPS daemon of a GPU or MIG device takes clients.", "gpu"
        )
        starts = CounterMetricFamily(
            f"{_PREFIX}_mps_daemon_starts",
            "Starts of the MPS daemon of a GPU or MIG device since the agent started.",
            labels=["gpu"],
        )
        for state in self._daemons.states():
            ready.add_metric([state.device_uuid], float(state.ready))
            starts.add_metric([state.device_uuid], state.starts)
        unset = _gauge("time_slice_unset", "1 if a GPU's time slice could not be set.", "gpu")
        for gpu in sorted(self._slices.failures):
            unset.add_metric([gpu], 1.0)
        yield from (ready, starts, unset)

    def _disputed(self, report: NodeReport) -> Metric:
        family = _gauge(
            "mps_disputed_clients",
            "Processes that only the driver, or only its daemon, knows as MPS clients of a GPU.",
            *("gpu", "known"),
        )
        counts = Counter((one.device, one.known) for one in report.accounts.disputed if one.lasting)
        for state in self._daemons.states():
            for known in Known:
                figure = counts[state.device_uuid, known]
                family.add_metric([state.device_uuid, str(known)], figure)
        return family


def _by_share(shares: tuple[Told, ...]) -> Iterator[Metric]:
    info = _gauge("share_info", "1 for each share: its GPU, its class and who holds it.", *_INFO)
    figures = {
        name: _gauge(f"share_{name}", meaning, "share")
        for name, meaning in (
            ("memory_limit_bytes", "GPU memory that a share has."),
            ("memory_used_bytes", "GPU memory that the holder's processes use."),
            ("busy_ratio", "Part of its GPU's or MIG instance's time that a share takes."),
            ("thread_limit_ratio", "Part of its GPU's or MIG instance's threads for one client."),
            ("processes", "Processes of the holder on the GPU."),
            ("mps_clients", "Those of them that are MPS clients."),
            ("over_budget", "1 if the holder uses more memory than the share has, for a while."),
        )
    }
    for one in shares:
        labels = _labels(one.share)
        # One series a share, whatever the kubelet lists: with two a join by share would fail.
        holder = next(iter(one.holders), _NOBODY)
        info.add_metric([*labels, holder.namespace, holder.pod, holder.container], 1.0)
        for name, figure in _figures(one):
            figures[name].add_metric([one.share.device_id], figure)
    yield info
    yield from figures.values()


def _labels(share: Share) -> list[str]:
    kind = share.share_class
    return [
        share.device_id,
        share.gpu_uuid,
        kind.resource_name,
        kind.mode.value,
        "" if kind.size is None else str(kind.size),
        kind.pool or "",
    ]


def _figures(one: Told) -> Iterator[tuple[str, float]]:
    mode, use = one.share.share_class.mode, one.use
    yield "memory_limit_bytes", one.share.memory_mib * _MIB
    if one.thread_percentage is not None:
        yield "thread_limit_ratio", one.thread_percentage / _WHOLE
    if use is None:
        return
    if mode in BUDGETED:
        yield "over_budget", float(one.over_budget)
    if use.memory_mib is None:
        return  # nobody can tell whose these processes are
    yield "memory_used_bytes", use.memory_mib * _MIB
    yield "processes", len(use.pids)
    if mode is Mode.MPS:
        yield "mps_clients", use.mps_clients
    if use.sm_percent is not None:
        yield "busy_ratio", min(use.sm_percent, _WHOLE) / _WHOLE


def _by_class(shares: tuple[Told, ...]) -> Iterator[Metric]:
    family = _gauge("shares", "Shares by extended resource and state.", "resource", "state")
    counts = Counter((one.share.share_class.resource_name, one.state) for one in shares)
    for resource in sorted({resource for resource, _ in counts}):
        for state in ShareState:
            family.add_metric([resource, str(state)], counts[resource, state])
    yield family


def _by_gpu(report: NodeReport) -> Iterator[Metric]:
    over = _gauge("over_budget_shares", "Shares whose holder uses more memory than they have.")
    over.add_metric([], sum(one.lasting for one in report.excesses.values()))
    lingering = _gauge(
        "lingering_processes", "Processes of ended pods that still use a GPU's shares.", "gpu"
    )
    strangers = _gauge(
        "stranger_processes", "Processes on a GPU that belong to no holder of a share.", "gpu"
    )
    twice = _gauge("shares_held_twice", "Shares that the kubelet handed to two containers.")
    twice.add_metric([], sum(len(doubles(each.holds)) for each in report.gpus))
    left = Counter(one.place.partition("::")[0] for one in report.accounts.lingering)
    for each in report.gpus:
        lingering.add_metric([each.gpu.uuid], left[each.gpu.uuid])
        strangers.add_metric([each.gpu.uuid], report.accounts.strangers.get(each.gpu.uuid, 0))
    yield from (over, twice, lingering, strangers)


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, labels=list(labels))
