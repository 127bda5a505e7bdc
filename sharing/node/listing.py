"""What the kubelet is told: the offers of all GPUs, with the health of this very moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from sharing.mode import Mode
from sharing.mps.daemons import MpsDaemons
from sharing.node.bindings import Surroundings, bind, flattened, visible_uuid
from sharing.node.closeness import ClosenessMatrix
from sharing.node.devicefiles import device_nodes, simulated_nodes
from sharing.node.forerunner import Forerunner
from sharing.node.health import Ailment, is_ill
from sharing.node.lastlist import Told
from sharing.node.observed import GpuState
from sharing.node.settings import AgentSettings
from sharing.node.status import GpuReport
from sharing.node.target import Offered, offered
from sharing.plugin.binding import ShareBinding
from sharing.share import Share, place_of

_log: Final = structlog.get_logger()
_UNKNOWN: Final = "its MPS daemon has not started"


class Listing:
    """Tells the kubelet what there is, and at once when a device falls ill.

    Args:
        early: What serves until the first look.
        daemons: The MPS daemons, whose shares wait for them.
        ailments: The faults known now, by GPU UUID or device id.
        closeness: How close the GPUs are to each other.
    """

    def __init__(
        self,
        early: Forerunner,
        daemons: MpsDaemons,
        ailments: Callable[[], Mapping[str, Ailment]],
        closeness: ClosenessMatrix,
    ) -> None:
        self._daemons = daemons
        self._ailments = ailments
        self._closeness = closeness
        self._device_nodes = _files_of(early.settings)
        self._reports: tuple[GpuReport, ...] | None = None
        self._told: Told | None = None
        self._leaving: tuple[ShareBinding, ...] = ()
        """Withdrawn, but the kubelet may still be about to hand them out."""
        self._early = early
        self._files, self._last = early.files, early.last
        self.told: frozenset[Offered] = frozenset()
        """The shares that the kubelet was told of last and may hand out."""
        self._lock = asyncio.Lock()
        self.plugins = early.plugins

    def take_over(self) -> None:
        """Go on from what the forerunner told."""
        self._told = self._early.told
        listed = () if self._told is None else self._told.listed
        self.told = frozenset(Offered(one.resource, one.device_id) for one in listed)
        self.plugins.why_not_ready = self._why_not_ready
        self.plugins.unfit = self._is_ill

    async def tell(self, reports: Sequence[GpuReport], counted: Collection[Offered]) -> None:
        """Make the kubelet's view that of these reports.

        What is withdrawn is answered for as long as the kubelet counts it: an admission that is
        under way would fail its pod for good, and a layout waits for its holders anyway.

        Args:
            reports: The node as it is.
            counted: What the kubelet counts; nothing where somebody else offers the same.

        Raises:
            PluginError: Nothing changed for the kubelet.
        """
        told = () if self._told is None else self._told.listed
        self._leaving = tuple(
            one
            for one in {one.device_id: one for one in (*self._leaving, *told)}.values()
            if Offered(one.resource, one.device_id) in counted
        )
        before, self.told = self.told, _offered(reports)
        self.told |= before  # until it is known that these are withdrawn
        self._reports = tuple(reports)
        answering = [one.gpu.uuid for one in reports if not one.gpu.lost]
        self.plugins.links = await self._closeness.of(answering)
        await self.retell()
        self.told = _offered(reports)

    async def retell(self, *, blind: bool = False) -> None:
        """Tell the kubelet again, if the health of anything changed since.

        Args:
            blind: The driver does not answer. Before the first look nothing is healthy then.

        Raises:
            PluginError: Nothing changed for the kubelet.
        """
        async with self._lock:
            before, now = self._told, self._now(blind=blind)
            if now is None or now == before:
                return
            self._told = None  # what a failure leaves behind is not known
            if before is None:
                await asyncio.to_thread(self._last.forget)
            elif (stays := before.without(now)).listed != before.listed:
                await asyncio.to_thread(self._last.keep, stays)
            await asyncio.to_thread(self._files.write, (*now.listed, *now.held))
            await self.plugins.advertise(now.listed, held=now.held)
            await asyncio.to_thread(self._files.tidy, (*now.listed, *now.held))
            await asyncio.to_thread(self._last.keep, now)
            self._told = now

    def worsen(self) -> None:
        """Tell the kubelet at once of shares that are ill, ahead of all that a change takes."""
        self.plugins.worsen()

    def _is_ill(self, binding: ShareBinding) -> bool:
        ailments = self._ailments()
        places = (binding.gpu_uuid, place_of(binding.device_id))
        return any(is_ill(ailments.get(place)) for place in places)

    def _now(self, *, blind: bool) -> Told | None:
        """What to tell; None while nothing was looked at and nothing speaks against the last."""
        if self._reports is not None:
            return self._bindings(self._reports)
        return self._told.unusable() if blind and self._told is not None else None

    def _bindings(self, reports: Sequence[GpuReport]) -> Told:
        ailments = self._ailments()
        pairs = []
        for report in reports:
            current = replace(report, ailments=ailments)
            around = Surroundings(
                folders=self._daemons.folders,
                client_pipe=self._daemons.client_pipe,
                is_healthy=partial(self._is_healthy, current),
                device_nodes=self._device_nodes,
                info_file=self._files.path_of,
            )
            pairs.append(bind(report.gpu, report.offer, around))
        listed, held = flattened(pairs)
        known = {one.device_id for one in (*listed, *held)}
        leaving = (one for one in self._leaving if one.device_id not in known)
        return Told(listed=listed, held=(*held, *leaving))

    def _is_healthy(self, report: GpuReport, share: Share) -> bool:
        if share.share_class.mode is Mode.MPS:
            state = self._daemons.state(visible_uuid(report.gpu, share))
            if state is None or not state.ready:
                return False
        return report.is_healthy(share)

    def _why_not_ready(self, binding: ShareBinding) -> str | None:
        if binding.mps is None:
            return None
        state = self._daemons.state(binding.visible)
        if state is None:
            return _UNKNOWN
        if not state.ready:
            return state.reason or _UNKNOWN
        places = (binding.device_id, place_of(binding.device_id))
        kept = (one.withheld.get(place) for one in self._reports or () for place in places)
        return next((why for why in kept if why), None)


def _offered(reports: Sequence[GpuReport]) -> frozenset[Offered]:
    return frozenset(offered(share) for one in reports for share in one.offer.shares)


def _files_of(settings: AgentSettings) -> Callable[[GpuState, Share], tuple[str, ...]]:
    if settings.simulate is None:
        return device_nodes
    return simulated_nodes if settings.answers.edits.simulated else _no_files


def _no_files(_gpu: object, _share: object) -> tuple[str, ...]:
    return ()
