"""Reading one GPU in full: identity, modes, and every MIG instance with its place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from sharing import catalogue
from sharing.board import Architecture, Board, BoardMigProfile, Placement
from sharing.nvml.binding import Binding
from sharing.nvml.codes import (
    COMPUTE_ENUM_BY_SLICES,
    FIELD_RESETLESS_MIG,
    Code,
    ComputeMode,
    RecoveryAction,
)
from sharing.nvml.errors import NvmlError
from sharing.nvml.observed import MigInstance, ObservedGpu
from sharing.nvml.offering import differences, offered_profiles
from sharing.nvml.vitals import read_fields, read_link_count, read_slowdown_c, read_vitals

_MIB: Final = 1 << 20
_NODE_WORDS: Final = 4
_WORD_BITS: Final = 64
_SHARED_ENGINES: Final = 0
_ARCHITECTURES: Final = {
    5: Architecture.VOLTA,
    6: Architecture.TURING,
    7: Architecture.AMPERE,
    8: Architecture.ADA,
    9: Architecture.HOPPER,
    10: Architecture.BLACKWELL,
}
_NEEDS_RESET: Final = frozenset({Architecture.AMPERE, Architecture.UNKNOWN})


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What never changes about a GPU while the driver is open."""

    uuid: str
    minor: int
    product: str
    board: Board
    in_catalogue: bool
    pci_bus_id: str
    numa_node: int | None
    differences: tuple[str, ...]
    links: int = 0
    """NVLinks, up or down."""
    slowdown_c: int | None = None


@dataclass(slots=True)
class Memory:
    """What was read once and holds while the driver is open, by UUID."""

    facts: dict[str, GpuFacts] = field(default_factory=dict)
    compute_ids: dict[tuple[str, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Compute profile id and slices, by UUID and MIG profile id."""


def read_gpu(binding: Binding, handle: Any, index: int, memory: Memory) -> ObservedGpu:
    """Everything about a GPU as it is now.

    Raises:
        NvmlError: The GPU could not be read in full.
    """
    uuid = binding.text("DeviceGetUUID", handle, subject=f"GPU {index}")
    facts = memory.facts.get(uuid)
    if facts is None:
        facts = memory.facts[uuid] = _facts(binding, handle, uuid)
    subject = f"GPU {uuid}"
    current, pending = binding.attempt("DeviceGetMigMode", handle, default=(0, 0), subject=subject)
    mode = binding.attempt("DeviceGetComputeMode", handle, default=0, subject=subject)
    action, vitals = read_vitals(
        binding, handle, links=facts.links, slowdown_c=facts.slowdown_c, subject=subject
    )
    if current and not all(each.placements for each in facts.board.mig):
        facts = memory.facts[uuid] = _facts(binding, handle, uuid)
    return replace(
        from_facts(facts, index),
        mig_mode=bool(current),
        mig_pending=bool(pending),
        compute_mode=ComputeMode(mode) if mode in set(ComputeMode) else ComputeMode.DEFAULT,
        recovery_action=RecoveryAction(action)
        if action in set(RecoveryAction)
        else RecoveryAction.NONE,
        vitals=vitals,
        instances=_instances(binding, handle, facts, memory) if current else (),
    )


def from_facts(facts: GpuFacts, index: int) -> ObservedGpu:
    """A GPU of which only the lasting facts are known."""
    return ObservedGpu(
        uuid=facts.uuid,
        index=index,
        minor=facts.minor,
        product=facts.product,
        board=facts.board,
        in_catalogue=facts.in_catalogue,
        pci_bus_id=facts.pci_bus_id,
        numa_node=facts.numa_node,
        differences=facts.differences,
    )


def read_instance(binding: Binding, instance: Any, facts: GpuFacts, memory: Memory) -> MigInstance:
    """A GPU instance with what lies in it."""
    subject = f"MIG instance on GPU {facts.uuid}"
    info = binding.call("GpuInstanceGetInfo", instance, subject=subject)
    offered = _offered(facts.board, info.profileId, facts.uuid)
    whole = offered.profile.gpu_slices
    inside = _compute(binding, instance, offered, uuid=facts.uuid, memory=memory)
    uuid, memory_mib = None, offered.memory_mib
    if len(inside) == 1 and inside[0][1] == whole:
        uuid = _mig_uuid(binding, inside[0][0], facts.uuid, info.id)
    if uuid is not None:
        told = binding.call("DeviceGetMemoryInfo", inside[0][0].device, subject=subject)
        memory_mib = told.total // _MIB or memory_mib
    return MigInstance(
        gi_id=info.id,
        ci_ids=tuple(sorted(each.id for each, _ in inside)),
        profile=offered.profile,
        profile_id=info.profileId,
        placement=Placement(info.placement.start, info.placement.size),
        uuid=uuid,
        memory_mib=memory_mib,
    )


def _compute(
    binding: Binding, instance: Any, offered: BoardMigProfile, *, uuid: str, memory: Memory
) -> list[tuple[Any, int]]:
    """Information on each compute instance of a GPU instance, and its slices."""
    subject = f"MIG instance {offered.profile} on GPU {uuid}"
    key = (uuid, offered.id)
    if key not in memory.compute_ids:
        memory.compute_ids[key] = _compute_ids(binding, instance, subject)
    found = []
    for profile_id, slices in memory.compute_ids[key]:
        handles = binding.filled(
            "GpuInstanceGetComputeInstances",
            "c_nvmlComputeInstance_t",
            instance,
            profile_id,
            subject=subject,
        )
        for handle in handles:
            info = binding.call("ComputeInstanceGetInfo_v2", handle, subject=subject)
            found.append((info, slices))
    return found


def _instances(
    binding: Binding, handle: Any, facts: GpuFacts, memory: Memory
) -> tuple[MigInstance, ...]:
    found = []
    for offered in facts.board.mig:
        handles = binding.filled(
            "DeviceGetGpuInstances",
            "c_nvmlGpuInstance_t",
            handle,
            offered.id,
            subject=f"GPU {facts.uuid}",
        )
        found += [read_instance(binding, each, facts, memory) for each in handles]
    return tuple(sorted(found, key=lambda each: (each.placement, each.gi_id)))


def _facts(binding: Binding, handle: Any, uuid: str) -> GpuFacts:
    subject = f"GPU {uuid}"
    product = binding.text("DeviceGetName", handle, subject=subject)
    total_mib = binding.call("DeviceGetMemoryInfo", handle, subject=subject).total // _MIB
    known = catalogue.load().of_product(product, memory_mib=total_mib)
    board = _board(binding, handle, uuid=uuid, product=product, total_mib=total_mib, known=known)
    pci = binding.call("DeviceGetPciInfo", handle, subject=subject)
    bus_id = pci.busId.decode() if isinstance(pci.busId, bytes) else str(pci.busId)
    return GpuFacts(
        uuid=uuid,
        minor=binding.call("DeviceGetMinorNumber", handle, subject=subject),
        product=product,
        board=board,
        in_catalogue=known is not None,
        pci_bus_id=bus_id,
        numa_node=_numa_node(binding, handle, uuid),
        differences=differences(board, known) if known else (),
        links=read_link_count(binding, handle, subject),
        slowdown_c=read_slowdown_c(binding, handle, subject),
    )


def _board(
    binding: Binding,
    handle: Any,
    *,
    uuid: str,
    product: str,
    total_mib: int,
    known: Board | None,
) -> Board:
    subject = f"GPU {uuid}"
    number = binding.attempt("DeviceGetArchitecture", handle, default=0, subject=subject)
    architecture = _ARCHITECTURES.get(number, Architecture.UNKNOWN)
    profiles = offered_profiles(binding, handle, uuid=uuid, total_mib=total_mib, known=known)
    ends = [place.end for each in profiles for place in each.placements]
    (resetless,) = read_fields(binding, handle, (FIELD_RESETLESS_MIG,), subject)
    guess = bool(profiles) and architecture not in _NEEDS_RESET
    return Board(
        name=known.name if known else product,
        product_names=(product,),
        architecture=architecture,
        compute_capability=tuple(
            binding.call("DeviceGetCudaComputeCapability", handle, subject=subject)
        ),
        memory_mib=total_mib,
        sms=known.sms if known else max((each.sms for each in profiles), default=0),
        pci_device_ids=known.pci_device_ids if known else (),
        earliest_driver=known.earliest_driver if known else "",
        mig=profiles,
        mig_slots=max(ends, default=0),
        mig_compute_slices=max((each.profile.gpu_slices for each in profiles), default=0),
        resetless=guess if resetless is None else bool(resetless),
        sources=known.sources if known else (),
    )


def _offered(board: Board, profile_id: int, uuid: str) -> BoardMigProfile:
    for each in board.mig:
        if each.id == profile_id:
            return each
    raise NvmlError(
        f"GPU {uuid}",
        f"holds an instance of MIG profile id {profile_id}, which it does not offer",
        fix="open the driver again: its profiles changed",
    )


def _compute_ids(binding: Binding, instance: Any, subject: str) -> tuple[tuple[int, int], ...]:
    found = []
    for slices, enum in sorted(COMPUTE_ENUM_BY_SLICES.items(), reverse=True):
        info = compute_profile(binding, instance, enum, subject)
        if info is not None:
            found.append((info.id, slices))
    return tuple(found)


def compute_profile(binding: Binding, instance: Any, enum: int, subject: str) -> Any:
    """A compute-instance profile of a GPU instance; None if it does not have it."""
    name = "GpuInstanceGetComputeInstanceProfileInfo"
    for version in (2, 1):
        found = binding.attempt(
            name, instance, enum, _SHARED_ENGINES, version, default=None, subject=subject
        )
        if found is not None:
            return found
    return None


def _mig_uuid(binding: Binding, info: Any, uuid: str, gi_id: int) -> str | None:
    """The UUID of the MIG device that a compute instance is.

    nvml.h calls the field ``device`` the parent, real drivers put the MIG device there. Whoever
    answers with the parent is asked again the slow way, by walking the MIG devices.
    """
    found = binding.text("DeviceGetUUID", info.device, subject=f"GPU {uuid}")
    if found.startswith("MIG-"):
        return found
    parent = info.device
    most = binding.call("DeviceGetMaxMigDeviceCount", parent, subject=f"GPU {uuid}")
    for index in range(most):
        device = _mig_device(binding, parent, index, uuid)
        if device is None:
            continue
        place = (
            binding.call("DeviceGetGpuInstanceId", device, subject=f"GPU {uuid}"),
            binding.call("DeviceGetComputeInstanceId", device, subject=f"GPU {uuid}"),
        )
        if place == (gi_id, info.id):
            return binding.text("DeviceGetUUID", device, subject=f"GPU {uuid}")
    return None


def _mig_device(binding: Binding, parent: Any, index: int, uuid: str) -> Any:
    """The MIG device at an index; indices have holes, for which drivers answer differently."""
    try:
        return binding.call("DeviceGetMigDeviceHandleByIndex", parent, index, subject=f"GPU {uuid}")
    except NvmlError as error:
        if error.code in {Code.NOT_FOUND, Code.INVALID_ARGUMENT}:
            return None
        raise


def _numa_node(binding: Binding, handle: Any, uuid: str) -> int | None:
    words = binding.attempt(
        "DeviceGetMemoryAffinity", handle, _NODE_WORDS, 0, default=(), subject=f"GPU {uuid}"
    )
    nodes = [
        index * _WORD_BITS + bit
        for index, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if word >> bit & 1
    ]
    return nodes[0] if len(nodes) == 1 else None
