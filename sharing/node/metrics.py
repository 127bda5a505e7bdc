"""What an agent's health metrics say; read from the agent when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sharing.node.health import State, is_ill
from sharing.node.infirmary import Infirmary
from sharing.node.status import NodeReport

_PREFIX: Final = "gpu_sharing_gpu"


class HealthMetrics(Collector):
    """The health of a node's GPUs.

    Labels are GPUs and MIG instances of this node, and reasons of a closed table.

    Args:
        report: What is known now.
        infirmary: What is known against the GPUs, and which XIDs were seen.
    """

    def __init__(self, report: Callable[[], NodeReport], infirmary: Infirmary) -> None:
        self._report = report
        self._infirmary = infirmary

    def collect(self) -> Iterator[Metric]:
        """All of it, as it is now."""
        report = self._report()
        healthy = GaugeMetricFamily(
            f"{_PREFIX}_healthy",
            "1 if a GPU takes new work, 0 if it is ill, lost or cordoned.",
            labels=["gpu", "index", "board"],
        )
        for each in report.gpus:
            labels = [each.gpu.uuid, str(each.gpu.index), each.gpu.board.name]
            healthy.add_metric(labels, float(each.usable))
        yield healthy
        yield from self._faults(report)
        xids = CounterMetricFamily(
            f"{_PREFIX}_xids",
            "XIDs that the driver reported, by what the policy does about them.",
            labels=["gpu", "xid", "reaction"],
        )
        for (gpu, xid, reaction), count in sorted(self._infirmary.xids.items()):
            xids.add_metric([gpu, str(xid), reaction], count)
        yield xids

    def _faults(self, report: NodeReport) -> Iterator[Metric]:
        since = GaugeMetricFamily(
            f"{_PREFIX}_fault_since_timestamp_seconds",
            "Since when something is known against a GPU or MIG instance.",
            labels=["gpu", "device", "reason", "xid", "action", "state"],
        )
        ill = GaugeMetricFamily(
            f"{_PREFIX}_ill_devices",
            "GPUs and MIG instances that take no new work, by state.",
            labels=["state"],
        )
        counts = dict.fromkeys((State.UNHEALTHY, State.PROBING), 0)
        for each in report.patients:
            one = each.ailment
            xid = "" if one.xid is None else str(one.xid)
            since.add_metric(
                [each.uuid, each.device, one.reason, xid, str(one.action), str(one.state)],
                one.since,
            )
            if is_ill(one):
                counts[one.state] += 1
        for state, count in counts.items():
            ill.add_metric([str(state)], count)
        yield since
        yield ill
