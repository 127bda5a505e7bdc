"""The controller's loop: follow the cluster, decide for everything, write what differs."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from sharing.api.node import GpuNodeSpec
from sharing.cluster.cache import Cache, Change
from sharing.cluster.client import Client
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import (
    GPU_LAYOUTS,
    GPU_NODES,
    NAMESPACES,
    NODES,
    PODS,
    SHARING_PROFILES,
)
from sharing.controller.audit import lost_namespaces, rewritten, slipped
from sharing.controller.election import Election, LeaseSettings
from sharing.controller.evicting import Evictor
from sharing.controller.faults import Eviction, evictions
from sharing.controller.layouts import (
    MARK,
    LayoutOutcome,
    NodeSeen,
    SpecWrite,
    assign_layouts,
)
from sharing.controller.metrics import ControllerMetrics
from sharing.controller.pods import seen_pod
from sharing.controller.profiles import ProfileOutcome, profile_outcomes
from sharing.controller.reading import (
    seen_gpu_node,
    seen_labels,
    seen_layout,
    seen_profile,
)
from sharing.controller.silence import Silence
from sharing.controller.statuses import layout_status, profile_status
from sharing.controller.telling import Tellings
from sharing.controller.writing import Work, Writes
from sharing.layout import GpuIdentity
from sharing.names import MANAGED_LABEL

_log: Final = structlog.get_logger()
_TOLD_BEFORE: Final = timedelta(minutes=5)
"""Pods older than this were told of by an earlier controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """One controller."""

    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{os.getpid()}")
    """Who we are in the Lease."""
    lease: LeaseSettings | None = field(default_factory=LeaseSettings)
    """None where there is one controller only, as in an embedded cluster."""
    gather_s: float = 0.05
    """How long changes are gathered before they are acted on."""
    evictions_per_minute: int = 60
    """A mistake that makes all GPUs look faulty must not empty the cluster at once."""
    silent_after_s: float = 60.0
    """How long an agent may take to take in a new spec before its node counts as silent."""
    longest_rest_s: float = 300.0
    """Between two turns that nothing asked for."""


class Controller:
    """Brings layouts and faults to the nodes of a cluster.

    Args:
        settings: How to run.
        client: The API server.
        registry: Where its metrics appear; nowhere if None.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        client: Client,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        """Set once this instance knows the cluster: as the leader or as its stand-by."""
        self.leading = asyncio.Event()
        self._settings = settings
        self._client = client
        self._wake = asyncio.Event()
        self._layouts = Cache(client, GPU_LAYOUTS, seen_layout)
        self._profiles = Cache(client, SHARING_PROFILES, seen_profile)
        self._gpu_nodes = Cache(client, GPU_NODES, seen_gpu_node)
        self._nodes = Cache(client, NODES, seen_labels, label_selector=f"{MANAGED_LABEL}=true")
        self._namespaces = Cache(client, NAMESPACES, seen_labels)
        self._pods = Cache(client, PODS, seen_pod)
        self._writes = Writes()
        self._metrics = ControllerMetrics(registry or CollectorRegistry())
        self._events = EventRecorder(client, "gpu-sharing-controller", instance=settings.identity)
        self._tellings = Tellings(self._events)
        self._evictor = Evictor(
            client, self._events, self._metrics, per_minute=settings.evictions_per_minute
        )
        self._silence = Silence(patience_s=settings.silent_after_s)
        self._since = (datetime.now(UTC) - _TOLD_BEFORE).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def run(self) -> None:
        """Work until cancelled; where there are several, while this one leads."""
        caches: tuple[Cache[Any], ...] = (
            self._layouts,
            self._profiles,
            self._gpu_nodes,
            self._nodes,
            self._namespaces,
            self._pods,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._events)
            for cache in caches:
                stack.callback(cache.on_change(self._changed))
                await stack.enter_async_context(cache)
            for cache in caches:
                await cache.synced.wait()
            self.ready.set()
            await self._lead()

    async def _lead(self) -> None:
        lease = self._settings.lease
        if lease is None:
            await self._work()
            return
        election = Election(self._client, self._settings.identity, lease)
        while True:
            await election.win()
            try:
                await _while_running(election.keep(), self._work())
            except asyncio.CancelledError:
                await election.resign()
                raise
            finally:
                self.leading.clear()
                self._metrics.leading.set(0)

    async def _work(self) -> None:
        self.leading.set()
        self._metrics.leading.set(1)
        while True:
            self._wake.clear()
            await self._turn()
            rest_s = min(
                self._writes.next_retry_s(),
                self._evictor.wait_s,
                self._silence.next_s(time.monotonic()),
                self._settings.longest_rest_s,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._wake.wait()
            await asyncio.sleep(self._settings.gather_s)

    def _changed(self, change: Change[Any]) -> None:
        if change.old != change.new:
            self._wake.set()

    # -- one turn

    async def _turn(self) -> None:
        """Decide for everything and write what differs; one refusal stops nothing else."""
        assignment = assign_layouts(self._layouts.values(), self._managed())
        profiles = profile_outcomes(self._profiles.values(), self._labels(), self._pods.values())
        work: dict[str, Work] = {}
        for write in assignment.writes:
            work[f"spec of {write.node}"] = partial(self._write_spec, write)
        for layout in assignment.outcomes:
            work[f"GPULayout {layout.layout}"] = partial(self._write_layout, layout)
        for profile in profiles:
            work[f"SharingProfile {profile.profile}"] = partial(self._write_profile, profile)
        wanted = self._evictions()
        resting = self._writes.resting
        for eviction in self._evictor.due([one for one in wanted if _name(one) not in resting]):
            work[_name(eviction)] = partial(self._evict, eviction)
        # A pod that a budget keeps where it is goes on waiting for its next try.
        work |= {_name(one): partial(self._evict, one) for one in wanted if _name(one) in resting}
        self._audit()
        self._metrics.turns.inc()
        self._metrics.unready_layouts.set(sum(not one.ready for one in assignment.outcomes))
        self._metrics.broken_profiles.set(sum(not one.ready for one in profiles))
        await self._writes.do(work)

    def _audit(self) -> None:
        """Say what people should hear of."""
        pods, labels, profiles = self._pods.values(), self._labels(), self._profiles.values()
        found = slipped(pods, labels, profiles)
        self._metrics.note_slips(dict(Counter(one.slip for one in found)))
        tell = self._tellings.tell
        tell("slips", (telling for one in found for telling in one.tellings))
        tell("rewritten", rewritten(pods, self._since))
        tell("namespaces", lost_namespaces(labels, profiles))

    def _labels(self) -> dict[str, Mapping[str, str]]:
        return {name: labels for (_, name), labels in self._namespaces.items()}

    def _managed(self) -> tuple[NodeSeen, ...]:
        nodes = []
        silent = self._silent()
        for (_, name), labels in self._nodes.items():
            seen = self._gpu_nodes.get(name)
            if seen is None:
                nodes.append(NodeSeen(name=name, labels=labels))
                continue
            gpus = tuple(
                GpuIdentity(index=gpu.index, uuid=gpu.uuid, board=gpu.board)
                for gpu in seen.status.gpus
            )
            nodes.append(
                NodeSeen(
                    name=name,
                    labels=labels,
                    gpus=gpus,
                    spec=seen.spec or GpuNodeSpec(),
                    mark=seen.mark,
                    version=seen.version,
                    readable=seen.spec is not None,
                    trouble=silent.get(name) or seen.trouble,
                )
            )
        return tuple(nodes)

    def _silent(self) -> dict[str, str]:
        """What to say about nodes that owe an answer for too long."""
        owed = {
            name: seen.generation
            for (_, name), seen in self._gpu_nodes.items()
            if seen.generation is not None and seen.status.observed_generation != seen.generation
        }
        found = self._silence.note(owed, time.monotonic())
        self._metrics.silent_nodes.set(len(found))
        patience = f"{self._silence.patience_s:g} s"
        said = f"its agent is silent: it has not taken in the newest spec for more than {patience}"
        return dict.fromkeys(found, said)

    def _evictions(self) -> tuple[Eviction, ...]:
        found = evictions(
            {name: seen.status for (_, name), seen in self._gpu_nodes.items()},
            self._labels(),
            self._profiles.values(),
        )
        return tuple(
            one for one in found if one.concerns(self._pods.get(one.pod, namespace=one.namespace))
        )

    # -- writing

    async def _write_spec(self, write: SpecWrite) -> None:
        gpus = write.spec.model_dump(mode="json", by_alias=True, exclude_none=True)["gpus"]
        patch = {
            "metadata": {"annotations": {MARK: write.mark}, "resourceVersion": write.version},
            "spec": {"gpus": gpus},
        }
        await self._client.patch(GPU_NODES, write.node, patch)
        _log.info("layout was assigned", node=write.node, mark=write.mark)

    async def _write_layout(self, outcome: LayoutOutcome) -> None:
        seen = self._layouts.get(outcome.layout)
        status = None if seen is None else layout_status(outcome, seen, datetime.now(UTC))
        if status is not None:
            await self._client.patch(
                GPU_LAYOUTS, outcome.layout, {"status": status}, subresource="status"
            )

    async def _write_profile(self, outcome: ProfileOutcome) -> None:
        seen = self._profiles.get(outcome.profile)
        status = None if seen is None else profile_status(outcome, seen, datetime.now(UTC))
        if status is not None:
            await self._client.patch(
                SHARING_PROFILES, outcome.profile, {"status": status}, subresource="status"
            )

    async def _evict(self, eviction: Eviction) -> None:
        pod = self._pods.get(eviction.pod, namespace=eviction.namespace)
        if pod is not None and eviction.concerns(pod):
            await self._evictor.evict(eviction, pod)


def _name(eviction: Eviction) -> str:
    return f"pod {eviction.namespace}/{eviction.pod}"


async def _while_running(watch: Any, work: Any) -> None:
    """Run both until the first ends, then end the other; an error of either is raised."""
    tasks = [asyncio.ensure_future(watch), asyncio.ensure_future(work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
