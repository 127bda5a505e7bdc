"""All share classes of a node at one kubelet: who appears, changes, disappears.

The one door for the agent: it says which bindings exist, this module sees to it that the kubelet
knows, whatever restarts meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from sharing.plugin.binding import ShareBinding
from sharing.plugin.cdistore import CdiStore
from sharing.plugin.errors import PluginError
from sharing.plugin.offer import Offer
from sharing.plugin.server import remove_leftovers
from sharing.plugin.servicer import Answers, WhoHolds, WhyNotReady
from sharing.plugin.session import ClassSession, ClassState
from sharing.plugin.settings import AnswerSettings, Patience
from sharing.plugin.watch import KubeletWatch

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStatus:
    """One share class at the kubelet, as it is now."""

    resource: str
    state: ClassState
    reason: str
    healthy: int
    unhealthy: int
    registrations: int
    """How often it was registered since the agent started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of one :meth:`DevicePlugins.advertise`."""

    delivered: tuple[str, ...]
    """Resources whose new list left on a stream that the kubelet holds open."""
    pending: tuple[str, ...]
    """Resources at which no kubelet listens now; it hears the list when it registers."""


_Classes = Mapping[str, tuple[list[ShareBinding], list[ShareBinding]]]
"""(listed, held) by resource."""


class DevicePlugins:
    """Serves every share class of one node to its kubelet.

    Args:
        socket_dir: The kubelet's folder of device-plugin sockets.
        cdi_dir: Where CDI specs go; None where no runtime reads them.
        state_dir: A folder that outlives a reboot, for what restarting containers need.
        settings: How to answer.
        patience: Deadlines.
    """

    def __init__(
        self,
        socket_dir: Path,
        *,
        cdi_dir: Path | None,
        state_dir: Path | None = None,
        settings: AnswerSettings | None = None,
        patience: Patience | None = None,
    ) -> None:
        settings = settings or AnswerSettings()
        self._patience = patience or Patience()
        self._watch = KubeletWatch(socket_dir, poll_s=self._patience.poll_s)
        self._cdi = (
            None if cdi_dir is None else CdiStore(cdi_dir, settings.edits, state_dir=state_dir)
        )
        self.why_not_ready: WhyNotReady | None = None
        """Asked before a container with an MPS share starts."""
        self.who_holds: WhoHolds = _nobody_knows
        """Asked before a share is advised or handed out."""
        self.unfit: Callable[[ShareBinding], bool] = lambda _binding: False
        """Whether a share may not be handed out at this instant, whatever is advertised."""
        self.links: Mapping[frozenset[str], int] = {}
        """NVLink or PCIe closeness of GPU pairs, higher is closer; see ``preference``."""
        self._answers = Answers(
            settings=settings,
            cdi=self._cdi,
            why_not_ready=lambda binding: self.why_not_ready and self.why_not_ready(binding),
            links=lambda: self.links,
            who_holds=self._who_holds,
        )
        self.tally = self._answers.tally
        """How the kubelet was answered so far."""
        self.admissions = self._answers.admissions
        """Whoever lists the kubelet's assignments does it when none is under way."""
        self._sessions: dict[str, ClassSession] = {}
        self._lock = asyncio.Lock()

    async def _who_holds(self, resource: str, device_ids: Collection[str]) -> Mapping[str, str]:
        return await self.who_holds(resource, device_ids)

    async def start(self) -> None:
        """Begin to watch for the kubelet. Does not wait for it."""
        await asyncio.to_thread(remove_leftovers, self._watch.socket.parent)
        self._watch.start()

    async def stop(self) -> None:
        """Close all servers. Pods keep what they hold; CDI specs stay for their restarts."""
        async with self._lock:
            await asyncio.gather(*(session.stop() for session in self._sessions.values()))
            self._sessions.clear()
            await self._watch.stop()

    async def advertise(
        self, bindings: Sequence[ShareBinding], *, held: Sequence[ShareBinding] = ()
    ) -> Delivery:
        """Make the kubelet's view these bindings, all classes at once.

        CDI specs are on disk before a device is listed. What disappears is told before what
        appears, so that no GPU is offered twice on the way. Classes that disappear send an empty
        list first. Never waits for an absent kubelet.

        Args:
            bindings: Everything to offer, unhealthy shares included.
            held: Shares that pods still hold though they are offered no longer. Their CDI specs
                stay, and their class stays registered (with them left out) so that their
                containers can restart.

        Raises:
            PluginError: Two bindings have one device id, or a CDI spec cannot be written; then
                nothing changed for the kubelet.
        """
        wanted = _by_class(bindings, held)
        async with self._lock:
            before = [one for each in self._sessions.values() for one in each.offer.known.values()]
            await self._write([*before, *held, *bindings])
            await self._shrink(wanted)
            delivery = await self._grow(wanted)
            await self._write([*held, *bindings])
            return delivery

    def worsen(self) -> None:
        """Tell the kubelet at once what has become unfit; nothing else waits or is written.

        What is advertised next is compared with ``unfit`` too, so that a list which was made up
        before does not call a share healthy once more.
        """
        for session in self._sessions.values():
            session.offer.worsen(self.unfit)

    async def _write(self, bindings: Sequence[ShareBinding]) -> None:
        if self._cdi is not None:
            await asyncio.to_thread(self._cdi.sync, bindings)

    async def _shrink(self, wanted: _Classes) -> None:
        """Take away what is offered no longer, everywhere, before anything is added."""
        told: list[tuple[ClassSession, int]] = []
        for resource, session in self._sessions.items():
            new = {one.device_id: one for one in wanted.get(resource, ([], []))[0]}
            listed = session.offer.listed
            stays = [one for one in listed if one.device_id in new]
            if len(stays) < len(listed):
                session.offer.change(stays, list(session.offer.known.values()))
                told.append((session, session.offer.version))
        await asyncio.gather(*(session.delivered(version) for session, version in told))
        gone = sorted(self._sessions.keys() - wanted.keys())
        await asyncio.gather(*(self._sessions[resource].stop() for resource in gone))
        for resource in gone:
            del self._sessions[resource]
            _log.info("share class was withdrawn", resource=resource)

    async def _grow(self, wanted: _Classes) -> Delivery:
        for resource, (wished, held) in sorted(wanted.items()):
            session = self._sessions.get(resource)
            listed = [
                replace(one, healthy=False) if one.healthy and self.unfit(one) else one
                for one in wished
            ]
            if session is None:
                offer = Offer(resource, (listed or held)[0].mode)
                offer.change(listed, held)
                session = ClassSession(offer, self._watch, self._answers, self._patience)
                self._sessions[resource] = session
                session.start()
            else:
                session.offer.change(listed, held)
        resources = sorted(wanted)
        sent = await asyncio.gather(
            *(
                self._sessions[resource].delivered(self._sessions[resource].offer.version)
                for resource in resources
            )
        )
        heard = dict(zip(resources, sent, strict=True))
        return Delivery(
            delivered=tuple(resource for resource in resources if heard[resource]),
            pending=tuple(resource for resource in resources if not heard[resource]),
        )

    def status(self) -> tuple[ClassStatus, ...]:
        """Every class, by resource name."""
        return tuple(_status(self._sessions[resource]) for resource in sorted(self._sessions))

    async def wait_serving(self, timeout_s: float) -> bool:
        """Wait until the kubelet listens to every class; False when time ran out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for session in tuple(self._sessions.values()):
                    await session.until_serving()
        return all(session.state is ClassState.SERVING for session in self._sessions.values())


async def _nobody_knows(_resource: str, _device_ids: Collection[str]) -> Mapping[str, str]:
    return {}


def _by_class(bindings: Iterable[ShareBinding], held: Iterable[ShareBinding]) -> _Classes:
    classes: dict[str, tuple[list[ShareBinding], list[ShareBinding]]] = {}
    seen: set[str] = set()
    for binding in bindings:
        if binding.device_id in seen:
            raise PluginError(
                f"share {binding.device_id}",
                "is offered twice",
                expected="each device id once, in one class",
                fix="report this together with the node's layout",
            )
        seen.add(binding.device_id)
        classes.setdefault(binding.resource, ([], []))[0].append(binding)
    for binding in held:
        if binding.device_id not in seen:
            classes.setdefault(binding.resource, ([], []))[1].append(binding)
    return classes


def _status(session: ClassSession) -> ClassStatus:
    healthy = sum(one.healthy for one in session.offer.listed)
    return ClassStatus(
        resource=session.offer.resource,
        state=session.state,
        reason=session.reason,
        healthy=healthy,
        unhealthy=len(session.offer.listed) - healthy,
        registrations=session.registrations,
    )
