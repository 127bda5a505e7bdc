"""A real kubelet that has lost count (kubernetes#137534) gives no share to two pods.

The fault is brought about on purpose: while a pod is being admitted, another one ends and somebody
lists PodResources; the kubelet then forgets what it is just assigning. Plugin and inquiry are the
product's own, in the test's process, so that an answer can be held back for as long as it takes.
On a kubelet without the fault the last pod is refused by the kubelet itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import grpc
import pytest

from sharing.cluster.client import Client
from sharing.cluster.kind import PODS
from sharing.node import checkpoint
from sharing.node.checkpoint import PodName
from sharing.node.inquiry import Inquiry
from sharing.node.podresources import PodResources
from sharing.plugin.plugins import DevicePlugins
from sharing.plugin.proto import podresources_pb2 as api
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub
from tests.cluster.box.box import Box
from tests.cluster.waiting import eventually
from tests.cluster.workload import pod, reaches
from tests.support.plugin_bindings import slice_

pytestmark = pytest.mark.cluster

RESOURCE: Final = "lost-count.test.example/share"
SHARES: Final = [replace(slice_(0, n), resource=RESOURCE, device_nodes=()) for n in range(3)]
_ENDING_S: Final = 3
"""How long the pod takes to end that ends during an admission."""


class Node:
    """The product's plugin on the box, and its pods."""

    def __init__(self, box: Box, client: Client, namespace: str) -> None:
        self.box, self.client, self.namespace = box, client, namespace
        self.plugins = DevicePlugins(box.device_plugins, cdi_dir=box.cdi_dir)
        self.kubelet = PodResources(box.pod_resources, box.device_plugins, self.plugins.admissions)
        self.names: dict[str, PodName] = {}
        self.inquiry = Inquiry(self.kubelet, lambda: self.names)
        self.plugins.who_holds = self.who_holds
        self.held_back, self.go_on = asyncio.Event(), asyncio.Event()
        self._passes: int | None = None

    def hold_back_allocate(self) -> None:
        """Hold back the next answer to Allocate, which follows an answer of advice."""
        self._passes = 1

    async def who_holds(self, resource: str, device_ids: Collection[str]) -> Mapping[str, str]:
        found = await self.inquiry.who_holds(resource, device_ids)
        if self._passes is not None:
            self._passes -= 1
            if self._passes < 0:
                self._passes = None
                self.held_back.set()
                await self.go_on.wait()
        return found

    async def create(self, name: str) -> None:
        """Create a pod with a share, past the scheduler, which counts rightly."""
        manifest = pod(name, limits={RESOURCE: "1"})
        manifest["spec"] |= {"nodeName": self.box.node, "terminationGracePeriodSeconds": _ENDING_S}
        made = await self.client.create(PODS, manifest, namespace=self.namespace)
        self.names[made["metadata"]["uid"]] = PodName(namespace=self.namespace, name=name)

    async def run(self, name: str) -> str:
        """Create a pod and have it run; its device."""
        await self.create(name)
        await reaches(self.client, self.namespace, name, "Running")
        return self.assigned()[name]

    async def refused(self, name: str) -> str:
        """Create a pod that the kubelet does not admit; why."""
        await self.create(name)
        found = await reaches(self.client, self.namespace, name, "Failed")
        assert found["status"]["reason"] == "UnexpectedAdmissionError", found["status"]
        return str(found["status"]["message"])

    async def delete(self, name: str, grace_s: int = 0) -> None:
        await self.client.delete(PODS, name, namespace=self.namespace, grace_s=grace_s)

    def assigned(self) -> dict[str, str]:
        """The device of each pod by the kubelet's checkpoint, which reading does not change."""
        return {
            self.names[entry.pod_uid].name: entry.device_ids[0]
            for entry in checkpoint.read(self.box.device_plugins)
            if entry.pod_uid in self.names
        }

    async def until_listed_without(self, name: str) -> None:
        """List PodResources until a pod has nothing in it any more, as an exporter may."""
        async with grpc.aio.insecure_channel(f"unix:{self.box.pod_resources}") as channel:
            stub = PodResourcesListerStub(channel)

            async def look() -> bool:
                listed = await stub.List(api.ListPodResourcesRequest(), timeout=5)
                return not any(
                    device.resource_name == RESOURCE
                    for each in listed.pod_resources
                    if (each.namespace, each.name) == (self.namespace, name)
                    for container in each.containers
                    for device in container.devices
                )

            await eventually(f"{name} holds nothing", look)


@asynccontextmanager
async def serving(box: Box, client: Client, namespace: str) -> AsyncIterator[Node]:
    node = Node(box, client, namespace)
    await node.plugins.start()
    try:
        await node.plugins.advertise(SHARES)
        assert await node.plugins.wait_serving(20)
        yield node
    finally:
        node.go_on.set()
        await node.plugins.advertise(())
        await node.plugins.stop()
        await node.kubelet.close()


@pytest.fixture
async def admin(node_box: Box) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(node_box.access.kubeconfig()) as client:
        yield client


async def test_a_kubelet_that_forgot_an_assignment_gives_no_share_twice(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    async with serving(node_box, admin, box_namespace) as node:
        first = await node.run("ends")
        node.hold_back_allocate()
        await node.delete("ends", grace_s=_ENDING_S)
        await node.create("forgotten")
        async with asyncio.timeout(20):
            await node.held_back.wait()
        await node.until_listed_without("ends")
        node.go_on.set()
        await reaches(admin, box_namespace, "forgotten", "Running")
        kept = node.assigned()["forgotten"]
        assert kept != first

        others = {await node.run(name) for name in ("second", "third")}
        message = await node.refused("one-too-many")

        assert others == {one.device_id for one in SHARES} - {kept}
        assert f"share {kept} by container main of pod {box_namespace}/forgotten" in message
        assert "kubernetes#137534" in message
        assert "Available: 0" in await node.refused("after-that"), "a refusal has it count anew"
        await node.delete("forgotten")
        await eventually("its share is free", lambda: gone(node, "forgotten"))
        assert await node.run("heir") == kept


async def gone(node: Node, name: str) -> bool:
    listed: dict[str, Any] = await node.client.list(PODS, namespace=node.namespace)
    return all(one["metadata"]["name"] != name for one in listed["items"])
