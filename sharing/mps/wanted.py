"""What an MPS daemon shall be: the device that it serves and what its clients may use."""

from __future__ import annotations

from dataclasses import dataclass

from sharing.mps.limits import MpsLimits


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ClientGroup:
    """Clients with the same limits: those of one share size."""

    name: str
    """As share sizes are written, such as ``1of4``."""
    memory_mib: int
    thread_percentage: int

    @property
    def limits(self) -> MpsLimits:
        """What one client may use."""
        return MpsLimits(memory_mib=self.memory_mib, thread_percentage=self.thread_percentage)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDaemon:
    """One daemon: for a GPU, or for a MIG device."""

    device_uuid: str
    """GPU or MIG UUID; the daemon sees nothing else."""
    gpu_uuid: str
    limits: MpsLimits
    """The ceiling of all clients; see ``limits.ceiling``."""
    groups: tuple[ClientGroup, ...] = ()
    """The sizes by name, where the daemon can tell clients of one from those of another."""
    exclusive: bool = True
    """Set compute mode EXCLUSIVE_PROCESS, so that no process gets round MPS. False on MIG
    devices, where the driver refuses it."""
