"""The MPS daemons of a node: started, verified, watched, restarted, taken down.

The one door for the agent: it says which GPUs are shared by MPS and with which ceiling; a share
of such a GPU is offered once its daemon is ready, and not before (limits are read back first).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from sharing.mps.limits import MpsLimits
from sharing.mps.program import MpsProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDaemon:
    """One daemon: for a GPU, or for a MIG device."""

    device_uuid: str
    """GPU or MIG UUID; the daemon sees nothing else."""
    gpu_uuid: str
    limits: MpsLimits
    """The ceiling of all clients; see ``limits.ceiling``."""
    exclusive: bool = True
    """Set compute mode EXCLUSIVE_PROCESS, so that no process gets round MPS. False on MIG
    devices, where the driver refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFolders:
    """Where one daemon and its clients meet; private to one GPU, usable by non-root pods."""

    pipe: Path
    log: Path
    shm: Path | None


class DaemonPhase(StrEnum):
    """Where a daemon stands."""

    STARTING = "starting"
    READY = "ready"
    """Answers, and its limits were read back."""
    BACKING_OFF = "backing-off"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    """One daemon as it is now."""

    device_uuid: str
    phase: DaemonPhase
    reason: str
    """One sentence for a person; empty when ready."""
    pid: int | None
    starts: int
    """How often it was started or adopted since the agent started."""

    @property
    def ready(self) -> bool:
        """Whether clients may come."""
        return self.phase is DaemonPhase.READY


class ComputeModes(Protocol):
    """The driver's compute mode, by GPU UUID; integers are NVML's ``nvmlComputeMode_t``."""

    async def get(self, gpu_uuid: str) -> int:
        """The mode now. Raises DriverError."""
        ...

    async def set(self, gpu_uuid: str, mode: int) -> None:
        """Change it. Raises DriverError."""
        ...


OnChange = Callable[[DaemonState], Awaitable[None] | None]


class MpsDaemons:
    """Supervises one control daemon for each wanted GPU.

    Args:
        root: Folder for pipe, log and shared-memory folders; the same path on the host.
        program: How to run and ask a daemon.
        compute_modes: The driver's compute modes; None where they are left alone.
        on_change: Told whenever a daemon's phase changes.
    """

    def __init__(
        self,
        root: Path,
        *,
        program: MpsProgram,
        compute_modes: ComputeModes | None = None,
        on_change: OnChange | None = None,
    ) -> None: ...

    async def start(self) -> None:
        """Restore compute modes that a crash left changed for GPUs without a living daemon."""
        raise NotImplementedError

    async def apply(self, wanted: Sequence[WantedDaemon]) -> None:
        """Start the daemons that are missing, take down those no longer wanted.

        Does not wait for readiness. A wanted daemon with other limits is told the new ones and
        verified anew. Taking down waits for the daemon's end (bounded) and restores the compute
        mode. The caller must know that no pod holds a share of a GPU that it leaves out.

        Raises:
            MpsError: Two wanted daemons for one device.
        """
        raise NotImplementedError

    def folders(self, device_uuid: str) -> DaemonFolders:
        """Where a device's daemon and clients meet, whether it runs or not."""
        raise NotImplementedError

    def state(self, device_uuid: str) -> DaemonState | None:
        """The daemon of a device; None if none is wanted."""
        raise NotImplementedError

    def states(self) -> tuple[DaemonState, ...]:
        """All daemons, by device UUID."""
        raise NotImplementedError

    async def wait_ready(self, device_uuid: str, timeout_s: float) -> bool:
        """Wait until a daemon is ready; False when time ran out."""
        raise NotImplementedError

    async def clients(self, device_uuid: str) -> tuple[int, ...]:
        """PIDs of the processes that use the daemon, sorted.

        Raises:
            MpsError: The daemon does not answer.
        """
        raise NotImplementedError

    async def stop(self, *, leave_running: bool = True) -> None:
        """End supervision; daemons run on for their clients and are adopted at next start.

        With ``leave_running=False`` they are told to quit and compute modes are restored.
        """
        raise NotImplementedError
