"""The MPS daemons of a node: started, verified, watched, restarted, taken down.

The one door for the agent: it says which GPUs are shared by MPS and with which ceiling; a share
of such a GPU is offered once its daemon is ready, and not before (limits are read back first).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from sharing.errors import shown
from sharing.mps import process
from sharing.mps.compute import ComputeModeRecord, ComputeModes
from sharing.mps.daemon import (
    DaemonPhase,
    DaemonState,
    DaemonSupervisor,
    MpsPatience,
)
from sharing.mps.errors import MpsError
from sharing.mps.limits import MpsLimits
from sharing.mps.program import DaemonFolders, MpsProgram, MpsVersion
from sharing.mps.version3 import client_folder
from sharing.mps.wanted import ClientGroup, WantedDaemon

__all__ = [
    "MIG_DEVICE",
    "ClientGroup",
    "ComputeModes",
    "DaemonFolders",
    "DaemonPhase",
    "DaemonState",
    "MpsDaemons",
    "MpsPatience",
    "WantedDaemon",
]

MIG_DEVICE: Final = "MIG-"
"""With what the UUIDs of MIG devices begin."""
_UUID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9/-]*", re.ASCII)

_log: Final = structlog.get_logger()

OnChange = Callable[[DaemonState], None]
"""Told of each change of phase; must return at once."""


class MpsDaemons:
    """Supervises one control daemon for each wanted GPU or MIG device.

    Args:
        root: Folder for pipe, log and shared-memory folders; the same path on the host.
        program: How to run and ask a daemon.
        compute_modes: The driver's compute modes; None where they are left alone.
        on_change: Told whenever a daemon's phase changes.
        patience: Deadlines.
    """

    def __init__(
        self,
        root: Path,
        *,
        program: MpsProgram,
        compute_modes: ComputeModes | None = None,
        on_change: OnChange | None = None,
        patience: MpsPatience | None = None,
    ) -> None:
        self._root = root
        self._program = program
        self._modes = (
            None
            if compute_modes is None
            else ComputeModeRecord(compute_modes, root / "compute-modes.json")
        )
        self._tell = on_change
        self._patience = patience or MpsPatience()
        self._supervisors: dict[str, DaemonSupervisor] = {}
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Restore compute modes that a crash left changed for GPUs without a living daemon.

        Raises:
            MpsError: The record of compute modes cannot be written.
        """
        if self._modes is None:
            return
        for gpu_uuid in self._modes.changed():
            living = process.find(self._program, self.folders(gpu_uuid))
            if living is None:
                await self._modes.restore(gpu_uuid)
            else:
                living.forget()

    async def apply(self, wanted: Sequence[WantedDaemon]) -> None:
        """Start the daemons that are missing, take down those no longer wanted.

        Does not wait for readiness. A wanted daemon with other limits is told the new ones and
        verified anew. Taking down waits for the daemon's end (bounded) and restores the compute
        mode. The caller must know that no pod holds a share of a GPU that it leaves out.

        Raises:
            MpsError: Two wanted daemons for one device.
        """
        by_device = {one.device_uuid: one for one in wanted}
        if len(by_device) < len(wanted):
            raise MpsError("MPS daemons", "one device is named twice", expected="one daemon each")
        async with self._lock:
            self._meet_strangers()
            gone = sorted(self._supervisors.keys() - by_device.keys())
            await asyncio.gather(*(self._supervisors[one].take_down() for one in gone))
            for device_uuid in gone:
                del self._supervisors[device_uuid]
            for device_uuid, one in sorted(by_device.items()):
                known = self._supervisors.get(device_uuid)
                if known is not None:
                    known.change(one)
                else:
                    known = self._supervisors[device_uuid] = self._supervisor(one)
                known.start()

    def _supervisor(self, wanted: WantedDaemon) -> DaemonSupervisor:
        return DaemonSupervisor(
            wanted,
            self.folders(wanted.device_uuid),
            program=self._program.speaking(self._version_for(wanted.device_uuid)),
            modes=self._modes,
            patience=self._patience,
            on_change=self._on_change,
        )

    def _version_for(self, device_uuid: str) -> MpsVersion:
        """What a device's daemon shall speak: on MIG devices always v2.

        The accounting of memory by container that v3 is asked for does not work with MIG. Source:
        NVIDIA MPS documentation, "MPS v3 Interface".
        """
        return MpsVersion.V2 if device_uuid.startswith(MIG_DEVICE) else self._program.version

    def _meet_strangers(self) -> None:
        """Know the daemons that an earlier agent left running, so that they can be taken down."""
        for pipe in sorted(self._root.glob("*/pipe")):
            device_uuid = pipe.parent.name.replace("_", "/")
            if device_uuid not in self._supervisors:
                nothing = MpsLimits(memory_mib=1, thread_percentage=1)
                self._supervisors[device_uuid] = self._supervisor(
                    WantedDaemon(device_uuid=device_uuid, gpu_uuid=device_uuid, limits=nothing)
                )

    def folders(self, device_uuid: str) -> DaemonFolders:
        """Where a device's daemon and clients meet, whether it runs or not."""
        root = self._root / _folder_name(device_uuid)
        return DaemonFolders(
            pipe=root / "pipe",
            log=root / "log",
            shm=root / "shm" if self._program.private_shm else None,
        )

    def client_pipe(self, device_uuid: str, size: str) -> Path:
        """The folder through which containers of a share size reach a device's daemon.

        Nobody else's limits can be had through it where the daemon tells sizes apart.
        """
        supervisor = self._supervisors.get(device_uuid)
        usual = self._version_for(device_uuid)
        version = usual if supervisor is None else supervisor.version
        pipe = self.folders(device_uuid).pipe
        return client_folder(pipe, size) if version is MpsVersion.V3 else pipe

    def state(self, device_uuid: str) -> DaemonState | None:
        """The daemon of a device; None if none is wanted."""
        supervisor = self._supervisors.get(device_uuid)
        return None if supervisor is None else supervisor.state

    def states(self) -> tuple[DaemonState, ...]:
        """All daemons, by device UUID."""
        return tuple(self._supervisors[one].state for one in sorted(self._supervisors))

    async def wait_ready(self, device_uuid: str, timeout_s: float) -> bool:
        """Wait until a daemon is ready; False when time ran out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_ready(device_uuid):
                    await self._changed.wait()
        return self._is_ready(device_uuid)

    def _is_ready(self, device_uuid: str) -> bool:
        state = self.state(device_uuid)
        return state is not None and state.ready

    async def clients(self, device_uuid: str) -> tuple[int, ...]:
        """PIDs of the processes that use the daemon, sorted.

        Raises:
            MpsError: The daemon does not answer, or none is wanted.
        """
        supervisor = self._supervisors.get(device_uuid)
        if supervisor is None:
            raise MpsError(
                f"MPS daemon of {device_uuid}", "is not wanted", expected="an MPS layout"
            )
        return await supervisor.control.clients()

    async def servers(self, device_uuid: str) -> tuple[int, ...]:
        """PIDs of a daemon's own server processes, sorted; none where it does not say.

        The driver lists a server among a GPU's compute processes from its first client until the
        daemon ends (NVIDIA MPS documentation, "nvidia-smi": type C, its clients M+C).
        """
        supervisor = self._supervisors.get(device_uuid)
        if supervisor is None or not supervisor.state.ready:
            return ()
        try:
            return await supervisor.control.servers()
        except MpsError as error:
            _log.warning("MPS servers were not listed", device=device_uuid, error=str(error))
            return ()

    async def stop(self, *, leave_running: bool = True) -> None:
        """End supervision; daemons run on for their clients and are adopted at next start.

        With ``leave_running=False`` they are told to quit and compute modes are restored.
        """
        async with self._lock:
            each = tuple(self._supervisors.values())
            if leave_running:
                await asyncio.gather(*(one.leave() for one in each))
            else:
                await asyncio.gather(*(one.take_down() for one in each))
            self._supervisors.clear()

    def _on_change(self, state: DaemonState) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._tell is not None:
            self._tell(state)


def _folder_name(device_uuid: str) -> str:
    """A UUID as the name of a folder; old MIG UUIDs hold slashes."""
    if not _UUID.fullmatch(device_uuid):
        raise MpsError("MPS daemon", f"{shown(device_uuid)} is no UUID", expected="GPU-… or MIG-…")
    return device_uuid.replace("/", "_")
