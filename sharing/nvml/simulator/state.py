"""What a simulated machine consists of: values that a JSON file holds.

Ids, serials and modes are kept as the driver keeps them; what follows from the board is looked up
in the catalogue and not stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from pydantic import ConfigDict

from sharing import catalogue
from sharing.board import Board, BoardMigProfile, Placement
from sharing.migprofile import MigProfile

FORMAT: Final = 1
MOST_EVENTS: Final = 256
_STRICT: Final = ConfigDict(extra="forbid", strict=False)


class Permission(StrEnum):
    """What the processes that call NVML may do."""

    ROOT = "root"
    CONFIG = "config"
    """Not root, but with the ``mig/config`` capability: instances yes, modes no."""
    NONE = "none"


class ProcessKind(StrEnum):
    """How a process uses a GPU."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"
    MONITOR = "monitor"
    """An open NVML or DCGM client: no channels, but before Hopper it holds up a reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A pretended process on a GPU."""

    __pydantic_config__ = _STRICT

    pid: int
    name: str
    kind: ProcessKind = ProcessKind.COMPUTE
    memory_mib: int = 0
    gi_id: int | None = None
    ci_id: int | None = None
    sm_percent: int = 0
    cgroup: str = ""
    """Its cgroup's path, for limits of GPU memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """GPU memory that the processes of a cgroup may use; bytes."""

    __pydantic_config__ = _STRICT

    cgroup: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A MIG profile that this driver names and measures otherwise than the catalogue."""

    __pydantic_config__ = _STRICT

    profile: str
    """The catalogue's name."""
    name: str
    memory_mib: int = 0
    """As the catalogue if 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInstance:
    """A compute instance; with it the MIG device comes into being."""

    __pydantic_config__ = _STRICT

    id: int
    slices: int
    start: int
    uuid: str
    serial: int
    """Never reused, so that a handle to a destroyed instance is recognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstance:
    """A GPU instance; invisible to users until it has a compute instance."""

    __pydantic_config__ = _STRICT

    id: int
    profile_id: int
    start: int
    size: int
    serial: int
    compute: tuple[ComputeInstance, ...] = ()

    @property
    def placement(self) -> Placement:
        """Where it lies."""
        return Placement(self.start, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One simulated GPU."""

    __pydantic_config__ = _STRICT

    uuid: str
    board: str
    minor: int
    pci_bus: int
    numa_node: int = 0
    product: str = ""
    """Reported in place of the board's product name: a GPU that the catalogue does not know."""
    mig_current: bool = False
    mig_pending: bool = False
    passed_through: bool = False
    """In a virtual machine that cannot reset it: a mode change waits for a reboot."""
    compute_mode: int = 0
    persistence: bool = True
    lost: bool = False
    recovery_action: int = 0
    next_serial: int = 1
    instances: tuple[GpuInstance, ...] = ()
    processes: tuple[Process, ...] = ()
    nvlinks_down: tuple[int, ...] = ()
    remapped_rows: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Corrected, uncorrected, pending, failed."""
    ecc_errors: tuple[int, int] = (0, 0)
    """Corrected and uncorrected, since the driver was loaded."""
    temperature_c: int = 34
    nvlink_recoveries: int = 0
    memory_limits: tuple[MemoryLimit, ...] = ()
    renamed: tuple[Renamed, ...] = ()

    @property
    def model(self) -> Board:
        """The board's facts, MIG profiles in the words of this driver."""
        return _board(self.board) if not self.renamed else _renamed(self.board, self.renamed)

    @property
    def pci_bus_id(self) -> str:
        """As NVML writes it, 8-digit domain."""
        return f"00000000:{self.pci_bus:02X}:00.0"

    def profile(self, profile_id: int) -> BoardMigProfile | None:
        """The MIG profile that an id means on this board."""
        return next((each for each in self.model.mig if each.id == profile_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that an event wait reports."""

    __pydantic_config__ = _STRICT

    number: int
    uuid: str
    type: int
    data: int = 0
    gi_id: int | None = None
    ci_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that is to fail, on request."""

    __pydantic_config__ = _STRICT

    function: str
    code: int
    times: int = 1
    uuid: str = ""
    """The GPU it is to fail on; any if empty."""
    takes_effect: bool = False
    """Do what was asked and answer with the error nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds that the slow calls take; real drivers take about 0.2, 1 and, under load, 10.

    What they take is summed up in ``Machine.spent_s``; ``pace`` says how much of it is waited for.
    """

    __pydantic_config__ = _STRICT

    create_s: float = 0.0
    destroy_s: float = 0.0
    mode_s: float = 0.0
    walk_s: float = 0.0
    """Looking a MIG device up by index or UUID."""
    list_s: float = 0.0
    """Listing the instances of one MIG profile."""
    open_s: float = 0.0
    """Starting the library; a second or two without persistence mode."""
    pace: float = 1.0
    """Real seconds for a simulated one; 0 for a simulation that does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node's GPUs and their driver."""

    __pydantic_config__ = _STRICT

    format: int = FORMAT
    seed: str
    boot: int = 1
    driver_version: str = "580.95.05"
    nvml_version: str = "13.580.95.05"
    cuda_version: int = 13000
    driver_loaded: bool = True
    version_mismatch: bool = False
    """The driver was upgraded under running processes."""
    permission: Permission = Permission.ROOT
    mig_uuids_repeat: bool = True
    """Whether an instance made again has its old UUID, as the open kernel modules hash it."""
    delays: Delays = Delays()
    missing_functions: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    events: tuple[Event, ...] = ()
    next_event: int = 1
    spent_s: float = 0.0
    """Simulated seconds that slow calls have taken in all."""

    @property
    def driver_major(self) -> int:
        """The driver's branch, for example 580."""
        return int(self.driver_version.partition(".")[0])


@lru_cache(maxsize=64)
def _board(name: str) -> Board:
    return catalogue.load().board(name)


@lru_cache(maxsize=64)
def _renamed(name: str, changes: tuple[Renamed, ...]) -> Board:
    board, by_profile = _board(name), {change.profile: change for change in changes}
    profiles = []
    for each in board.mig:
        change = by_profile.get(str(each.profile))
        if change is None:
            profiles.append(each)
            continue
        memory_mib = change.memory_mib or each.memory_mib
        profile = MigProfile.parse(change.name)
        profiles.append(replace(each, profile=profile, memory_mib=memory_mib))
    return replace(board, mig=tuple(sorted(profiles, key=lambda each: each.profile)))
