"""Which GPUs of this node went back to their layout before, and until when; see ``retreat``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from sharing.layout import GpuLayout
from sharing.node.retreat import Retreat, RetreatPolicy, lasts, retreat
from sharing.node.status import GpuReport
from sharing.node.work import Workshop

_log: Final = structlog.get_logger()


class Retreats:
    """The retreats of one node.

    Args:
        policy: When to go back, and for how long.
        known: Those of an earlier agent, by GPU UUID: what failed under it fails under us.
    """

    def __init__(self, policy: RetreatPolicy, known: Mapping[str, Retreat]) -> None:
        self._policy = policy
        self._known = dict(known)

    @property
    def known(self) -> Mapping[str, Retreat]:
        """All of them by GPU UUID; one that is over says how often its layout was given up."""
        return dict(self._known)

    def standing(self) -> dict[str, Retreat]:
        """Those that last, by GPU UUID."""
        now = time.time()
        return {
            uuid: one
            for uuid, one in self._known.items()
            if lasts(one, now=now, policy=self._policy)
        }

    def end(self, uuid: str, layout: GpuLayout) -> None:
        """A GPU serves a layout: if that is the one that was given up, it works now."""
        known = self._known.get(uuid)
        if known is not None and known.layout == layout:
            del self._known[uuid]

    def rests(self) -> tuple[float, ...]:
        """For how many seconds each of them lasts."""
        now = time.time()
        return tuple(one.until - now for one in self.standing().values())

    def consider(
        self, reports: Iterable[GpuReport], applied: Mapping[str, GpuLayout], work: Workshop
    ) -> None:
        """Go back on each GPU where steps were refused too often."""
        tries, reasons = work.tries, work.failures
        for report in reports:
            uuid, wanted = report.gpu.uuid, report.plan.target.layout
            before = applied.get(uuid)
            if tries.get(uuid, 0) < self._policy.failures or before in (None, wanted):
                continue
            reason = reasons[uuid]
            self._known[uuid] = retreat(
                self._known.get(uuid), wanted, reason, now=time.time(), policy=self._policy
            )
            work.forgive(uuid)
            _log.warning(
                "layout was given up for a while",
                gpu=uuid,
                layout=str(wanted),
                back_to=str(before),
                error=reason,
            )
