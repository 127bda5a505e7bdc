"""The kubelet's PodResources socket: what is offered, and who holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import structlog

from sharing.errors import UnavailableError
from sharing.node import checkpoint
from sharing.node.checkpoint import Checkpoint, PodName
from sharing.node.held import Held, Hold, Holder
from sharing.node.plan import Kubelet
from sharing.node.settings import Tempo
from sharing.node.target import Offered
from sharing.plugin.admissions import Admissions
from sharing.plugin.proto import podresources_pb2 as api
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub

if TYPE_CHECKING:
    from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerAsyncStub

_log: Final = structlog.get_logger()
SOCKET_NAME: Final = "kubelet.sock"
_NOT_FOUND: Final = "not found"
"""How the kubelet's words end for a pod that it does not have; all errors have one code."""
_FIRST_POLL_S: Final = 0.01
_LONGEST_POLL_S: Final = 0.2
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 << 20),
    # Without it a kubelet that restarts is found again only after a back-off of minutes.
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class PodResources:
    """A connection to the kubelet's PodResources service, made anew when it breaks.

    Args:
        socket: The kubelet's socket.
        checkpoint_folder: Where the kubelet's checkpoint lies.
        admissions: Those that our plugins answer; nothing is listed meanwhile.
        timeout_s: Limit of one question.
    """

    def __init__(
        self,
        socket: Path,
        checkpoint_folder: Path,
        admissions: Admissions,
        *,
        timeout_s: float = 5.0,
    ) -> None:
        self._socket = socket
        self._checkpoint = Checkpoint(checkpoint_folder)
        self._admissions = admissions
        self._timeout_s = timeout_s
        self._channel: grpc.aio.Channel | None = None
        self.entries: tuple[checkpoint.Entry, ...] = ()
        """The kubelet's checkpoint as of the last view: it knows pods by uid."""
        self.listed: tuple[Hold, ...] = ()
        """What PodResources listed at the last view."""

    async def view(self, pods: Mapping[str, PodName] | None = None) -> Kubelet:
        """What the kubelet offers and who holds it.

        What is offered is read first, so that a share which is offered no longer has its last
        holder in the list.

        Args:
            pods: Pods of this node that are not finished, by uid; None if nobody can tell.

        Raises:
            UnavailableError: The kubelet does not answer.
        """
        stub = self._stub()
        try:
            allocatable = await stub.GetAllocatableResources(
                api.AllocatableResourcesRequest(), timeout=self._timeout_s
            )
            async with self._admissions.listing():
                answer = await stub.List(api.ListPodResourcesRequest(), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            await self.close()
            raise UnavailableError(
                f"kubelet at {self._socket}",
                f"it does not answer: {error.details() or error.code().name}",
                fix="check that the kubelet runs and that its pod-resources folder is mounted",
            ) from error
        listed = self.listed = tuple(_holds(answer.pod_resources))
        entries = self.entries = await self.assigned()
        offered = frozenset(
            Offered(device.resource_name, device_id)
            for device in allocatable.devices
            for device_id in device.device_ids
        )
        held = Held.of((*listed, *checkpoint.unlisted(entries, listed, pods)))
        return Kubelet(held=held, offered=offered)

    async def assigned(self) -> tuple[checkpoint.Entry, ...]:
        """The kubelet's checkpoint as it is now.

        Raises:
            UnavailableError: It cannot be read or understood.
        """
        return await asyncio.to_thread(self._checkpoint.entries)

    async def holds_of(self, pod: PodName, *, tries: int = 20) -> tuple[Hold, ...]:
        """What one pod's containers hold in the kubelet's memory now; nothing if it has ended.

        Unlike a list this may be asked at any time: it changes nothing in the kubelet.

        Args:
            pod: Which pod.
            tries: How often a kubelet is asked that others ask too often.

        Raises:
            UnavailableError: The kubelet does not answer, or not this question (before 1.34).
        """
        request = api.GetPodResourcesRequest(pod_name=pod.name, pod_namespace=pod.namespace)
        try:
            answer = await self._stub().Get(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and tries > 1:
                # A hundred calls a second are answered, whoever asks: somebody asks too much.
                await asyncio.sleep(_FIRST_POLL_S)
                return await self.holds_of(pod, tries=tries - 1)
            why = error.details() or error.code().name
            if why.endswith(_NOT_FOUND):
                return ()
            raise UnavailableError(
                f"kubelet at {self._socket}",
                f"it does not say what pod {pod.namespace}/{pod.name} holds: {why}",
                fix="run Kubernetes 1.34 or later, or turn on its gate KubeletPodResourcesGet",
            ) from error
        return tuple(_holds([answer.pod_resources]))

    async def until_withdrawn(self, gone: AbstractSet[Offered], *, timeout_s: float) -> bool:
        """Wait until the kubelet counts none of these shares; False when time ran out.

        Raises:
            UnavailableError: The kubelet does not answer.
        """
        poll_s = _FIRST_POLL_S
        try:
            async with asyncio.timeout(timeout_s):
                while (await self.view()).offered & gone:
                    await asyncio.sleep(poll_s)
                    poll_s = min(poll_s * 2, _LONGEST_POLL_S)
        except TimeoutError:
            return False
        return True

    async def agrees(self, gone: AbstractSet[Offered], tempo: Tempo) -> bool:
        """Wait until the kubelet counts none of these shares and lists who got one before.

        Raises:
            UnavailableError: The kubelet does not answer.
        """
        if not await self.until_withdrawn(gone, timeout_s=tempo.withdrawal_s):
            _log.warning("kubelet still counts withdrawn shares", shares=len(gone))
            return False
        await asyncio.sleep(tempo.admission_s)
        return True

    async def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _stub(self) -> PodResourcesListerAsyncStub:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=_OPTIONS)
        return PodResourcesListerStub(self._channel)


def _holds(pods: Iterable[api.PodResources]) -> list[Hold]:
    return [
        Hold(
            device_id=device_id,
            resource=device.resource_name,
            holder=Holder(namespace=pod.namespace, pod=pod.name, container=container.name),
        )
        for pod in pods
        for container in pod.containers
        for device in container.devices
        for device_id in device.device_ids
    ]
