"""What is known of the GPUs, and how old it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog

from sharing.layout import GpuLayout
from sharing.node.gpus import Gpus, Sighting
from sharing.node.infirmary import Infirmary
from sharing.node.observed import GpuState, gpu_state
from sharing.nvml.observed import ObservedGpu

_log: Final = structlog.get_logger()


class Lookout:
    """Looks at the driver when there is a reason to; every look is also a probe of health.

    Args:
        gpus: The driver.
        infirmary: Hears of what is seen.
        mps_servers: The server processes of an MPS daemon, by UUID of its GPU or MIG device.
    """

    def __init__(
        self,
        gpus: Gpus,
        infirmary: Infirmary,
        mps_servers: Callable[[str], Awaitable[tuple[int, ...]]],
    ) -> None:
        self.states: dict[str, GpuState] = {}
        """The GPUs by UUID, in the driver's order."""
        self.driver_version = ""
        self.stale = True
        """Whether something happened since the last look."""
        self._gpus = gpus
        self._infirmary = infirmary
        self._mps_servers = mps_servers
        self._looked_at = -float("inf")
        self._compared: set[tuple[str, tuple[str, ...]]] = set()

    async def look(self, due_s: float, mps: Mapping[str, GpuLayout]) -> bool:
        """Look if something happened or the last look is old; whether it was done.

        Args:
            due_s: The age in seconds from which a look is old.
            mps: What MPS daemons serve, by UUID of GPU or MIG device.

        Raises:
            DriverError: The driver does not answer.
        """
        if not self.stale and time.monotonic() - self._looked_at < due_s:
            return False
        await self._gpus.open()
        sighting = await self._gpus.look()
        self._looked_at, self.stale = time.monotonic(), False
        self.driver_version = sighting.node.driver_version
        self._infirmary.see(sighting)
        self._compare(sighting.node.gpus)
        servers = await self._servers(sighting, mps)
        self.states = {
            gpu.uuid: gpu_state(
                gpu,
                sighting.processes[gpu.uuid],
                before=self.states.get(gpu.uuid),
                mps=mps,
                mps_servers=servers.get(gpu.uuid, ()),
            )
            for gpu in sighting.node.gpus
            if gpu.uuid
        }
        return True

    def _compare(self, gpus: Iterable[ObservedGpu]) -> None:
        """Say where the driver and the catalogue differ, once for each board; the driver is right.

        Plans go by the driver. Whoever wrote a layout by the catalogue's figures should know.
        """
        for gpu in gpus:
            known = (gpu.board.name, gpu.differences)
            if not gpu.uuid or known in self._compared or (gpu.in_catalogue and not known[1]):
                continue
            self._compared.add(known)
            if gpu.in_catalogue:
                _log.warning(
                    "driver differs from the catalogue",
                    board=gpu.board.name,
                    gpu=gpu.uuid,
                    differences=list(gpu.differences),
                )
            else:
                _log.warning("board is not in the catalogue", board=gpu.board.name, gpu=gpu.uuid)

    async def _servers(
        self, sighting: Sighting, mps: Mapping[str, GpuLayout]
    ) -> dict[str, tuple[int, ...]]:
        """Server processes of MPS daemons by GPU, where that has processes at all.

        Asked anew at each look: a process id that is used again is somebody else's.
        """
        owners = {
            uuid: gpu.uuid
            for gpu in sighting.node.gpus
            for uuid in (gpu.uuid, *(one.uuid for one in gpu.instances))
            if uuid in mps and sighting.processes.get(gpu.uuid)
        }
        pids = await asyncio.gather(*(self._mps_servers(uuid) for uuid in owners if uuid))
        found: dict[str, tuple[int, ...]] = {}
        for gpu, listed in zip(owners.values(), pids, strict=True):
            found[gpu] = (*found.get(gpu, ()), *listed)
        return found

    def note_mps(self, mps: Mapping[str, GpuLayout]) -> None:
        """MPS daemons changed."""
        self.states = {uuid: gpu.with_mps(mps) for uuid, gpu in self.states.items()}
