"""What the kubelet may ask of one share class, and what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import grpc
import structlog

from sharing.errors import GpuSharingError, shown
from sharing.mode import Mode
from sharing.plugin.admissions import Admissions
from sharing.plugin.allocation import ContainerAnswer, allocate
from sharing.plugin.binding import ShareBinding
from sharing.plugin.cdistore import CdiStore
from sharing.plugin.errors import AllocationError, PluginError
from sharing.plugin.messages import container_answer, device_list
from sharing.plugin.offer import Offer
from sharing.plugin.preference import prefer
from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.proto.deviceplugin_pb2_grpc import DevicePluginServicer
from sharing.plugin.settings import AnswerSettings
from sharing.plugin.tally import Refusal, Tally

WhyNotReady = Callable[[ShareBinding], str | None]
"""Why a container that holds this share cannot start yet; None when it can.

Asked from PreStartContainer only, whose error lets the container wait and is retried. Must
answer at once.
"""

WhoHolds = Callable[[str, Collection[str]], Awaitable[Mapping[str, str]]]
"""Which of these devices of a resource a container holds now, for certain, and who that is.

Asked while a container is to get them. Says nothing where it cannot be known, and never fails.
"""

_CDI_WRITE_S: Final = 3.0
_MOST_ADVICE: Final = 8
"""How often advice is thought over because what was chosen turns out to be held."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What all classes of a node share when they answer."""

    settings: AnswerSettings
    cdi: CdiStore | None
    why_not_ready: WhyNotReady | None
    links: Callable[[], Mapping[frozenset[str], int]]
    """Closeness of GPU pairs as it is known now; see ``preference``."""
    who_holds: WhoHolds
    tally: Tally = field(default_factory=Tally)
    admissions: Admissions = field(default_factory=Admissions)


def options_of(mode: Mode) -> pb.DevicePluginOptions:
    """What the kubelet should call.

    PreStartContainer only where there is something to wait for: with it, no container of the
    class can restart while the agent is away.
    """
    return pb.DevicePluginOptions(
        pre_start_required=mode is Mode.MPS, get_preferred_allocation_available=True
    )


class ClassServicer(DevicePluginServicer):
    """Answers for one class on one socket.

    Args:
        offer: What the class offers.
        answers: How to answer.
    """

    def __init__(self, offer: Offer, answers: Answers) -> None:
        self._offer = offer
        self._answers = answers
        self._closing = False
        self._sent: dict[object, int] = {}
        self.streams_seen = 0

    @property
    def streams_open(self) -> int:
        """How many ListAndWatch calls are under way."""
        return len(self._sent)

    def has_sent(self, version: int) -> bool:
        """Whether every open stream carries this version or a later one, and there is one."""
        return bool(self._sent) and min(self._sent.values()) >= version

    def close(self) -> None:
        """Let all streams end after the list that they owe."""
        self._closing = True
        self._offer.wake()

    async def GetDevicePluginOptions(  # noqa: N802 - the protocol's name
        self, request: pb.Empty, context: Any
    ) -> pb.DevicePluginOptions:
        """What the kubelet should call."""
        del request, context
        return options_of(self._offer.mode)

    async def ListAndWatch(  # type: ignore[override]  # noqa: N802 - the protocol's name
        self, request: pb.Empty, context: Any
    ) -> None:
        """Tell the list now and after each change, until either side ends.

        Writes instead of yielding: then the end of a write is known, and a cancelled call is
        cleaned up at once.
        """
        del request
        stream = object()
        self._sent[stream] = -1
        self.streams_seen += 1
        self._offer.wake()
        try:
            while True:
                version = self._offer.version
                if self._sent[stream] < version:
                    await context.write(device_list(self._offer))
                    self._sent[stream] = version
                    self._offer.wake()
                elif self._closing:
                    return
                else:
                    await self._offer.until(
                        lambda: self._closing or self._offer.version > self._sent[stream]
                    )
        finally:
            del self._sent[stream]
            self._offer.wake()

    async def GetPreferredAllocation(  # noqa: N802 - the protocol's name
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        """Advise; never an error, which would fail the pod."""
        del context
        async with self._answers.admissions.answering():
            chosen = [await self._preferred(one) for one in request.container_requests]
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen
            ]
        )

    async def _preferred(self, one: pb.ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        """The ids to take; none that is held, whatever the kubelet takes for free.

        So a kubelet that has lost count does no harm as long as a share is really free.
        """
        free, must = list(one.available_deviceIDs), list(one.must_include_deviceIDs)
        chosen: tuple[str, ...] = ()
        for _ in range(_MOST_ADVICE):
            chosen = prefer(
                free,
                must,
                one.allocation_size,
                known=self._offer.known,
                packing=self._answers.settings.packing,
                links=self._answers.links(),
            )
            held = await self._held([one for one in chosen if one not in must])
            if not held:
                break
            free = [one for one in free if one not in held]
        return chosen

    async def _held(self, device_ids: Collection[str]) -> Mapping[str, str]:
        held = await self._answers.who_holds(self._offer.resource, device_ids)
        if held:
            _log.warning(
                "kubelet takes held shares for free", resource=self._offer.resource, held=dict(held)
            )
        return held

    async def Allocate(  # noqa: N802 - the protocol's name
        self, request: pb.AllocateRequest, context: Any
    ) -> pb.AllocateResponse:
        """Say what containers with these shares need."""
        async with self._answers.admissions.answering():
            return await self._allocated(request, context)

    async def _allocated(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        asked = {one for each in request.container_requests for one in each.devices_ids}
        held = await self._held(asked)
        try:
            answers = [
                allocate(
                    self._offer.resource,
                    list(one.devices_ids),
                    self._offer.known,
                    self._answers.settings,
                    held=held,
                )
                for one in request.container_requests
            ]
        except PluginError as error:
            _log.warning("allocation was refused", resource=self._offer.resource, reason=str(error))
            self._answers.tally.refused(self._offer.resource, error)
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        for answer in answers:
            await self._on_disk(answer)
        self._answers.tally.allocated(self._offer.resource, len(answers))
        _log.info(
            "shares were allocated",
            resource=self._offer.resource,
            devices=[one.device_id for answer in answers for one in answer.bindings],
        )
        return pb.AllocateResponse(
            container_responses=[container_answer(answer) for answer in answers]
        )

    async def _on_disk(self, answer: ContainerAnswer) -> None:
        """Have the CDI device written.

        A failure is not the pod's: its container waits at the runtime, which tries again, while
        an error here would fail the pod for good.
        """
        if self._answers.cdi is None or answer.cdi is None:
            return
        try:
            async with asyncio.timeout(_CDI_WRITE_S):
                await asyncio.to_thread(self._answers.cdi.ensure, answer.cdi, answer.bindings)
        except (PluginError, TimeoutError) as error:
            _log.error(
                "CDI device was not written",
                device=answer.cdi.qualified_name,
                reason=str(error) or f"the disk did not answer within {_CDI_WRITE_S:.0f} s",
            )

    async def PreStartContainer(  # noqa: N802 - the protocol's name
        self, request: pb.PreStartContainerRequest, context: Any
    ) -> pb.PreStartContainerResponse:
        """Let a container wait until what it needs is there."""
        known = self._offer.known
        for device_id in sorted(request.devices_ids):
            binding = known.get(device_id)
            if binding is None:
                self._answers.tally.refused(self._offer.resource, Refusal.GONE)
                await _abort(context, grpc.StatusCode.NOT_FOUND, _gone(self._offer, device_id))
            why = self._answers.why_not_ready and self._answers.why_not_ready(binding)
            if why:
                self._answers.tally.refused(self._offer.resource, Refusal.NOT_READY)
                error = AllocationError(
                    f"share {device_id}",
                    f"is not ready: {why}",
                    fix="nothing to do, the start is tried again",
                )
                await _abort(context, grpc.StatusCode.UNAVAILABLE, error)
        return pb.PreStartContainerResponse()


def _gone(offer: Offer, device_id: str) -> AllocationError:
    return AllocationError(
        f"share {shown(device_id)} of {offer.resource}",
        "does not exist any more",
        expected=f"one of the node's {len(offer.known)} shares",
        fix="delete the pod so that its controller makes a new one",
    )


async def _abort(context: Any, code: grpc.StatusCode, error: GpuSharingError) -> NoReturn:
    await context.abort(code, str(error))
    raise error  # abort never returns; this tells type checkers and readers
