"""A whole node on a bench: API server, kubelet, simulated GPUs, agent, controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from embedded.apiserver.server import ApiServer
from embedded.kubelet.kubelet import Kubelet
from embedded.kubelet.settings import Settings
from sharing.api.crd import crd_manifests
from sharing.api.node import GpuNodeStatus
from sharing.cluster import credentials
from sharing.cluster.cache import Cache, whole
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS, GPU_LAYOUTS, GPU_NODES, NODES, PODS, Kind
from sharing.controller.controller import Controller, ControllerSettings
from sharing.node.agent import Agent
from sharing.node.health import HealthPolicy
from sharing.node.journal import Journal
from sharing.node.settings import AgentSettings, Tempo
from sharing.nvml import simulator
from sharing.nvml.simulator.state import Machine
from sharing.nvml.simulator.store import Store

QUICK = Tempo(
    blocked_s=0.05,
    holders_s=0.2,
    probe_s=0.05,
    admission_s=0.02,
    first_retry_s=0.05,
    longest_retry_s=0.5,
    event_wait_s=0.1,
    api_wait_s=0.5,
)
QUICK_HEALTH = HealthPolicy(quiet_s=0.3, probes=2)
DEADLINE_S = 20.0


@dataclass
class NodeBench:
    """One node ``n1`` and what tests ask of it."""

    folder: Path
    client: Client
    kubelet: Kubelet
    settings: AgentSettings
    pods: Cache[dict[str, Any]]
    nodes: Cache[dict[str, Any]]
    gpu_nodes: Cache[dict[str, Any]]
    layouts: Cache[dict[str, Any]]
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    agent: Agent | None = None

    # -- programs

    async def start_agent(
        self,
        *,
        journal: Journal | None = None,
        until_ready: bool = True,
        client: Client | None = None,
        **changes: Any,
    ) -> Agent:
        settings = replace(self.settings, **changes)
        self.agent = Agent(settings, client or self.client, journal=journal)
        task = self.tasks["agent"] = asyncio.create_task(self.agent.run())
        if until_ready:
            await self.until_event(self.agent.ready, task)
        return self.agent

    async def start_controller(self) -> Controller:
        controller = Controller(ControllerSettings(lease=None, gather_s=0.01), self.client)
        task = self.tasks["controller"] = asyncio.create_task(controller.run())
        await self.until_event(controller.ready, task)
        return controller

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def until_event(self, event: asyncio.Event, task: asyncio.Task[None]) -> None:
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait({waiting, task}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        assert event.is_set(), "not ready in time"

    # -- what is there

    @property
    def status(self) -> GpuNodeStatus:
        item = self.gpu_nodes.get("n1")
        assert item is not None, "there is no GPUNode"
        return GpuNodeStatus.model_validate(item.get("status") or {})

    def allocatable(self) -> dict[str, int]:
        """GPU resources that the node offers, zeroes left out."""
        item = self.nodes.get("n1")
        assert item is not None
        amounts = item["status"].get("allocatable", {})
        return {
            name: int(value)
            for name, value in sorted(amounts.items())
            if "/" in name and name != "gpu.sharing/milli-gpu" and int(value)
        }

    def machine(self) -> Machine:
        assert self.settings.simulate is not None
        return Store(self.settings.simulate).read()

    def store(self) -> Store:
        assert self.settings.simulate is not None
        return Store(self.settings.simulate)

    # -- waiting

    async def until(
        self, cache: Cache[dict[str, Any]], accept: Callable[[], bool], what: Callable[[], object]
    ) -> None:
        def satisfied(_: object) -> bool:
            return accept()

        try:
            async with asyncio.timeout(DEADLINE_S):
                await cache.until(satisfied)
        except TimeoutError:
            raise AssertionError(f"still {what()}") from None

    async def until_status(self, accept: Callable[[GpuNodeStatus], bool]) -> GpuNodeStatus:
        def accepts() -> bool:
            return self.gpu_nodes.get("n1") is not None and accept(self.status)

        await self.until(self.gpu_nodes, accepts, lambda: self.gpu_nodes.get("n1"))
        return self.status

    async def until_served(self) -> GpuNodeStatus:
        """Until the agent says that everything wanted is served."""
        item = self.gpu_nodes.get("n1")
        generation = item["metadata"].get("generation") if item else None
        return await self.until_status(
            lambda status: (
                any(one.type == "Ready" and one.status == "True" for one in status.conditions)
                and (generation is None or (status.observed_generation or 0) >= generation)
            )
        )

    async def until_allocatable(self, wanted: Mapping[str, int]) -> None:
        expected = dict(sorted(wanted.items()))
        await self.until(self.nodes, lambda: self.allocatable() == expected, self.allocatable)

    # -- doing

    async def layout(self, *entries: dict[str, Any], name: str = "all", **spec: Any) -> None:
        """Create a GPULayout, or change its entries."""
        body = {"gpus": list(entries), **spec}
        if self.layouts.get(name) is None:
            item = {
                "apiVersion": "gpu.sharing/v1alpha1",
                "kind": "GPULayout",
                "metadata": {"name": name},
                "spec": body,
            }
            await self.client.create(GPU_LAYOUTS, item)
            await self.until(
                self.layouts, lambda: self.layouts.get(name) is not None, lambda: "no layout"
            )
        else:
            await self.client.patch(GPU_LAYOUTS, name, {"spec": body})

    async def run_pod(self, name: str, resource: str, count: int = 1) -> dict[str, Any]:
        amounts = {resource: str(count)}
        item = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": "test.local/busybox:1",
                        "resources": {"limits": amounts, "requests": amounts},
                    }
                ],
            },
        }
        await self.client.create(PODS, item)
        await self.until(
            self.pods,
            lambda: self.phase(name) in ("Running", "Failed"),
            lambda: self.pods.get(name, namespace="default"),
        )
        found = self.pods.get(name, namespace="default")
        assert found is not None
        return found

    def phase(self, name: str) -> str:
        item = self.pods.get(name, namespace="default")
        return "" if item is None else str(item.get("status", {}).get("phase"))

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(PODS, name, namespace="default", grace_s=0)


@asynccontextmanager
async def node_bench(
    gpus: str | Sequence[str] = "2xH100-80GB", *, managed: bool = True, **kubelet_is: Any
) -> AsyncIterator[NodeBench]:
    """A fresh API server with one node; no agent and no controller yet.

    The keywords that are left are the kubelet's settings.
    """
    folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))  # short, for unix sockets
    cdi = folder / "cdi"
    cdi.mkdir()
    simulator.create(folder / "gpus.json", gpus)
    try:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(ApiServer())
            kubeconfig = server.kubeconfig()
            (folder / "kubeconfig").write_text(json.dumps(kubeconfig), "utf-8")
            token = kubeconfig["users"][0]["user"]["token"]

            async def source() -> credentials.Access:
                return credentials.Access(
                    server=server.url, origin="test", authorization=f"Bearer {token}"
                )

            client = await stack.enter_async_context(Client(source))
            for manifest in crd_manifests():
                await client.create(CRDS, manifest)
            labels = {"gpu.sharing/managed": "true"} if managed else {}
            chosen = Settings(
                name="n1", root=folder / "k", cdi_folders=(cdi,), labels=labels, **kubelet_is
            )
            kubelet = await stack.enter_async_context(Kubelet(client, chosen))

            async def cache(kind: Kind) -> Cache[dict[str, Any]]:
                return await stack.enter_async_context(Cache(client, kind, whole))

            bench = NodeBench(
                folder=folder,
                client=client,
                kubelet=kubelet,
                settings=AgentSettings(
                    node="n1",
                    kubelet_dir=folder / "k",
                    cdi_dir=cdi,
                    state_dir=folder / "s",
                    mps_dir=folder / "m",
                    simulate=folder / "gpus.json",
                    leave_mps_running=False,
                    tempo=QUICK,
                    health=QUICK_HEALTH,
                ),
                pods=await cache(PODS),
                nodes=await cache(NODES),
                gpu_nodes=await cache(GPU_NODES),
                layouts=await cache(GPU_LAYOUTS),
            )
            try:
                yield bench
            finally:
                for name in tuple(bench.tasks):
                    await bench.stop(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
