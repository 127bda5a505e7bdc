"""From a fault to work on another GPU; from a lost GPU to seven that go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from embedded.scheduler.loop import Scheduler
from sharing.cluster.kind import EVENTS, NAMESPACES, PODS, SHARING_PROFILES, Kind
from sharing.controller.controller import Controller, ControllerSettings
from sharing.node.health import HealthPolicy
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.simulator import operate
from tests.support.agent_bench import DEADLINE_S, NodeBench, node_bench

BUDGETS = Kind(kind="PodDisruptionBudget", plural="poddisruptionbudgets", group="policy")
SLOW = HealthPolicy(quiet_s=3600.0)
SHARE = "gpu.sharing/timeslice-1of2"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "0c7d4a5e-7f0e-4c55-9c55-1f0f1c0f1c0f",
    "controller": True,
}


def manifest(name: str, resource: str, **spec: Any) -> dict[str, Any]:
    amounts = {resource: "1"}
    container = {
        "name": "main",
        "image": "test.local/busybox:1",
        "resources": {"limits": amounts, "requests": amounts},
    }
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [OWNER]},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


class Replicas:
    """Keeps as many pods as wanted, as a ReplicaSet does: a new name for each that went."""

    def __init__(self, node: NodeBench, resource: str, count: int) -> None:
        self.node, self.resource, self.count = node, resource, count
        self.made = 0

    def running(self) -> list[str]:
        return sorted(
            item["metadata"]["name"]
            for item in self.node.pods.values()
            if item.get("status", {}).get("phase") == "Running"
            and not item["metadata"].get("deletionTimestamp")
        )

    async def keep(self) -> None:
        while True:
            alive = [
                item
                for item in self.node.pods.values()
                if not item["metadata"].get("deletionTimestamp")
                and item.get("status", {}).get("phase") not in ("Failed", "Succeeded")
            ]
            known = {item["metadata"]["name"] for item in alive}
            for _ in range(self.count - len(alive)):
                self.made += 1
                name = f"web-{self.made}"
                await self.node.client.create(PODS, manifest(name, self.resource))
                await self.node.pods.until(partial(_has, name))  # as informers' expectations do
                known.add(name)
            await self.node.pods.until(partial(_differs, known))


def _has(name: str, cache: Any) -> bool:
    return cache.get(name, namespace="default") is not None


def _differs(known: set[str], cache: Any) -> bool:
    there = {
        item["metadata"]["name"]
        for item in cache.values()
        if not item["metadata"].get("deletionTimestamp")
        and item.get("status", {}).get("phase") not in ("Failed", "Succeeded")
    }
    return there != known


@asynccontextmanager
async def evicting(
    gpus: str, **settings: Any
) -> AsyncIterator[tuple[NodeBench, CollectorRegistry]]:
    """A node whose namespace evicts from faulty GPUs, with a scheduler."""
    async with node_bench(gpus) as node:
        registry = CollectorRegistry()
        chosen = ControllerSettings(lease=None, gather_s=0.01, **settings)
        controller = Controller(chosen, node.client, registry)
        node.tasks["controller"] = asyncio.create_task(controller.run())
        await node.until_event(controller.ready, node.tasks["controller"])
        profile = {
            "apiVersion": "gpu.sharing/v1alpha1",
            "kind": "SharingProfile",
            "metadata": {"name": "strict"},
            "spec": {"mode": "time-slicing", "onFault": "evict"},
        }
        await node.client.create(SHARING_PROFILES, profile)
        label = {"metadata": {"labels": {"gpu.sharing/profile": "strict"}}}
        await node.client.patch(NAMESPACES, "default", label)
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.start_agent(health=SLOW)
        async with Scheduler(node.client):
            yield node, registry


def gpus_of(node: NodeBench) -> dict[str, int]:
    """The index of the GPU that each pod is on."""
    return {
        holder.pod: gpu.index
        for gpu in node.status.gpus
        for share in gpu.shares
        for holder in share.holders
    }


async def events(node: NodeBench, reason: str, kind: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            listed = (await node.client.list(EVENTS))["items"]
            found = [
                one
                for one in listed
                if one["reason"] == reason and one["involvedObject"]["kind"] == kind
            ]
            if found:
                return found
            await asyncio.sleep(0.02)


async def test_work_runs_again_on_another_gpu_within_ten_seconds_of_a_fault() -> None:
    async with evicting("3xH100-80GB") as (node, _):
        await node.until_allocatable({SHARE: 6})
        replicas = Replicas(node, SHARE, 3)
        keeping = asyncio.create_task(replicas.keep())
        await node.until(node.pods, lambda: len(replicas.running()) == 3, replicas.running)
        await node.until_status(lambda _: len(gpus_of(node)) == 3)
        faulty = gpus_of(node)["web-1"]
        others = {pod: gpu for pod, gpu in gpus_of(node).items() if gpu != faulty}

        start = time.monotonic()
        node.store().change(lambda machine: operate.report_xid(machine, str(faulty), 95))
        await node.until(
            node.pods,
            lambda: len(replicas.running()) == 3 and "web-1" not in replicas.running(),
            replicas.running,
        )
        took_s = time.monotonic() - start

        assert took_s < 10
        status = await node.until_status(
            lambda s: set(gpus_of(node)) == set(replicas.running()) and s.plan is None
        )
        placed = gpus_of(node)
        assert faulty not in placed.values()
        assert {pod: placed[pod] for pod in others} == others  # who was well stayed where he was
        assert [gpu.health.healthy for gpu in status.gpus].count(False) == 1
        await node.until_allocatable({SHARE: 4})  # capacity is withheld for the device only
        for kind in ("Pod", "ReplicaSet"):
            told = await events(node, "GPUFault", kind)
            assert f"GPU {faulty}" in told[0]["message"]
            assert "RESET_GPU" in told[0]["message"]
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_a_disruption_budget_keeps_a_pod_until_it_allows_more() -> None:
    async with evicting("2xH100-80GB") as (node, registry):
        await node.until_allocatable({SHARE: 4})
        await node.client.create(PODS, manifest("web-1", SHARE))
        await node.until(node.pods, lambda: node.phase("web-1") == "Running", lambda: "no pod")
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await node.client.create(BUDGETS, budget)
        await node.until_status(lambda _: "web-1" in gpus_of(node))
        index = gpus_of(node)["web-1"]

        node.store().change(
            lambda machine: operate.report_xid(
                machine, str(index), 95, recovery=RecoveryAction.GPU_RESET
            )
        )

        (blocked,) = await events(node, "EvictionBlocked", "Pod")
        assert "a disruption budget keeps the pod there" in blocked["message"]
        assert node.phase("web-1") == "Running"
        await node.client.create(PODS, manifest("web-2", SHARE))
        await node.until(node.pods, lambda: node.phase("web-1") == "", lambda: "still there")
        assert node.phase("web-2") in ("Pending", "Running")
        tried = "gpu_sharing_controller_evictions_total"
        assert (registry.get_sample_value(tried, {"result": "budget"}) or 0) >= 1
        assert registry.get_sample_value(tried, {"result": "done"}) == 1


async def test_one_lost_gpu_of_eight_leaves_seven_that_serve_and_are_allocated() -> None:
    async with evicting("8xH100-80GB") as (node, _):
        await node.until_allocatable({SHARE: 16})
        for number in range(8):
            await node.client.create(PODS, manifest(f"web-{number}", SHARE))
        names = {f"web-{number}" for number in range(8)}
        await node.until(
            node.pods, lambda: all(node.phase(name) == "Running" for name in names), lambda: names
        )
        await node.until_status(lambda _: set(gpus_of(node)) == names)
        before = gpus_of(node)
        lost = before["web-0"]

        node.store().change(lambda machine: operate.lose(machine, str(lost)))
        await node.until_allocatable({SHARE: 14})
        gone = {pod for pod, gpu in before.items() if gpu == lost}
        await node.until(
            node.pods, lambda: all(node.phase(pod) == "" for pod in gone), lambda: gone
        )

        room = 14 - (8 - len(gone))
        fresh = [f"new-{number}" for number in range(room + 1)]
        for name in fresh:
            await node.client.create(PODS, manifest(name, SHARE))
        await node.until(
            node.pods,
            lambda: sum(node.phase(name) == "Running" for name in fresh) == room,
            lambda: [node.phase(name) for name in fresh],
        )
        await node.until_status(lambda _: len(gpus_of(node)) == 14)
        after = gpus_of(node)
        assert lost not in after.values()
        assert set(after.values()) == set(range(8)) - {lost}
        assert all(after[pod] == gpu for pod, gpu in before.items() if pod not in gone)
        assert sum(node.phase(name) == "Pending" for name in fresh) == 1  # waits, and is not failed
        status = node.status
        assert status.gpus[lost].health.reason in ("Xid79", "GpuLost")
        assert all(gpu.health.healthy for gpu in status.gpus if gpu.index != lost)


async def test_a_pod_that_slipped_past_admission_is_told_of_once() -> None:
    async with evicting("1xH100-80GB") as (node, registry):
        await node.until_allocatable({SHARE: 2})
        await node.client.create(PODS, manifest("web-1", SHARE))

        (told,) = await events(node, "UngrantedGPU", "Pod")
        assert "web-1, container main, holds gpu.sharing/timeslice-1of2" in told["message"]
        assert await events(node, "UngrantedGPU", "ReplicaSet")
        await node.until(node.pods, lambda: node.phase("web-1") == "Running", lambda: "no pod")
        turns = registry.get_sample_value("gpu_sharing_controller_turns_total") or 0
        assert turns > 1
        (again,) = await events(node, "UngrantedGPU", "Pod")
        assert again["count"] == 1
        slips = "gpu_sharing_controller_ungranted_containers"
        assert registry.get_sample_value(slips, {"kind": "share"}) == 1
