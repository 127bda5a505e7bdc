"""What the hardware and its driver allow: functions from a GPU's state to its next state.

Written from NVIDIA's documents and without the planner's code, so that a plan which works here was
not merely agreed with itself. Where the documents leave a choice, the less convenient one is
taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sharing.board import Architecture, BoardMigProfile, Placement
from sharing.nvml.codes import Code
from sharing.nvml.simulator.state import ComputeInstance, Gpu, GpuInstance, Machine, ProcessKind

_NAMESPACE = uuid.UUID("6f1ff0a1-3f0a-5e35-8d5e-8a1d4c1c3a55")
_FIRST_MIG_UUID_DRIVER = 470


class RefusedError(Exception):
    """The driver says no."""

    def __init__(self, code: Code, why: str) -> None:
        self.code = code
        self.why = why
        super().__init__(f"{code.name}: {why}")


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """One compute-instance profile of a GPU instance."""

    id: int
    slices: int
    most: int
    sms: int


# MIG mode


def set_mig_mode(gpu: Gpu, *, on: bool) -> tuple[Gpu, Code]:
    """Ask for a MIG mode; returns the activation status, which is not the call's own code.

    Before Hopper the change waits, pending, until the GPU is idle and can be reset; from Hopper on
    it happens at once or not at all.
    """
    if not gpu.model.mig_capable:
        raise RefusedError(Code.NOT_SUPPORTED, f"{gpu.board} has no MIG")
    if gpu.mig_current == on:
        return replace(gpu, mig_pending=on), Code.SUCCESS
    if gpu.passed_through:
        return replace(gpu, mig_pending=on), Code.RESET_REQUIRED
    if gpu.instances or _holders(gpu):
        pending = gpu.mig_current if gpu.model.resetless else on
        return replace(gpu, mig_pending=pending), Code.IN_USE
    return replace(gpu, mig_current=on, mig_pending=on), Code.SUCCESS


def reset(gpu: Gpu) -> Gpu:
    """Reset a GPU: instances go, a pending mode comes into force, faults are over.

    Raises:
        RefusedError: Something uses the GPU.
    """
    if gpu.processes:
        pids = ", ".join(str(process.pid) for process in gpu.processes)
        raise RefusedError(Code.IN_USE, f"processes use it: {pids}")
    return replace(
        gpu,
        instances=(),
        mig_current=gpu.mig_pending,
        lost=False,
        recovery_action=0,
        remapped_rows=(*gpu.remapped_rows[:2], 0, gpu.remapped_rows[3]),
        ecc_errors=(0, 0),
        nvlinks_down=(),
        memory_limits=(),
    )


def reboot(gpu: Gpu) -> Gpu:
    """What is left of a GPU's state after the node has started again.

    Instances and compute mode are lost everywhere. MIG mode is kept in the InfoROM before Hopper,
    and lasts only as long as the kernel modules stay loaded from Hopper on.
    """
    idle = reset(replace(gpu, processes=()))
    mode = False if gpu.model.resetless else idle.mig_current
    return replace(idle, mig_current=mode, mig_pending=mode, compute_mode=0)


def _holders(gpu: Gpu) -> bool:
    """Whether a process is in the way of a mode change; clients only matter before Hopper."""
    kinds = {process.kind for process in gpu.processes}
    return bool(kinds if not gpu.model.resetless else kinds - {ProcessKind.MONITOR})


# GPU instances


def offered(machine: Machine, gpu: Gpu) -> tuple[BoardMigProfile, ...]:
    """The MIG profiles that this driver offers on this board."""
    return tuple(
        each
        for each in gpu.model.mig
        if not each.earliest_driver
        or machine.driver_major >= int(each.earliest_driver.partition(".")[0])
    )


def legal_now(gpu: Gpu, profile: BoardMigProfile) -> list[Placement]:
    """Where an instance could be created now, lowest start first."""
    if not _counts_allow(gpu, profile):
        return []
    taken = {unit for each in gpu.instances for unit in _units(each.placement)}
    return [at for at in profile.placements if not taken & set(_units(at))]


def remaining_capacity(gpu: Gpu, profile: BoardMigProfile) -> int:
    """How many more instances of a profile fit beside what is there."""
    count = 0
    while places := legal_now(gpu, profile):
        gpu = _with_instance(gpu, profile, places[-1])
        count += 1
    return count


def create_gpu_instance(
    gpu: Gpu, profile: BoardMigProfile, placement: Placement | None
) -> tuple[Gpu, GpuInstance]:
    """Create a GPU instance where asked, or in the highest free place.

    Raises:
        RefusedError: INVALID_ARGUMENT for a place that the profile can never have,
            INSUFFICIENT_RESOURCES for one that is taken or an engine, slice or count that is
            used up, NOT_SUPPORTED while MIG mode is off.
    """
    must_be_on(gpu)
    if placement is not None and placement not in profile.placements:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{profile.profile} cannot start at {placement}")
    free = legal_now(gpu, profile)
    if not free or (placement is not None and placement not in free):
        raise RefusedError(Code.INSUFFICIENT_RESOURCES, f"no room for {profile.profile}")
    grown = _with_instance(gpu, profile, placement or free[-1])
    return grown, grown.instances[-1]


def destroy_gpu_instance(gpu: Gpu, serial: int) -> Gpu:
    """Destroy a GPU instance that has no compute instance any more."""
    instance = gpu_instance(gpu, serial)
    if instance.compute:
        raise RefusedError(Code.IN_USE, f"GPU instance {instance.id} has compute instances")
    left = tuple(each for each in gpu.instances if each.serial != serial)
    return replace(gpu, instances=left)


def gpu_instance(gpu: Gpu, serial: int) -> GpuInstance:
    """The live GPU instance that a handle means."""
    for instance in gpu.instances:
        if instance.serial == serial:
            return instance
    raise RefusedError(Code.NOT_FOUND, "the GPU instance is gone")


def must_be_on(gpu: Gpu) -> None:
    """Refuse while MIG mode is off."""
    if not gpu.mig_current:
        raise RefusedError(Code.NOT_SUPPORTED, "MIG mode is off")


def _with_instance(gpu: Gpu, profile: BoardMigProfile, at: Placement) -> Gpu:
    made = GpuInstance(
        id=_free_id(gpu, at),
        profile_id=profile.id,
        start=at.start,
        size=at.size,
        serial=gpu.next_serial,
    )
    return replace(gpu, instances=(*gpu.instances, made), next_serial=gpu.next_serial + 1)


def _free_id(gpu: Gpu, at: Placement) -> int:
    """The driver's number for a new instance: by share of the grid, reused, not by start.

    0 is the whole, 1 and 2 are halves, 3 to 6 quarters, 7 to 14 eighths. Seven 1g of an H100 were
    seen with 7, 8, 9, 11, 12, 13 and 14, so from Hopper on the fourth number comes last.
    """
    parts = gpu.model.mig_slots // at.size
    numbers = list(range(parts - 1, 2 * parts - 1))
    if gpu.model.architecture is not Architecture.AMPERE and len(numbers) == 8:  # noqa: PLR2004 - eighths
        numbers.append(numbers.pop(3))
    used = {instance.id for instance in gpu.instances}
    return next(number for number in numbers if number not in used)


def _counts_allow(gpu: Gpu, profile: BoardMigProfile) -> bool:
    """Whether instance maximum, compute slices and media engines leave room for one more."""
    board = gpu.model
    there = [each for each in map(gpu.profile, (gi.profile_id for gi in gpu.instances)) if each]
    if sum(each.id == profile.id for each in there) >= profile.max_instances:
        return False
    together = [*there, profile]
    if sum(each.profile.gpu_slices for each in together) > board.mig_compute_slices:
        return False
    limits = [max(column) for column in zip(*map(_engines, board.mig), strict=True)]
    used = [sum(column) for column in zip(*map(_engines, together), strict=True)]
    return all(have >= want for have, want in zip(limits, used, strict=True))


def _engines(profile: BoardMigProfile) -> tuple[int, int, int, int]:
    return (profile.decoders, profile.encoders, profile.jpegs, profile.ofas)


def _units(placement: Placement) -> Iterator[int]:
    return iter(range(placement.start, placement.end))


# Compute instances


def compute_profiles(profile: BoardMigProfile) -> Iterator[ComputeProfile]:
    """The compute-instance profiles of a GPU instance; ids are numbered as the enums are."""
    whole = profile.profile.gpu_slices
    for enum, slices in enumerate((1, 2, 3, 4, 7, 8, 6)):
        if slices <= whole:
            sms = profile.sms * slices // whole
            yield ComputeProfile(enum, slices, whole // slices, sms)


def create_compute_instance(
    machine: Machine, gpu: Gpu, serial: int, profile: ComputeProfile
) -> tuple[Gpu, ComputeInstance]:
    """Create a compute instance in the first place that takes it; the MIG device exists then."""
    instance = gpu_instance(gpu, serial)
    parent = gpu.profile(instance.profile_id)
    whole = parent.profile.gpu_slices if parent else instance.size
    taken = {n for each in instance.compute for n in range(each.start, each.start + each.slices)}
    starts = range(whole - profile.slices + 1)
    fits = (s for s in starts if not taken & set(range(s, s + profile.slices)))
    start = next(fits, None)
    if start is None:
        raise RefusedError(Code.INSUFFICIENT_RESOURCES, f"GPU instance {instance.id} has no room")
    used = {each.id for each in instance.compute}
    made_id = next(number for number in range(whole) if number not in used)
    made = ComputeInstance(
        id=made_id,
        slices=profile.slices,
        start=start,
        uuid=_mig_uuid(machine, gpu, instance, made_id),
        serial=gpu.next_serial,
    )
    grown = replace(instance, compute=(*instance.compute, made))
    return replace(_with(gpu, grown), next_serial=gpu.next_serial + 1), made


def compute_room(gpu: Gpu, instance: GpuInstance) -> int:
    """Slices of a GPU instance that no compute instance has."""
    parent = gpu.profile(instance.profile_id)
    whole = parent.profile.gpu_slices if parent else 0
    return whole - sum(each.slices for each in instance.compute)


def destroy_compute_instance(gpu: Gpu, serial: int) -> Gpu:
    """Destroy a compute instance that no process uses."""
    instance, compute = compute_instance(gpu, serial)
    users = [
        each.pid for each in gpu.processes if (each.gi_id, each.ci_id) == (instance.id, compute.id)
    ]
    if users:
        pids = ", ".join(str(pid) for pid in users)
        raise RefusedError(Code.IN_USE, f"processes use compute instance {compute.id}: {pids}")
    left = tuple(each for each in instance.compute if each.serial != serial)
    return _with(gpu, replace(instance, compute=left))


def compute_instance(gpu: Gpu, serial: int) -> tuple[GpuInstance, ComputeInstance]:
    """The live compute instance that a handle means, and what it lies in."""
    for instance in gpu.instances:
        for compute in instance.compute:
            if compute.serial == serial:
                return instance, compute
    raise RefusedError(Code.NOT_FOUND, "the compute instance is gone")


def mig_devices(gpu: Gpu) -> list[tuple[GpuInstance, ComputeInstance] | None]:
    """MIG devices by index. An index is a place, so holes stay where nothing is."""
    most = gpu.model.mig_compute_slices
    devices: list[tuple[GpuInstance, ComputeInstance] | None] = [None] * most
    step = max(1, gpu.model.mig_slots // most) if most else 1
    for instance in sorted(gpu.instances, key=lambda each: each.start):
        for compute in instance.compute:
            first = min(instance.start // step + compute.start, most - 1)
            order: Iterable[int] = (*range(first, most), *range(first - 1, -1, -1))
            devices[next(n for n in order if devices[n] is None)] = (instance, compute)
    return devices


def _with(gpu: Gpu, instance: GpuInstance) -> Gpu:
    same = (instance if each.serial == instance.serial else each for each in gpu.instances)
    return replace(gpu, instances=tuple(same))


def _mig_uuid(machine: Machine, gpu: Gpu, instance: GpuInstance, ci_id: int) -> str:
    if machine.driver_major < _FIRST_MIG_UUID_DRIVER:
        return f"MIG-{gpu.uuid}/{instance.id}/{ci_id}"
    what = f"{gpu.uuid} {instance.profile_id} {instance.start} {ci_id}"
    if not machine.mig_uuids_repeat:
        what += f" {machine.boot} {gpu.next_serial}"
    return f"MIG-{uuid.uuid5(_NAMESPACE, what)}"
