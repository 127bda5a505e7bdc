# The signatures are NVML's.
# ruff: noqa: PLR0917
"""MIG mode, MIG profiles and GPU instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sharing.board import BoardMigProfile, Placement
from sharing.nvml.codes import Code, EventType
from sharing.nvml.simulator import hardware
from sharing.nvml.simulator.calls.devices import can_query
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.operate import with_event
from sharing.nvml.simulator.session import HandleKind, Session
from sharing.nvml.simulator.state import Gpu, GpuInstance, Machine
from sharing.nvml.simulator.symbols import (
    Privilege,
    export,
    fill,
    must_version,
    number,
    put,
    put_address,
    put_addresses,
    put_field_address,
    target,
)

_LAST_ENUM: Final = 17
_PROFILE_INFO_V2: Final = 0x02000098


@export("nvmlDeviceGetMigMode")
def mig_mode(session: Session, handle: Any, current: Any, pending: Any) -> None:
    """MIG mode in force, and the one that the next reset brings."""
    gpu = _capable(session.gpu(handle))
    put(current, int(gpu.mig_current))
    put(pending, int(gpu.mig_pending))


@export("nvmlDeviceSetMigMode", Privilege.ROOT, delay="mode_s")
def set_mig_mode(session: Session, handle: Any, mode: Any, activation: Any) -> None:
    """Ask for a MIG mode; whether it came into force is in the activation status."""
    gpu, wanted = session.gpu(handle), number(mode)
    if wanted not in {0, 1}:
        raise RefusedError(Code.INVALID_ARGUMENT, f"no MIG mode {wanted}")

    def step(machine: Machine) -> tuple[Machine, Code]:
        now = next(each for each in machine.gpus if each.uuid == gpu.uuid)
        after, status = hardware.set_mig_mode(now, on=bool(wanted))
        gpus = tuple(after if each is now else each for each in machine.gpus)
        changed = replace(machine, gpus=gpus)
        if after.mig_current != now.mig_current:
            changed = with_event(changed, gpu.uuid, EventType.MIG_CONFIG_CHANGE)
        return changed, status

    put(activation, int(session.store.change(step)))


# What the board offers


@export("nvmlDeviceGetGpuInstanceProfileInfo")
def profile_info(session: Session, handle: Any, enum: Any, answer: Any) -> None:
    """Facts of the MIG profile of an enum."""
    _fill_profile(answer, _by_enum(session, handle, number(enum)))


@export("nvmlDeviceGetGpuInstanceProfileInfoV")
def profile_info_v(session: Session, handle: Any, enum: Any, answer: Any) -> None:
    """The same, with the name."""
    must_version(answer, _PROFILE_INFO_V2)
    profile = _by_enum(session, handle, number(enum))
    _fill_profile(answer, profile)
    fill(answer, name=f"MIG {profile.profile}".encode())


@export("nvmlDeviceGetGpuInstanceProfileInfoByIdV")
def profile_info_by_id(session: Session, handle: Any, profile_id: Any, answer: Any) -> None:
    """The same, by id."""
    must_version(answer, _PROFILE_INFO_V2)
    profile = _by_id(session, session.gpu(handle), profile_id)
    _fill_profile(answer, profile)
    fill(answer, name=f"MIG {profile.profile}".encode())


@export("nvmlDeviceGetGpuInstancePossiblePlacements_v2", Privilege.CONFIG)
def possible_placements(
    session: Session, handle: Any, profile_id: Any, placements: Any, amount: Any
) -> None:
    """Every legal place of a MIG profile, whether free or not."""
    gpu = session.gpu(handle)
    _must_be_listable(session.machine(), gpu)
    legal = _by_id(session, gpu, profile_id).placements
    if placements is not None:
        if target(amount).value < len(legal):
            raise RefusedError(Code.INSUFFICIENT_SIZE, f"{len(legal)} places")
        array = getattr(placements, "_obj", placements)
        for index, placement in enumerate(legal):
            array[index].start, array[index].size = placement.start, placement.size
    put(amount, len(legal))


@export("nvmlDeviceGetGpuInstanceRemainingCapacity", Privilege.CONFIG)
def remaining_capacity(session: Session, handle: Any, profile_id: Any, answer: Any) -> None:
    """How many more instances of a MIG profile fit now."""
    gpu = session.gpu(handle)
    _must_be_listable(session.machine(), gpu)
    put(answer, hardware.remaining_capacity(gpu, _by_id(session, gpu, profile_id)))


# GPU instances


@export("nvmlDeviceCreateGpuInstance", Privilege.CONFIG, delay="create_s")
def create_gpu_instance(session: Session, handle: Any, profile_id: Any, answer: Any) -> None:
    """Create a GPU instance where the driver likes: as high as possible."""
    _create(session, handle, profile_id, None, answer)


@export("nvmlDeviceCreateGpuInstanceWithPlacement", Privilege.CONFIG, delay="create_s")
def create_gpu_instance_at(
    session: Session, handle: Any, profile_id: Any, placement: Any, answer: Any
) -> None:
    """Create a GPU instance in a place."""
    at = target(placement)
    _create(session, handle, profile_id, Placement(at.start, at.size), answer)


@export("nvmlDeviceGetGpuInstances", Privilege.CONFIG, delay="list_s")
def gpu_instances(session: Session, handle: Any, profile_id: Any, array: Any, amount: Any) -> None:
    """Handles of the live GPU instances of a MIG profile."""
    gpu = session.gpu(handle)
    hardware.must_be_on(gpu)
    profile = _by_id(session, gpu, profile_id)
    live = [each for each in gpu.instances if each.profile_id == profile.id]
    live.sort(key=lambda each: each.id)
    kind = HandleKind.GPU_INSTANCE
    put_addresses(array, [session.handle(kind, gpu.uuid, each.serial) for each in live])
    put(amount, len(live))


@export("nvmlDeviceGetGpuInstanceById", Privilege.CONFIG)
def gpu_instance_by_id(session: Session, handle: Any, gi_id: Any, answer: Any) -> None:
    """Handle of the live GPU instance that has an id now."""
    gpu = session.gpu(handle)
    hardware.must_be_on(gpu)
    for instance in gpu.instances:
        if instance.id == number(gi_id):
            put_address(answer, session.handle(HandleKind.GPU_INSTANCE, gpu.uuid, instance.serial))
            return
    raise RefusedError(Code.NOT_FOUND, f"no GPU instance {number(gi_id)}")


@export("nvmlGpuInstanceGetInfo")
def gpu_instance_info(session: Session, handle: Any, answer: Any) -> None:
    """Id, MIG profile id, place and parent of a GPU instance."""
    gpu, instance = session.gpu_instance(handle)
    fill(answer, id=instance.id, profileId=instance.profile_id)
    place = target(answer).placement
    place.start, place.size = instance.start, instance.size
    put_field_address(answer, "device", session.handle(HandleKind.GPU, gpu.uuid))


@export("nvmlGpuInstanceDestroy", Privilege.CONFIG, delay="destroy_s")
def destroy_gpu_instance(session: Session, handle: Any) -> None:
    """Destroy a GPU instance that holds no compute instance any more."""
    gpu, instance = session.gpu_instance(handle)

    def step(_machine: Machine, now: Gpu) -> tuple[Gpu, None]:
        return hardware.destroy_gpu_instance(now, instance.serial), None

    session.change_gpu(gpu.uuid, step)


def _create(
    session: Session, handle: Any, profile_id: Any, placement: Placement | None, answer: Any
) -> None:
    gpu = session.gpu(handle)
    profile = _by_id(session, gpu, profile_id)

    def step(_machine: Machine, now: Gpu) -> tuple[Gpu, GpuInstance]:
        return hardware.create_gpu_instance(now, profile, placement)

    made = session.change_gpu(gpu.uuid, step)
    put_address(answer, session.handle(HandleKind.GPU_INSTANCE, gpu.uuid, made.serial))


def _capable(gpu: Gpu) -> Gpu:
    if not gpu.model.mig_capable:
        raise RefusedError(Code.NOT_SUPPORTED, f"{gpu.board} has no MIG")
    return gpu


def _must_be_listable(machine: Machine, gpu: Gpu) -> None:
    if not gpu.mig_current and not can_query(machine, _capable(gpu)):
        raise RefusedError(Code.NOT_SUPPORTED, "MIG mode is off and the driver is old")


def _by_enum(session: Session, handle: Any, enum: int) -> BoardMigProfile:
    if not 0 <= enum <= _LAST_ENUM:
        raise RefusedError(Code.INVALID_ARGUMENT, f"no MIG profile enum {enum}")
    gpu = _capable(session.gpu(handle))
    for profile in hardware.offered(session.machine(), gpu):
        if profile.enum == enum:
            return profile
    raise RefusedError(Code.NOT_SUPPORTED, f"{gpu.board} does not offer enum {enum}")


def _by_id(session: Session, gpu: Gpu, profile_id: Any) -> BoardMigProfile:
    for profile in hardware.offered(session.machine(), _capable(gpu)):
        if profile.id == number(profile_id):
            return profile
    raise RefusedError(Code.INVALID_ARGUMENT, f"no MIG profile id {number(profile_id)}")


def _fill_profile(answer: Any, profile: BoardMigProfile) -> None:
    fill(
        answer,
        id=profile.id,
        isP2pSupported=0,
        sliceCount=profile.profile.gpu_slices,
        instanceCount=profile.max_instances,
        multiprocessorCount=profile.sms,
        copyEngineCount=profile.copy_engines,
        decoderCount=profile.decoders,
        encoderCount=profile.encoders,
        jpegCount=profile.jpegs,
        ofaCount=profile.ofas,
        memorySizeMB=profile.memory_mib,
    )
