"""A kubelet's calls to one plugin socket, timed."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
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
        self._socket = socket
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self._stub: DevicePluginAsyncStub = DevicePluginStub(self._channel)
        self._unhealthy: dict[str, int] = {}
        self._heard_at = 0.0
        self._changed = asyncio.Event()
        self._listener: threading.Thread | None = None
        self._lists: grpc.Channel | None = None

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
        if self._lists is not None and self._listener is not None:
            self._lists.close()
            await asyncio.to_thread(self._listener.join)
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
        """Open a stream of lists, and wait for the first.

        It is heard in a thread of its own: the embedded kubelet lives in this event loop and
        takes in the same list, which is no part of what the agent takes.
        """
        loop = asyncio.get_running_loop()
        self._lists = grpc.insecure_channel(f"unix:{self._socket}")
        lists = DevicePluginStub(self._lists).ListAndWatch(pb.Empty())
        self._listener = threading.Thread(target=self._listen, args=(loop, lists), daemon=True)
        self._listener.start()
        async with asyncio.timeout(_PATIENCE_S):
            await self._changed.wait()

    async def until_unhealthy(self, gpu_uuid: str, shares: int) -> float:
        """Wait for a list in which so many shares of a GPU are unhealthy; when it came."""
        async with asyncio.timeout(_PATIENCE_S):
            while self._unhealthy.get(gpu_uuid, 0) < shares:
                self._changed.clear()
                await self._changed.wait()
        return self._heard_at

    def _listen(
        self, loop: asyncio.AbstractEventLoop, lists: Iterable[pb.ListAndWatchResponse]
    ) -> None:
        with suppress(grpc.RpcError):  # cancelled at the end
            for message in lists:
                now = time.perf_counter()
                counts = Counter(
                    one.ID.partition("::")[0] for one in message.devices if one.health != "Healthy"
                )
                loop.call_soon_threadsafe(self._heard, now, counts)

    def _heard(self, at: float, unhealthy: dict[str, int]) -> None:
        self._heard_at, self._unhealthy = at, unhealthy
        self._changed.set()


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]
