"""One registered plugin, seen from the kubelet: a connection to its socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from embedded.errors import EmbeddedError
from sharing.plugin.proto import deviceplugin_pb2 as api
from sharing.plugin.proto.deviceplugin_pb2_grpc import DevicePluginStub

if TYPE_CHECKING:
    from sharing.plugin.proto.deviceplugin_pb2_grpc import DevicePluginAsyncStub

DIAL_TIMEOUT_S: Final = 10.0
PRE_START_TIMEOUT_S: Final = 30.0
LONGEST_SOCKET: Final = 107
"""Bytes that a unix socket's path may have (Linux, ``sun_path`` less its end mark)."""
_SOCKET_PERIOD_S: Final = 0.05
# Plugins come and go at the same path; a connection of its own for each registration
# inherits no back-off from the one before.
_CHANNEL_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1),)


class PluginError(EmbeddedError):
    """A plugin refused a call or did not answer; the text is what the kubelet says."""

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> PluginError:
        """The error as Go's gRPC library words it."""
        name = "".join(part.capitalize() for part in error.code().name.split("_"))
        return cls("", f"rpc error: code = {name} desc = {error.details() or ''}")


class Endpoint:
    """A plugin's connection.

    Attributes:
        resource: What it serves.
        path: Its socket.
        options: What it answered to GetDevicePluginOptions.
        stopped_at: When its stream ended, on the kubelet's clock; None while it runs.
    """

    def __init__(self, resource: str, path: Path) -> None:
        self.resource = resource
        self.path = path
        self.options = api.DevicePluginOptions()
        self.stopped_at: float | None = None
        self._channel: grpc.aio.Channel | None = None

    async def dial(self, timeout_s: float) -> None:
        """Connect and ask for the options.

        Raises:
            PluginError: If nobody listens within the time, or the call fails.
        """
        try:
            async with asyncio.timeout(timeout_s):
                # A channel to something that cannot be dialled at all never settles, and
                # then keeps gRPC's poller from ending; so it is made for sockets only.
                while not _is_socket(self.path):  # noqa: ASYNC110 - files raise no event
                    await asyncio.sleep(_SOCKET_PERIOD_S)
                self._channel = grpc.aio.insecure_channel(
                    f"unix:{self.path}", options=_CHANNEL_OPTIONS
                )
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise PluginError(
                "",
                f"failed to dial device plugin with socketPath {self.path}: "
                "context deadline exceeded",
            ) from error
        with _worded():
            self.options = await self._stub.GetDevicePluginOptions(api.Empty(), timeout=timeout_s)

    @property
    def _stub(self) -> DevicePluginAsyncStub:
        if self._channel is None:
            raise PluginError("", f"endpoint {self.resource} was never connected")
        return DevicePluginStub(self._channel)

    async def lists(self) -> AsyncIterator[Sequence[api.Device]]:
        """The plugin's device lists, until its stream ends.

        Raises:
            PluginError: If it ends otherwise than by the plugin's return.
        """
        try:
            async for response in self._stub.ListAndWatch(api.Empty()):
                yield response.devices
        except grpc.aio.AioRpcError as error:
            raise PluginError.of(error) from error

    async def advise(
        self, available: Collection[str], must_include: Collection[str], size: int
    ) -> Sequence[str]:
        """The plugin's preferred devices; there is no time limit, as upstream has none.

        Raises:
            PluginError: If the plugin is gone or refuses.
        """
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=sorted(available),
                    must_include_deviceIDs=sorted(must_include),
                    allocation_size=size,
                )
            ]
        )
        self._check_runs()
        with _worded():
            response = await self._stub.GetPreferredAllocation(request)
        answers = response.container_responses
        return list(answers[0].deviceIDs) if answers else []

    async def allocate(self, devices: Collection[str]) -> api.ContainerAllocateResponse:
        """What a container that gets these devices needs; without a time limit, too.

        Raises:
            PluginError: If the plugin is gone, refuses, or answers for no container.
        """
        self._check_runs()
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=sorted(devices))]
        )
        with _worded():
            response = await self._stub.Allocate(request)
        if not response.container_responses:
            raise PluginError("", "no containers return in allocation response")
        return response.container_responses[0]

    async def pre_start(self, devices: Collection[str]) -> None:
        """Tell the plugin that a container with these devices is about to start.

        Raises:
            PluginError: If the plugin is gone or objects.
        """
        self._check_runs()
        request = api.PreStartContainerRequest(devices_ids=sorted(devices))
        with _worded():
            await self._stub.PreStartContainer(request, timeout=PRE_START_TIMEOUT_S)

    async def close(self) -> None:
        """Cut the connection; the plugin sees its stream end."""
        if self._channel is not None:
            await self._channel.close()

    def _check_runs(self) -> None:
        if self.stopped_at is not None:
            raise PluginError("", f"endpoint {self.resource} has been stopped")


@contextmanager
def _worded() -> Iterator[None]:
    """Failures of a call in a plugin's words.

    Closing the connection under a call looks to the caller as if it had been cancelled itself
    (grpc.aio); to the kubelet it is an answer like any other.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise PluginError.of(error) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PluginError(
            "", "rpc error: code = Canceled desc = grpc: the client connection is closing"
        ) from None


def _is_socket(path: Path) -> bool:
    """Whether a plugin could listen there; the name comes from the plugin, so anything goes."""
    try:
        return len(bytes(path)) <= LONGEST_SOCKET and path.is_socket()
    except OSError:
        return False
