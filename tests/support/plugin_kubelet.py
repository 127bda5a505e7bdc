"""The kubelet's side of the device plugin protocol, small and real: gRPC over unix sockets.

Calls back inside Register, keeps one stream for each resource, deletes plugin sockets when it
starts, as kubelets do. Kubelets before 1.36 key plugins by resource name alone, so that the late
end of an old stream takes the new plugin's devices away (kubernetes#121994): ``by_name``.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.proto.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)

if TYPE_CHECKING:  # known to type checkers only
    from sharing.plugin.proto.deviceplugin_pb2_grpc import DevicePluginAsyncStub


@dataclass
class Endpoint:
    """One registered plugin socket."""

    name: str
    channel: aio.Channel
    options: pb.DevicePluginOptions
    lists: list[dict[str, str]] = field(default_factory=list)
    devices: list[pb.Device] = field(default_factory=list)
    stream: asyncio.Task[None] | None = None
    ended: bool = False


class PluginKubelet(RegistrationServicer):
    """One kubelet that lives and dies at a socket folder."""

    def __init__(self, folder: Path, *, by_name: bool = False) -> None:
        self.folder = folder
        self.by_name = by_name
        self.forgets_streams = 0
        """How many registrations from now on get no ListAndWatch."""
        self.refusals: list[str] = []
        """Texts with which the next registrations are refused."""
        self.requests: list[pb.RegisterRequest] = []
        self.endpoints: dict[str, Endpoint] = {}
        self.healthy: dict[str, set[str]] = {}
        """What counts as allocatable, by resource."""
        self._all: list[Endpoint] = []
        self._server: aio.Server | None = None
        self._changed = asyncio.Condition()

    @property
    def socket(self) -> Path:
        return self.folder / "kubelet.sock"

    async def start(self, *, clears: bool = True) -> None:
        """Live; a kubelet that finds a clean folder deletes no sockets but its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path == self.socket or (clears and stat.S_ISSOCK(path.lstat().st_mode)):
                path.unlink()
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        """Die: streams break, the socket file stays behind."""
        for endpoint in self._all:
            if endpoint.stream is not None:
                endpoint.stream.cancel()
                await asyncio.gather(endpoint.stream, return_exceptions=True)
            await endpoint.channel.close()
        self._all.clear()
        self.endpoints.clear()
        self.healthy.clear()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:  # noqa: N802
        self.requests.append(request)
        await self._notify()
        if self.refusals:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refusals.pop(0))
        if request.version != "v1beta1" or "/" in request.endpoint:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad version or endpoint")
        known = self.endpoints.get(request.resource_name)
        if known is not None and known.name == request.endpoint:
            await context.abort(grpc.StatusCode.UNKNOWN, "device plugin already connected")
        channel = aio.insecure_channel(f"unix:{self.folder / request.endpoint}")
        options = await DevicePluginStub(channel).GetDevicePluginOptions(pb.Empty(), timeout=10)
        endpoint = Endpoint(request.endpoint, channel, options)
        self._all.append(endpoint)
        self.endpoints[request.resource_name] = endpoint
        if self.forgets_streams:
            self.forgets_streams -= 1
        else:
            endpoint.stream = asyncio.create_task(self._listen(request.resource_name, endpoint))
        return pb.Empty()

    async def _listen(self, resource: str, endpoint: Endpoint) -> None:
        with suppress(grpc.RpcError):
            async for answer in DevicePluginStub(endpoint.channel).ListAndWatch(pb.Empty()):
                endpoint.devices = list(answer.devices)
                endpoint.lists.append({one.ID: one.health for one in answer.devices})
                self.healthy[resource] = {
                    one.ID for one in answer.devices if one.health == "Healthy"
                }
                await self._notify()
        endpoint.ended = True
        if self.by_name or self.endpoints.get(resource) is endpoint:
            self.healthy[resource] = set()
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, met: Callable[[], bool], timeout_s: float = 20.0) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(met)

    async def until_healthy(self, resource: str, ids: set[str], timeout_s: float = 20.0) -> None:
        await self.until(lambda: self.healthy.get(resource) == ids, timeout_s)

    def stub(self, resource: str) -> DevicePluginAsyncStub:
        return DevicePluginStub(self.endpoints[resource].channel)

    async def allocate(self, resource: str, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)]
        )
        answer: pb.AllocateResponse = await self.stub(resource).Allocate(request, timeout=10)
        return answer.container_responses[0]

    async def preferred(
        self, resource: str, available: Sequence[str], must: Sequence[str], size: int
    ) -> list[str]:
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[one])
        answer: pb.PreferredAllocationResponse = await self.stub(resource).GetPreferredAllocation(
            request, timeout=10
        )
        return list(answer.container_responses[0].deviceIDs)

    async def pre_start(self, resource: str, ids: Sequence[str]) -> None:
        await self.stub(resource).PreStartContainer(
            pb.PreStartContainerRequest(devices_ids=ids), timeout=10
        )
