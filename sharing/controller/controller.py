"""The controller's loop: follow the cluster, decide for everything, write what differs."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import structlog

from sharing.api.node import Condition, GpuNodeSpec
from sharing.cluster.cache import Cache, Change
from sharing.cluster.client import Client
from sharing.cluster.kind import (
    GPU_LAYOUTS,
    GPU_NODES,
    NAMESPACES,
    NODES,
    PODS,
    SHARING_PROFILES,
)
from sharing.controller.election import Election, LeaseSettings
from sharing.controller.faults import Eviction, evictions
from sharing.controller.layouts import (
    MARK,
    LayoutOutcome,
    NodeSeen,
    SpecWrite,
    assign_layouts,
)
from sharing.controller.profiles import ProfileOutcome, profile_outcomes
from sharing.controller.reading import (
    seen_gpu_node,
    seen_labels,
    seen_layout,
    seen_pod,
    seen_profile,
)
from sharing.controller.writing import Work, Writes
from sharing.layout import GpuIdentity
from sharing.names import MANAGED_LABEL

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """One controller."""

    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{os.getpid()}")
    """Who we are in the Lease."""
    lease: LeaseSettings | None = field(default_factory=LeaseSettings)
    """None where there is one controller only, as in an embedded cluster."""
    gather_s: float = 0.05
    """How long changes are gathered before they are acted on."""
    longest_rest_s: float = 300.0
    """Between two turns that nothing asked for."""


class Controller:
    """Brings layouts and faults to the nodes of a cluster.

    Args:
        settings: How to run.
        client: The API server.
    """

    def __init__(self, settings: ControllerSettings, client: Client) -> None:
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

    async def _work(self) -> None:
        self.leading.set()
        while True:
            self._wake.clear()
            await self._turn()
            rest_s = min(self._writes.next_retry_s(), self._settings.longest_rest_s)
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
        profiles = profile_outcomes(
            self._profiles.values(),
            {name: labels for (_, name), labels in self._namespaces.items()},
            self._pods.values(),
        )
        work: dict[str, Work] = {}
        for write in assignment.writes:
            work[f"spec of {write.node}"] = partial(self._write_spec, write)
        for layout in assignment.outcomes:
            work[f"GPULayout {layout.layout}"] = partial(self._write_layout, layout)
        for profile in profiles:
            work[f"SharingProfile {profile.profile}"] = partial(self._write_profile, profile)
        for eviction in self._evictions():
            work[f"pod {eviction.namespace}/{eviction.pod}"] = partial(self._evict, eviction)
        await self._writes.do(work)

    def _managed(self) -> tuple[NodeSeen, ...]:
        nodes = []
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
                    trouble=seen.trouble,
                )
            )
        return tuple(nodes)

    def _evictions(self) -> tuple[Eviction, ...]:
        found = evictions(
            {name: seen.status for (_, name), seen in self._gpu_nodes.items()},
            {name: labels for (_, name), labels in self._namespaces.items()},
            self._profiles.values(),
        )
        return tuple(one for one in found if self._is_running(one))

    def _is_running(self, eviction: Eviction) -> bool:
        pod = self._pods.get(eviction.pod, namespace=eviction.namespace)
        return pod is not None and not pod.finished

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
        if seen is None:
            return
        ready = _ready(outcome, seen.conditions, seen.generation)
        if seen.conditions == (ready,):
            return
        status = {"observedGeneration": seen.generation, "conditions": [_plain(ready)]}
        await self._client.patch(
            GPU_LAYOUTS, outcome.layout, {"status": status}, subresource="status"
        )

    async def _write_profile(self, outcome: ProfileOutcome) -> None:
        seen = self._profiles.get(outcome.profile)
        if seen is None:
            return
        ready = _ready(outcome, seen.conditions, seen.generation)
        status = {
            "observedGeneration": seen.generation,
            "namespaceCount": outcome.namespace_count,
            "namespaces": [_plain(one) for one in outcome.namespaces],
            "grants": [_plain(one) for one in outcome.grants],
            "conditions": [_plain(ready)],
        }
        if status == seen.told:
            return
        await self._client.patch(
            SHARING_PROFILES, outcome.profile, {"status": status}, subresource="status"
        )

    async def _evict(self, eviction: Eviction) -> None:
        pod = self._pods.get(eviction.pod, namespace=eviction.namespace)
        if pod is None:
            return
        await self._client.evict(eviction.pod, namespace=eviction.namespace, uid=pod.uid)
        _log.info(
            "pod was evicted",
            namespace=eviction.namespace,
            pod=eviction.pod,
            reason=eviction.reason,
        )


def _ready(
    outcome: LayoutOutcome | ProfileOutcome,
    before: tuple[Condition, ...],
    generation: int | None,
) -> Condition:
    status = "True" if outcome.ready else "False"
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for one in before:
        if one.type == "Ready" and one.status == status:
            since = one.last_transition_time
    return Condition(
        type="Ready",
        status=status,
        reason=outcome.reason,
        message=outcome.message[:1024],
        last_transition_time=since,
        observed_generation=generation,
    )


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


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
