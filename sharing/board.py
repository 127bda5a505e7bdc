"""A board is a GPU model with its hardware facts: values without behaviour beyond look-ups.

Three numbers of a MIG profile are easily confused. The *enum* is fixed by ``nvml.h``. The *id* is
what the driver's calls want; it differs between boards and is never identity. The id of a live
GPU instance is neither; see ``sharing.nvml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from sharing.errors import LayoutError, shown
from sharing.migprofile import MigProfile


class Architecture(StrEnum):
    """GPU generations, oldest first, as far as the catalogue goes."""

    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    UNKNOWN = "unknown"
    """A generation that this program has no word for; nothing is concluded from it."""


class Confidence(StrEnum):
    """How well a fact is known."""

    HARDWARE = "H"
    """Read from the output of real hardware, posted publicly."""
    GUIDE = "G"
    """Printed in NVIDIA's MIG User Guide."""
    PUBLISHED = "P"
    """Published elsewhere: a header file, a data sheet, the PCI ID Repository."""
    CONFIGURATION = "C"
    """Found in a configuration file, mock or test only; good for names, not for sizes."""
    INFERRED = "I"
    """Inferred from sibling boards; unverified. The driver decides at run time."""


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """Where a MIG instance lies on the board's grid, in units that only the board defines."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """First unit after the instance."""
        return self.start + self.size

    def overlaps(self, other: Placement) -> bool:
        """Whether both want a unit of the grid."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"{self.start}+{self.size}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact comes from and how far it may be trusted."""

    confidence: Confidence
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardMigProfile:
    """One MIG profile as one board offers it."""

    profile: MigProfile
    enum: int
    """Index in ``nvml.h``'s ``NVML_GPU_INSTANCE_PROFILE_*``."""
    id: int
    """What the driver's calls want; differs between boards."""
    memory_mib: int
    sms: int
    copy_engines: int
    decoders: int
    encoders: int
    jpegs: int
    ofas: int
    max_instances: int
    """How many an empty GPU takes."""
    placements: tuple[Placement, ...]
    """Every legal place, by start."""
    earliest_driver: str = ""
    """First driver that offers it, where that is later than the board's own."""

    @property
    def length(self) -> int:
        """Grid units that an instance takes."""
        return self.placements[0].size if self.placements else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU model: from the catalogue, or as the driver describes a GPU."""

    name: str
    product_names: tuple[str, ...]
    """As NVML's device name says it."""
    architecture: Architecture
    compute_capability: tuple[int, int]
    memory_mib: int
    """Total memory as NVML reports it; part of how MIG profiles are named."""
    sms: int
    """Streaming multiprocessors of the whole GPU; 0 where unknown."""
    pci_device_ids: tuple[int, ...] = ()
    earliest_driver: str = ""
    mig: tuple[BoardMigProfile, ...] = ()
    """Empty on boards without MIG; smallest profile first."""
    mig_slots: int = 0
    """Length of the placement grid: 8, 4 or 12 units, by board."""
    mig_compute_slices: int = 0
    resetless: bool = False
    """Whether MIG mode changes without a reset of the GPU (Hopper and later)."""
    sources: tuple[tuple[str, Source], ...] = ()

    @property
    def mig_capable(self) -> bool:
        """Whether the board can be partitioned by MIG."""
        return bool(self.mig)

    def mig_profile(self, profile: MigProfile) -> BoardMigProfile:
        """The board's facts about a MIG profile.

        Raises:
            LayoutError: The board does not offer it.
        """
        for offered in self.mig:
            if offered.profile == profile:
                return offered
        if not self.mig:
            raise LayoutError(
                f"board {self.name}",
                f"has no MIG, so it cannot hold {profile}",
                fix="use mode mps, time-slicing or exclusive on it",
            )
        names = ", ".join(str(offered.profile) for offered in self.mig)
        raise LayoutError(
            f"board {self.name}",
            f"does not offer MIG profile {shown(str(profile))}",
            expected=f"one of {names}",
            fix=f"take the profile that suits {profile.gpu_slices} slices on this board",
            example=str(self.nearest_mig_profile(profile).profile),
        )

    def nearest_mig_profile(self, profile: MigProfile) -> BoardMigProfile:
        """The offered profile most like another board's: slices first, then memory, then suffix."""
        return min(
            self.mig,
            key=lambda offered: (
                abs(offered.profile.gpu_slices - profile.gpu_slices),
                abs(offered.profile.memory_gb - profile.memory_gb),
                offered.profile.attributes != profile.attributes,
                offered.profile,
            ),
        )

    def source(self, fact: str, profile: MigProfile | None = None) -> Source:
        """Where a fact comes from, for example ``memory_mib``, or ``sms`` of a MIG profile.

        Raises:
            KeyError: Nobody recorded a source; a test keeps this from happening.
        """
        known = dict(self.sources)
        if profile is None:
            return known[fact]
        group = "engines" if fact in _MEDIA_ENGINES else fact
        return known.get(f"mig.{profile}.{group}") or known[f"mig.{group}"]


_MEDIA_ENGINES: Final = frozenset({"decoders", "encoders", "jpegs", "ofas"})

GPU_INSTANCE_ENUMS: Final[Mapping[int, tuple[int, str]]] = MappingProxyType(
    {
        0: (1, ""),
        1: (2, ""),
        2: (3, ""),
        3: (4, ""),
        4: (7, ""),
        5: (8, ""),
        6: (6, ""),
        7: (1, "+me"),
        8: (2, "+me"),
        9: (1, ""),
        10: (1, "+gfx"),
        11: (2, "+gfx"),
        12: (4, "+gfx"),
        13: (1, "-me"),
        14: (2, "-me"),
        15: (1, "+me.all"),
        16: (2, "+me.all"),
        17: (3, "+gfx"),
    }
)
"""Slices and name suffix by NVML's profile enum. 9 is the 1-slice profile of double memory.

Source: nvml.h of NVML 13.5, ``NVML_GPU_INSTANCE_PROFILE_*``.
"""

_EIGHTHS: Final = 8
_MIB_PER_GIB: Final = 1024


def mig_label_gb(profile_memory_mib: int, total_memory_mib: int) -> int:
    """The number before ``gb`` in a MIG profile's name.

    It is the profile's share of the board in eighths, rounded up, times the board's size in GiB,
    rounded up; the product is rounded half up. It is not the profile's own size: 16.0 GiB of an
    H200 are called ``18gb``.

    Source: NVIDIA/go-nvlib, ``pkg/nvlib/device/mig_profile.go``.
    """
    eighths = -(-_EIGHTHS * profile_memory_mib // total_memory_mib)
    total_gib = -(-total_memory_mib // _MIB_PER_GIB)
    return (2 * eighths * total_gib + _EIGHTHS) // (2 * _EIGHTHS)
