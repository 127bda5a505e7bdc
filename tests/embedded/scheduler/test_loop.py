"""The scheduler's loop against the embedded API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from embedded.apiserver.server import ApiServer
from embedded.scheduler.loop import Scheduler
from sharing.cluster.cache import Cache, whole
from sharing.cluster.client import Client, PatchType
from sharing.cluster.kind import EVENTS, NODES, PODS, PRIORITY_CLASSES

SHARE = "gpu.sharing/mps-1of4"


@dataclass
class Stand:
    """An API server with a scheduler, and a cache of pods to wait on."""

    client: Client
    pods: Cache[dict[str, Any]]
    scheduler: Scheduler

    async def node(self, name: str, **amounts: str) -> None:
        item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await self.client.create(NODES, item)
        offered = {"cpu": "8", "memory": "32Gi", "pods": "110"} | amounts
        await self.offer(name, offered)

    async def offer(self, name: str, amounts: dict[str, str]) -> None:
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await self.client.patch(
            NODES, name, status, patch_type=PatchType.STRATEGIC, subresource="status"
        )

    async def pod(self, name: str, shares: int = 1, **spec: Any) -> None:
        amounts = {SHARE: str(shares)}
        resources = {"limits": amounts, "requests": amounts}
        containers = [{"name": "c", "image": "test.local/x:1", "resources": resources}]
        item = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": containers, **spec},
        }
        await self.client.create(PODS, item)

    async def until(self, name: str, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def satisfied(_: object) -> bool:
            item = self.pods.get(name, namespace="default")
            return item is not None and accept(item)

        async with asyncio.timeout(10):
            await self.pods.until(satisfied)
        found = self.pods.get(name, namespace="default")
        assert found is not None
        return found

    async def bound(self, name: str) -> str:
        item = await self.until(name, lambda one: bool(one["spec"].get("nodeName")))
        return str(item["spec"]["nodeName"])

    async def told(self, name: str) -> str:
        item = await self.until(name, lambda one: bool(condition(one).get("message")))
        return str(condition(item)["message"])

    async def events(self) -> set[tuple[str, str]]:
        await self.scheduler._events.drain()
        items = (await self.client.list(EVENTS, namespace="default"))["items"]
        return {(one["reason"], one["message"]) for one in items}


def condition(item: dict[str, Any]) -> dict[str, Any]:
    for one in item["status"].get("conditions", []):
        if one["type"] == "PodScheduled":
            found: dict[str, Any] = one
            return found
    return {}


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer(tls=True))
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        client = await stack.enter_async_context(Client.from_kubeconfig(path))
        pods = await stack.enter_async_context(Cache(client, PODS, whole))
        scheduler = await stack.enter_async_context(Scheduler(client))
        yield Stand(client=client, pods=pods, scheduler=scheduler)


async def test_a_pod_is_bound_where_its_share_is_free(stand: Stand) -> None:
    await stand.node("n1")
    await stand.node("n2", **{SHARE: "1"})
    await stand.pod("p")
    assert await stand.bound("p") == "n2"
    item = await stand.until("p", lambda one: condition(one).get("status") == "True")
    assert item["spec"]["nodeName"] == "n2"
    assert ("Scheduled", "Successfully assigned default/p to n2") in await stand.events()


async def test_a_pod_that_waits_says_why_and_is_bound_when_room_appears(stand: Stand) -> None:
    await stand.node("n1")
    await stand.node("n2", **{SHARE: "0"})
    await stand.pod("p")
    sentence = f"0/2 nodes are available: 2 Insufficient {SHARE}."
    assert await stand.told("p") == sentence
    assert ("FailedScheduling", sentence) in await stand.events()
    await stand.offer("n1", {SHARE: "1", "cpu": "8", "memory": "32Gi", "pods": "110"})
    assert await stand.bound("p") == "n1"


async def test_a_pod_that_waits_is_bound_when_another_one_goes(stand: Stand) -> None:
    await stand.node("n1", **{SHARE: "1"})
    await stand.pod("first")
    await stand.bound("first")
    await stand.pod("second")
    await stand.told("second")
    await stand.client.delete(PODS, "first", namespace="default", grace_s=0)
    assert await stand.bound("second") == "n1"


async def test_without_nodes_a_pod_waits_for_the_first(stand: Stand) -> None:
    await stand.pod("p")
    assert await stand.told("p") == "no nodes available to schedule pods"
    await stand.node("n1", **{SHARE: "1"})
    assert await stand.bound("p") == "n1"


async def test_pods_of_other_schedulers_and_gated_pods_are_left_alone(stand: Stand) -> None:
    await stand.node("n1", **{SHARE: "3"})
    await stand.pod("other", schedulerName="somebody")
    await stand.pod("gated", schedulingGates=[{"name": "wait"}])
    await stand.pod("mine")
    await stand.bound("mine")
    for name in ("other", "gated"):
        item = await stand.client.get(PODS, name, namespace="default")
        assert not item["spec"].get("nodeName")
    await stand.client.patch(
        PODS, "gated", {"spec": {"schedulingGates": None}}, namespace="default"
    )
    assert await stand.bound("gated") == "n1"


async def test_a_burst_of_pods_fills_nodes_exactly(stand: Stand) -> None:
    await stand.node("n1", **{SHARE: "6"})
    await stand.node("n2", **{SHARE: "4"})
    await asyncio.gather(*(stand.pod(f"p{n}") for n in range(14)))
    async with asyncio.timeout(10):
        await stand.pods.until(
            lambda pods: sum(bool(one["spec"].get("nodeName")) for one in pods.values()) >= 10
        )
    waiting = [
        one["metadata"]["name"] for one in stand.pods.values() if not one["spec"].get("nodeName")
    ]
    for name in waiting:
        await stand.told(name)
    nodes = [one["spec"].get("nodeName") for one in stand.pods.values()]
    assert (nodes.count("n1"), nodes.count("n2"), nodes.count(None)) == (6, 4, 4)


async def test_why_a_pod_waits_is_written_once(stand: Stand) -> None:
    await stand.node("n1", **{SHARE: "0"})
    await stand.pod("p")
    await stand.told("p")
    before = await stand.client.get(PODS, "p", namespace="default")
    # Each of these makes the scheduler look at all pods that wait.
    await stand.client.patch(NODES, "n1", {"metadata": {"labels": {"x": "y"}}})
    await stand.pod("q")
    await stand.told("q")
    after = await stand.client.get(PODS, "p", namespace="default")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    # Another reason is news.
    await stand.node("n2", **{SHARE: "0"})
    await stand.until("p", lambda one: "0/2 nodes" in str(condition(one).get("message")))


async def priority(stand: Stand, name: str, value: int) -> None:
    item = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    await stand.client.create(PRIORITY_CLASSES, item)


async def test_an_important_pod_displaces_another_and_keeps_the_room(stand: Stand) -> None:
    await priority(stand, "high", 1000)
    await stand.node("n1", **{SHARE: "1"})
    await stand.pod("low")
    await stand.bound("low")
    await stand.pod("also-low")
    await stand.told("also-low")
    await stand.pod("high", priorityClassName="high")
    # There is no kubelet here: the pod that has to go stays until somebody removes it.
    await stand.until("low", lambda one: bool(one["metadata"].get("deletionTimestamp")))
    await stand.until("high", lambda one: one["status"].get("nominatedNodeName") == "n1")
    await stand.client.delete(PODS, "low", namespace="default", grace_s=0)
    assert await stand.bound("high") == "n1"
    waiting = await stand.client.get(PODS, "also-low", namespace="default")
    assert not waiting["spec"].get("nodeName")
    assert any(reason == "Preempted" for reason, _ in await stand.events())
