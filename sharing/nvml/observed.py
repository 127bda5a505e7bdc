"""What the driver reports, as values: a node, its GPUs, what lies on them.

Nothing here is inferred. A GPU that could not be read in full carries the fault and no instances,
which then means "unknown" and not "none".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sharing.board import Board, Placement
from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code, ComputeMode, RecoveryAction, TopologyLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A GPU instance, finished or half made."""

    gi_id: int
    """The driver's number; reused after destruction, so no identity."""
    ci_ids: tuple[int, ...]
    """Compute instances; empty if it was left half made."""
    profile: MigProfile
    profile_id: int
    placement: Placement
    uuid: str | None
    """The MIG device's UUID; None unless there is exactly one compute instance, a whole one."""
    memory_mib: int

    @property
    def usable(self) -> bool:
        """Whether a container can be given it."""
        return self.uuid is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """Why a GPU could not be read."""

    code: Code
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Measures of a GPU's health; None or empty where the board or driver does not tell."""

    ecc_uncorrected: int | None = None
    """Memory errors since the driver was loaded that ECC could not correct."""
    rows_pending: bool = False
    """A memory row is remapped at the next reset."""
    rows_failed: bool = False
    """A memory row could not be remapped: no spare one is left."""
    temperature_c: int | None = None
    slowdown_c: int | None = None
    """Where the hardware slows itself down."""
    nvlinks_down: tuple[int, ...] = ()
    nvlink_recoveries: int | None = None
    """Errors after which NVLinks had to be trained again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGpu:
    """One GPU as the driver reports it now; if it has a fault, as it was known before."""

    uuid: str
    """Empty for a GPU that was lost before it could ever be read."""
    index: int
    """The driver's index; shuffles over reboots."""
    minor: int
    """Number in ``/dev/nvidia<minor>`` and in the driver's capability files."""
    product: str
    """NVML's product name."""
    board: Board
    """The GPU's model: what the driver says, and from the catalogue what it can't say."""
    in_catalogue: bool
    pci_bus_id: str
    numa_node: int | None
    mig_mode: bool = False
    mig_pending: bool = False
    """The mode after the next reset; differs from ``mig_mode`` while a change waits."""
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    recovery_action: RecoveryAction = RecoveryAction.NONE
    vitals: Vitals = Vitals()
    instances: tuple[MigInstance, ...] = ()
    """By start; meaningless while ``fault`` is set."""
    fault: GpuFault | None = None
    differences: tuple[str, ...] = ()
    """Where the catalogue says otherwise than the driver, for a log line."""

    @property
    def memory_mib(self) -> int:
        """Total memory."""
        return self.board.memory_mib

    @property
    def mig_capable(self) -> bool:
        """Whether the board can be partitioned by MIG."""
        return self.board.mig_capable

    @property
    def resetless(self) -> bool:
        """Whether MIG mode changes without a reset of the GPU."""
        return self.board.resetless

    @property
    def readable(self) -> bool:
        """Whether everything here is from now."""
        return self.fault is None

    @property
    def lost(self) -> bool:
        """Whether it fell off the bus."""
        return self.fault is not None and self.fault.code is Code.GPU_IS_LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """All GPUs of a node, by index."""

    driver_version: str
    cuda_version: str
    gpus: tuple[ObservedGpu, ...]

    def gpu(self, uuid: str) -> ObservedGpu | None:
        """The GPU of a UUID, if it is there."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


class ModeChange(StrEnum):
    """What came of asking for a MIG mode."""

    APPLIED = "applied"
    PENDING = "pending"
    """Waits for a reset of the GPU or a reboot."""
    IN_USE = "in-use"
    """Something holds the GPU. Before Hopper the change may be pending besides."""


class ProcessKind(StrEnum):
    """How a process uses a GPU."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a GPU. Processes of other pid namespaces are not reported by the driver."""

    pid: int
    kind: ProcessKind
    memory_mib: int | None
    gi_id: int | None
    ci_id: int | None


class EventKind(StrEnum):
    """What an event is about."""

    XID = "xid"
    MIG_CONFIG = "mig-config"
    RECOVERY_ACTION = "recovery-action"
    ECC = "ecc"
    UNAVAILABLE = "unavailable"
    LOST = "lost"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEvent:
    """Something that the driver reported."""

    kind: EventKind
    uuid: str | None
    """The GPU; None if the driver only says that one of them is lost."""
    data: int = 0
    """The XID, or the recovery action."""
    gi_id: int | None = None
    """The instance it concerns; None if it concerns the whole GPU."""
    ci_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How two GPUs are connected."""

    one: str
    other: str
    level: TopologyLevel
    nvlinks: int
    """Active NVLinks between them, through switches or directly."""
