"""Asks MPS daemons now and then who their clients are, and compares that with the driver's word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from typing import Final

import structlog

from sharing.mps.daemons import MpsDaemons
from sharing.mps.errors import MpsError
from sharing.node.clientlists import ClientLists, Disputed, disputed
from sharing.node.gpus import Activity
from sharing.node.observed import GpuState
from sharing.nvml.observed import GpuProcess, ProcessKind

_log: Final = structlog.get_logger()
_LASTING: Final = 1.5
"""Checks for which a difference has to stay; so at least two of them have seen it."""


class RollCall:
    """Keeps the two lists of MPS clients side by side.

    Args:
        daemons: Those of the node.
        every_s: From one question to the next; each costs a short process or two a daemon.
    """

    def __init__(self, daemons: MpsDaemons, *, every_s: float) -> None:
        self.disputed: tuple[Disputed, ...] = ()
        """As of the last check."""
        self._daemons = daemons
        self._every_s = every_s
        self._at = -float("inf")

    async def take(self, seen: Iterable[tuple[GpuState, Activity]], held: Collection[str]) -> None:
        """Check, if that is due.

        Args:
            seen: The GPUs that answered, with what runs on them now.
            held: GPUs of which pods hold shares, by UUID; idle ones are not asked about.
        """
        if time.monotonic() - self._at < self._every_s:
            return
        gpus = [
            (gpu, activity.processes)
            for gpu, activity in seen
            if activity.processes or gpu.uuid in held
        ]
        ready = [state.device_uuid for state in self._daemons.states() if state.ready]
        # Together: one that hangs costs its own time limit, and not one after the other.
        asked = await asyncio.gather(*(self._lists(device, gpus) for device in ready))
        lists = [each for each in asked if each is not None]
        self._at = time.monotonic()
        before = {one for one in self.disputed if one.lasting}
        self.disputed = disputed(
            self.disputed, lists, now=self._at, lasting_s=_LASTING * self._every_s
        )
        for one in self.disputed:
            if one.lasting and one not in before:
                _log.warning(
                    "MPS client is disputed",
                    device=one.device,
                    pid=one.pid,
                    known_by=str(one.known),
                )

    async def _lists(
        self, device: str, gpus: Iterable[tuple[GpuState, Collection[GpuProcess]]]
    ) -> ClientLists | None:
        driver = _driver_list(device, gpus)
        if driver is None:
            return None
        try:
            daemon = frozenset(await self._daemons.clients(device))
        except MpsError as error:  # a lasting silence is the supervisor's to tell
            _log.warning("MPS clients were not listed", device=device, error=str(error))
            return None
        return ClientLists(device=device, driver=driver, daemon=daemon)


def _driver_list(
    device: str, gpus: Iterable[tuple[GpuState, Collection[GpuProcess]]]
) -> frozenset[int] | None:
    """The MPS clients on a GPU or MIG device; None where nothing is known of it."""
    for gpu, processes in gpus:
        instances = {one.gi_id for one in gpu.instances if one.mig_uuid == device}
        if gpu.uuid == device or instances:
            return frozenset(
                one.pid
                for one in processes
                if one.kind is ProcessKind.MPS and (not instances or one.gi_id in instances)
            )
    return None
