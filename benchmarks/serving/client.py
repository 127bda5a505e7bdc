"""A kubelet's calls to one plugin socket, timed."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import grpc

from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.proto.deviceplugin_pb2_grpc import DevicePluginStub
from tests.support.agent_bench import NodeBench

if TYPE_CHECKING:
    from sharing.plugin.proto.deviceplugin_pb2_grpc import DevicePluginAsyncStub

_PATIENCE_S: Final = 30.0


class PluginClient:
    """A connection to the socket of one share class; an async context manager.

    Args:
        socket: Where the class is served.
    """

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self._stub: DevicePluginAsyncStub = DevicePluginStub(self._channel)
        self._unhealthy: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, node: NodeBench, resource: str) -> PluginClient:
        """A client of the newest socket of a class."""
        token = resource.partition("/")[2]
        found = (node.folder / "k" / "device-plugins").glob(f"gpu-sharing-{token}-*.sock")
        return cls(max(found, key=lambda path: path.stat().st_mtime_ns))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    async def allocate(self, device_id: str) -> float:
        """Milliseconds of one Allocate for one container with one share."""
        one = pb.ContainerAllocateRequest(devices_ids=[device_id])
        request = pb.AllocateRequest(container_requests=[one])
        began = time.perf_counter()
        answer = await self._stub.Allocate(request, timeout=_PATIENCE_S)
        took_ms = 1000 * (time.perf_counter() - began)
        assert len(answer.container_responses) == 1
        return took_ms

    async def preferred(self, free: Sequence[str]) -> float:
        """Milliseconds of one GetPreferredAllocation for one share."""
        one = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=1)
        request = pb.PreferredAllocationRequest(container_requests=[one])
        began = time.perf_counter()
        answer = await self._stub.GetPreferredAllocation(request, timeout=_PATIENCE_S)
        took_ms = 1000 * (time.perf_counter() - began)
        assert len(answer.container_responses[0].deviceIDs) == 1
        return took_ms

    async def listening(self) -> None:
        """Open a stream of lists, and wait for the first."""
        self._task = asyncio.create_task(self._listen())
        async with asyncio.timeout(_PATIENCE_S):
            await self._changed.wait()

    async def until_unhealthy(self, gpu_uuid: str, shares: int) -> None:
        """Wait for a list in which so many shares of a GPU are unhealthy."""
        async with asyncio.timeout(_PATIENCE_S):
            while self._unhealthy.get(gpu_uuid, 0) < shares:
                self._changed.clear()
                await self._changed.wait()

    async def _listen(self) -> None:
        async for message in self._stub.ListAndWatch(pb.Empty()):
            counts: dict[str, int] = {}
            for device in message.devices:
                if device.health != "Healthy":
                    uuid = device.ID.partition("::")[0]
                    counts[uuid] = counts.get(uuid, 0) + 1
            self._unhealthy = counts
            self._changed.set()


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]
