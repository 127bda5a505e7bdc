"""A device plugin that does what a test tells it, over real gRPC on a unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from sharing.plugin.proto import deviceplugin_pb2 as api
from sharing.plugin.proto.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

Preference = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]


async def register(
    folder: Path, resource: str, endpoint: str, *, version: str = "v1beta1", timeout_s: float = 10
) -> None:
    """Call Register on a kubelet; raises grpc's error where it refuses."""
    async with grpc.aio.insecure_channel(f"unix:{folder}/kubelet.sock") as channel:
        await RegistrationStub(channel).Register(
            api.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource),
            timeout=timeout_s,
        )


@dataclass
class ScriptedPlugin(DevicePluginServicer):
    """One plugin for one resource; an async context manager that serves and registers.

    Attributes:
        folder: The kubelet's socket folder.
        resource: What it serves.
        devices: Health by device id.
        socket: Its socket's file name.
        numa: NUMA node by device id.
        answers: What Allocate returns for a device, by id; merged for several.
        prefer: Its preferred allocation; None to give none.
        pre_start_required: Whether PreStartContainer is asked for.
        allocate_error: Text of the error that Allocate raises; empty for none.
        pre_start_error: The same for PreStartContainer.
    """

    folder: Path
    resource: str
    devices: dict[str, str]
    socket: str = "plugin.sock"
    numa: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, api.ContainerAllocateResponse] = field(default_factory=dict)
    prefer: Preference | None = None
    pre_start_required: bool = False
    allocate_error: str = ""
    pre_start_error: str = ""
    allocated: list[list[str]] = field(default_factory=list)
    preferred: list[tuple[list[str], list[str], int]] = field(default_factory=list)
    started: list[list[str]] = field(default_factory=list)
    streams: int = 0
    streams_ended: asyncio.Event = field(default_factory=asyncio.Event)
    allocate_gate: asyncio.Event | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.serve()
        await register(self.folder, self.resource, self.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def serve(self) -> None:
        self._server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder / self.socket}")
        await self._server.start()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def show(self, **devices: str) -> None:
        """Send a new list."""
        async with self._changed:
            self.devices = devices
            self._changed.notify_all()

    async def GetDevicePluginOptions(  # noqa: N802 - the protocol's name
        self, request: api.Empty, context: Any
    ) -> api.DevicePluginOptions:
        del request, context
        return api.DevicePluginOptions(
            pre_start_required=self.pre_start_required,
            get_preferred_allocation_available=self.prefer is not None,
        )

    async def ListAndWatch(  # noqa: N802 - the protocol's name
        self, request: api.Empty, context: Any
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        del request, context
        self.streams += 1
        try:
            while True:
                async with self._changed:
                    shown = dict(self.devices)
                yield api.ListAndWatchResponse(
                    devices=[self._device(id_, health) for id_, health in shown.items()]
                )
                async with self._changed:
                    await self._changed.wait_for(lambda: self.devices != shown)  # noqa: B023
        finally:
            self.streams_ended.set()

    def _device(self, id_: str, health: str) -> api.Device:
        topology = None
        if id_ in self.numa:
            topology = api.TopologyInfo(nodes=[api.NUMANode(ID=self.numa[id_])])
        return api.Device(ID=id_, health=health, topology=topology)

    async def GetPreferredAllocation(  # noqa: N802 - the protocol's name
        self, request: api.PreferredAllocationRequest, context: Any
    ) -> api.PreferredAllocationResponse:
        del context
        assert self.prefer is not None
        asked = request.container_requests[0]
        question = (
            list(asked.available_deviceIDs),
            list(asked.must_include_deviceIDs),
            asked.allocation_size,
        )
        self.preferred.append(question)
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=self.prefer(*question))
        return api.PreferredAllocationResponse(container_responses=[answer])

    async def Allocate(  # noqa: N802 - the protocol's name
        self, request: api.AllocateRequest, context: Any
    ) -> api.AllocateResponse:
        if self.allocate_gate is not None:
            await self.allocate_gate.wait()
        if self.allocate_error:
            await context.abort(grpc.StatusCode.INTERNAL, self.allocate_error)
        merged = api.ContainerAllocateResponse()
        for container in request.container_requests:
            self.allocated.append(list(container.devices_ids))
            for id_ in container.devices_ids:
                default = api.ContainerAllocateResponse(envs={"DEVICE": id_})
                merged.MergeFrom(self.answers.get(id_, default))
        return api.AllocateResponse(container_responses=[merged])

    async def PreStartContainer(  # noqa: N802 - the protocol's name
        self, request: api.PreStartContainerRequest, context: Any
    ) -> api.PreStartContainerResponse:
        self.started.append(list(request.devices_ids))
        if self.pre_start_error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self.pre_start_error)
        return api.PreStartContainerResponse()
