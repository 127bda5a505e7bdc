"""An API server and a kubelet on a bench, with the few questions that tests ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from embedded.apiserver.server import ApiServer
from embedded.kubelet.kubelet import Kubelet
from embedded.kubelet.settings import Settings
from sharing.cluster import credentials
from sharing.cluster.cache import Cache, whole
from sharing.cluster.client import Client
from sharing.cluster.kind import NODES, PODS
from sharing.plugin.proto import podresources_pb2
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub
from tests.support.kubelet_clock import ManualClock
from tests.support.kubelet_plugin import ScriptedPlugin

SHARE = "gpu.sharing/mps-1of4"


def pod(
    name: str,
    *,
    shares: int = 0,
    resource: str = SHARE,
    node: str = "n1",
    init: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container ``main``, on a node unless that is empty."""
    main = spec.pop("main", {})
    body: dict[str, Any] = {
        "containers": [container("main", shares, resource=resource) | main],
        **({"initContainers": init} if init else {}),
        **({"nodeName": node} if node else {}),
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": body,
    }


def container(name: str, shares: int = 0, *, resource: str = SHARE, **more: Any) -> dict[str, Any]:
    amounts = {resource: str(shares)} if shares else {}
    resources = {"limits": amounts, "requests": amounts}
    return {"name": name, "image": "test.local/busybox:1", "resources": resources, **more}


@dataclass
class Bench:
    """One API server, one kubelet, caches of pods and nodes to wait on."""

    server: ApiServer
    client: Client
    kubelet: Kubelet
    clock: ManualClock
    pods: Cache[dict[str, Any]]
    nodes: Cache[dict[str, Any]]
    folder: Path
    stack: AsyncExitStack
    plugins: list[ScriptedPlugin] = field(default_factory=list)

    async def plugin(self, devices: Mapping[str, str] | str, **more: Any) -> ScriptedPlugin:
        """Start and register a plugin; devices as ids in one text are all healthy."""
        if isinstance(devices, str):
            devices = dict.fromkeys(devices.split(), "Healthy")
        resource = more.pop("resource", SHARE)
        more.setdefault("socket", f"p{len(self.plugins)}.sock")
        made = ScriptedPlugin(self.kubelet.settings.plugin_folder, resource, dict(devices), **more)
        self.plugins.append(made)
        await self.stack.enter_async_context(made)
        if devices:
            await self.until_node(
                lambda node: (
                    amount(node, "capacity", resource) == len(devices)
                    and amount(node, "allocatable", resource)
                    == sum(health == "Healthy" for health in devices.values())
                )
            )
        return made

    async def create(self, item: dict[str, Any]) -> dict[str, Any]:
        return await self.client.create(PODS, item)

    async def run(self, item: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
        """Create a pod and return it once it has that phase."""
        await self.create(item)
        return await self.until_phase(item["metadata"]["name"], phase)

    async def until_phase(self, name: str, phase: str) -> dict[str, Any]:
        return await self.until_pod(name, lambda one: one["status"].get("phase") == phase)

    async def until_pod(
        self, name: str, accept: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """The pod, as soon as it satisfies."""

        def satisfied(_: object) -> bool:
            item = self.pods.get(name, namespace="default")
            return item is not None and accept(item)

        try:
            async with asyncio.timeout(10):
                await self.pods.until(satisfied)
        except TimeoutError:
            item = self.pods.get(name, namespace="default")
            raise AssertionError(f"pod {name} is {item and item.get('status')}") from None
        found = self.pods.get(name, namespace="default")
        assert found is not None
        return found

    async def until_gone(self, name: str) -> None:
        async with asyncio.timeout(10):
            await self.pods.until(lambda pods: pods.get(name, namespace="default") is None)

    async def until_node(self, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The node, as soon as it satisfies."""
        name = self.kubelet.settings.name

        def satisfied(_: object) -> bool:
            item = self.nodes.get(name)
            return item is not None and accept(item)

        try:
            async with asyncio.timeout(10):
                await self.nodes.until(satisfied)
        except TimeoutError:
            item = self.nodes.get(name)
            raise AssertionError(f"node is {item and item.get('status')}") from None
        found = self.nodes.get(name)
        assert found is not None
        return found

    async def until_offer(
        self, capacity: int, allocatable: int, resource: str = SHARE
    ) -> dict[str, Any]:
        return await self.until_node(
            lambda node: (
                amount(node, "capacity", resource) == capacity
                and amount(node, "allocatable", resource) == allocatable
            )
        )

    async def delete(self, name: str) -> None:
        await self.client.delete(PODS, name, namespace="default")
        await self.until_gone(name)

    async def pod_resources(self) -> dict[str, dict[str, list[str]]]:
        """Device ids by pod and container, as PodResources tells them."""
        async with self.lister() as stub:
            answer = await stub.List(podresources_pb2.ListPodResourcesRequest(), timeout=5)
        return {
            one.name: {
                inner.name: [id_ for device in inner.devices for id_ in device.device_ids]
                for inner in one.containers
            }
            for one in answer.pod_resources
        }

    @asynccontextmanager
    async def lister(self) -> AsyncIterator[Any]:
        address = f"unix:{self.kubelet.settings.pod_resources_socket}"
        async with grpc.aio.insecure_channel(address) as channel:
            yield PodResourcesListerStub(channel)

    def holding(self, name: str, inner: str = "main") -> tuple[str, ...]:
        """What a container holds, by the kubelet's own book."""
        item = self.pods.get(name, namespace="default")
        assert item is not None
        held = self.kubelet.ledger.of(item["metadata"]["uid"], inner)
        return tuple(id_ for one in held.values() for id_ in one.devices)


def amount(node: dict[str, Any], side: str, resource: str) -> int:
    """What a node offers of a resource; -1 where it has no such key."""
    value = node["status"].get(side, {}).get(resource)
    return -1 if value is None else int(value)


@asynccontextmanager
async def bench(folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A fresh API server with one node ``n1``, whose time stands still."""
    clock = ManualClock()
    cdi = folder / "cdi"
    cdi.mkdir()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer())
        token = server.kubeconfig()["users"][0]["user"]["token"]

        async def source() -> credentials.Access:
            return credentials.Access(
                server=server.url, origin="test", authorization=f"Bearer {token}"
            )

        client = await stack.enter_async_context(Client(source))
        pods = await stack.enter_async_context(Cache(client, PODS, whole))
        nodes = await stack.enter_async_context(Cache(client, NODES, whole))
        chosen = Settings(name="n1", root=folder / "k", cdi_folders=(cdi,), **settings)
        kubelet = await stack.enter_async_context(Kubelet(client, chosen, clock=clock))
        inner = await stack.enter_async_context(AsyncExitStack())
        yield Bench(
            server=server,
            client=client,
            kubelet=kubelet,
            clock=clock,
            pods=pods,
            nodes=nodes,
            folder=folder,
            stack=inner,
        )
