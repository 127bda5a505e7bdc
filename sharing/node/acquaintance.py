"""The GPUs that a node knows by sight: what they called their MIG profiles, and which are gone.

A driver may call a MIG profile otherwise than the one before it: the name is computed from memory
sizes. NVML's profile enum stays, so a layout that was written with an old name still means
something on a GPU that has used that name.

What is remembered of a GPU is forgotten when another one sits in its slot, or after a month
without it; a GPU that is lost for a day keeps its layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.observed import GpuState
from sharing.size import Size

FORGET_AFTER_DAYS: Final = 30
SECONDS_PER_DAY: Final = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquaintance:
    """What is remembered of one GPU."""

    pci_bus_id: str
    day: int
    """When it was seen last, days since the epoch."""
    profiles: Mapping[str, int] = field(default_factory=dict)
    """Every name that a MIG profile had on it, and NVML's enum of that profile."""


def acquainted(
    known: Mapping[str, Acquaintance], gpus: Iterable[GpuState], today: int
) -> dict[str, Acquaintance]:
    """Who is known after a look, by UUID.

    Args:
        known: Who was known before.
        gpus: All GPUs that the driver lists now.
        today: Days since the epoch.
    """
    listed = tuple(gpus)
    slots = {gpu.pci_bus_id for gpu in listed}
    there = {gpu.uuid for gpu in listed}
    kept = {
        uuid: one
        for uuid, one in known.items()
        if uuid in there or (one.pci_bus_id not in slots and today - one.day <= FORGET_AFTER_DAYS)
    }
    for gpu in listed:
        if not gpu.lost:
            before = kept[gpu.uuid].profiles if gpu.uuid in kept else {}
            now = {str(offer.profile): offer.enum for offer in gpu.board.mig}
            kept[gpu.uuid] = Acquaintance(
                pci_bus_id=gpu.pci_bus_id, day=today, profiles={**before, **now}
            )
    return dict(sorted(kept.items()))


def in_new_names(
    layout: GpuLayout, gpu: GpuState, known: Acquaintance | None
) -> tuple[GpuLayout, str]:
    """A layout in the names that the driver uses now, and a sentence if any differs.

    Names that this GPU never used stay, and are refused later.
    """
    if layout.mode is not Mode.MIG or known is None:
        return layout, ""
    offered = {offer.profile for offer in gpu.board.mig}
    by_enum = {offer.enum: offer.profile for offer in gpu.board.mig}
    renamed: dict[MigProfile, MigProfile] = {}
    for size, _ in layout.sizes:
        if isinstance(size, MigProfile) and size not in offered:
            enum = known.profiles.get(str(size))
            now = None if enum is None else by_enum.get(enum)
            if now is not None:
                renamed[size] = now
    if not renamed:
        return layout, ""
    sizes: tuple[tuple[Size, int], ...] = tuple(
        (renamed.get(size, size) if isinstance(size, MigProfile) else size, count)
        for size, count in layout.sizes
    )
    told = ", ".join(f"{old} is now {new}" for old, new in sorted(renamed.items()))
    cuts = tuple((renamed.get(profile, profile), cut) for profile, cut in layout.cuts)
    return (
        GpuLayout(mode=layout.mode, sizes=sizes, pool=layout.pool, cuts=cuts),
        f"the driver renamed MIG profiles: {told}; change the layout",
    )
