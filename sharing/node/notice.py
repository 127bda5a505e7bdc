"""What the agent publishes of a report, where there is an API server to publish it at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from sharing.api.node import Condition
from sharing.layout import GpuLayout
from sharing.node.api import NodeApi, Publication
from sharing.node.checkpoint import PodName
from sharing.node.infirmary import CoTenantsEnded, HealthNews
from sharing.node.news import HELD_TWICE, News, co_tenants, held_twice, news, over_budget
from sharing.node.status import NodeReport, labels_of, milli_capacity, status_of

_WAIT_S: Final = 2.0


class Notice:
    """Publishes reports, and what happened between them as Events.

    Args:
        api: The API server; None where there is none.
    """

    def __init__(self, api: NodeApi | None) -> None:
        self._api = api
        self._conditions: tuple[Condition, ...] = ()
        self._told = NodeReport()
        self._served: dict[str, GpuLayout] | None = None

    def publish(self, report: NodeReport) -> None:
        """Have the API server show this; returns at once."""
        if self._api is None:
            return
        seen = self._api.spec
        before = self._conditions or (() if seen is None else seen.status.conditions)
        status = status_of(report, before, datetime.now(UTC))
        self._conditions = status.conditions
        self._api.publish(
            Publication(
                status=status,
                labels=labels_of(report),
                milli=milli_capacity(report),
                healthy=next((one for one in status.conditions if one.type == "Healthy"), None),
            )
        )
        self._tell(self._api, report)

    def hear(self, news_of_health: HealthNews) -> None:
        """Tell the pods whose work was ended by another one's mistake; returns at once.

        What befalls devices is told by their reports.
        """
        if self._api is None or not isinstance(news_of_health, CoTenantsEnded):
            return
        said = co_tenants(self._told, news_of_health)
        self._tell_pods(self._api, "MpsClientsEnded", said)

    @staticmethod
    def _tell_pods(api: NodeApi, reason: str, said: Iterable[tuple[PodName, str]]) -> None:
        uids = {name: uid for uid, name in (api.pods() or {}).items()}
        for pod, message in said:
            about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace}
            about |= {"name": pod.name, "uid": uids.get(pod, "")}
            api.events.record(about, reason, message, warning=True)

    def _tell(self, api: NodeApi, report: NodeReport) -> None:
        about = api.gpu_node
        if about is None:
            return  # told once there is an object to tell of
        if self._served is None:
            self._served = _served_before(api)
        self._tell_pods(api, "MemoryOverBudget", over_budget(self._told, report))
        twice = held_twice(self._told, report)
        self._tell_pods(api, HELD_TWICE, [(pod, str(one)) for one in twice for pod in one.pods])
        for one in news(self._told, report, self._served):
            self._record(api, about, one)
            if one.about_node:
                self._record(api, api.node_reference, one)
        self._told = report
        self._served |= {one.gpu.uuid: one.served for one in report.gpus if one.served}

    @staticmethod
    def _record(api: NodeApi, about: Mapping[str, str], one: News) -> None:
        api.events.record(about, one.reason, one.message, warning=one.warning)

    async def heard(self) -> bool:
        """Wait until the server has it; False when time ran out."""
        if self._api is None:
            return True
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._api.published.wait()
        except TimeoutError:
            return False
        return True


def _served_before(api: NodeApi) -> dict[str, GpuLayout]:
    """What an earlier agent published, so that a restart is no news."""
    seen = api.spec
    gpus = () if seen is None else seen.status.gpus
    return {gpu.uuid: gpu.layout.to_layout() for gpu in gpus if gpu.layout is not None}
