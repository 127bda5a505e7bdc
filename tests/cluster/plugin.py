"""A device plugin of the tests, to judge the node itself without the product.

Protocol: kubelet device plugin v1beta1.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpc import aio

from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.proto.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

_REGISTER_TIMEOUT_S = 10.0


class SmallPlugin(DevicePluginServicer):
    """Serves one resource while it is entered.

    Args:
        folder: The kubelet's folder of device plugins.
        resource: Such as ``test.example/thing``.
        devices: Health by device id; change it with ``set``.
        cdi_kind: Each device is answered as the CDI device ``KIND=ID``; empty for none.
    """

    def __init__(
        self, folder: Path, resource: str, devices: Mapping[str, str], *, cdi_kind: str = ""
    ) -> None:
        self._folder = folder
        self._resource = resource
        self._devices = dict(devices)
        self._cdi_kind = cdi_kind
        self._changed = asyncio.Condition()
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        self._endpoint = re.sub(r"[^a-z0-9.-]+", "-", resource) + ".sock"
        self.allocated: list[list[str]] = []
        """Device ids of each container that was asked for, in order."""

    async def __aenter__(self) -> Self:
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._folder / self._endpoint}")
        await self._server.start()
        await self.register()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop(grace=None)

    async def register(self) -> None:
        """Tell the kubelet that we serve."""
        request = pb.RegisterRequest(
            version="v1beta1", endpoint=self._endpoint, resource_name=self._resource
        )
        async with aio.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as channel:
            await RegistrationStub(channel).Register(request, timeout=_REGISTER_TIMEOUT_S)

    async def set(self, devices: Mapping[str, str]) -> None:
        """Offer other devices, or the same with other health."""
        async with self._changed:
            self._devices = dict(devices)
            self._changed.notify_all()

    # The names of methods and parameters are the protocol's.

    async def GetDevicePluginOptions(  # noqa: N802
        self, request: pb.Empty, context: Any
    ) -> pb.DevicePluginOptions:
        del request, context
        return pb.DevicePluginOptions()

    async def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: Any
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        del request, context
        while True:
            async with self._changed:
                listed = [pb.Device(ID=key, health=val) for key, val in self._devices.items()]
                yield pb.ListAndWatchResponse(devices=listed)
                await self._changed.wait()

    async def GetPreferredAllocation(  # noqa: N802
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        raise NotImplementedError  # our options say that the kubelet shall not ask

    async def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: Any
    ) -> pb.PreStartContainerResponse:
        raise NotImplementedError  # as above

    async def Allocate(  # noqa: N802
        self, request: pb.AllocateRequest, context: Any
    ) -> pb.AllocateResponse:
        del context
        answers = []
        for container in request.container_requests:
            ids = list(container.devices_ids)
            self.allocated.append(ids)
            names = [f"{self._cdi_kind}={each}" for each in ids] if self._cdi_kind else []
            answers.append(
                pb.ContainerAllocateResponse(
                    envs={"ALLOCATED": ",".join(ids)},
                    cdi_devices=[pb.CDIDevice(name=name) for name in names],
                )
            )
        return pb.AllocateResponse(container_responses=answers)
