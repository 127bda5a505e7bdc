# The signatures are NVML's.
# ruff: noqa: PLR0917
"""MIG mode, GPU instances and compute instances."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from sharing.board import BoardMigProfile, Placement
from sharing.nvml.codes import Code, EventType
from sharing.nvml.simulator import hardware
from sharing.nvml.simulator.calls.devices import can_query
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.operate import with_event
from sharing.nvml.simulator.session import HandleKind, Session
from sharing.nvml.simulator.state import ComputeInstance, Gpu, GpuInstance, Machine
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
_LAST_COMPUTE_ENUM: Final = 8
_PROFILE_INFO_V2: Final = 0x02000098
_COMPUTE_INFO_V2: Final = 0x02000088
_SHARED_ENGINES: Final = 0


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


@export("nvmlDeviceGetGpuInstances", Privilege.CONFIG)
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


# Compute instances


@export("nvmlGpuInstanceGetComputeInstanceProfileInfo")
def compute_profile_info(
    session: Session, handle: Any, enum: Any, engines: Any, answer: Any
) -> None:
    """Facts of a compute-instance profile."""
    _fill_compute_profile(session, handle, (number(enum), number(engines)), answer)


@export("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
def compute_profile_info_v(
    session: Session, handle: Any, enum: Any, engines: Any, answer: Any
) -> None:
    """The same, with the name."""
    must_version(answer, _COMPUTE_INFO_V2)
    name = _fill_compute_profile(session, handle, (number(enum), number(engines)), answer)
    fill(answer, name=f"MIG {name}".encode())


@export("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", Privilege.CONFIG)
def compute_remaining_capacity(session: Session, handle: Any, profile_id: Any, answer: Any) -> None:
    """How many more compute instances of a profile fit into a GPU instance."""
    gpu, instance = session.gpu_instance(handle)
    wanted = _compute_by_id(gpu, instance, profile_id)
    room = hardware.compute_room(gpu, instance)
    put(answer, room // wanted.slices)


@export("nvmlGpuInstanceCreateComputeInstance", Privilege.CONFIG, delay="create_s")
def create_compute_instance(session: Session, handle: Any, profile_id: Any, answer: Any) -> None:
    """Create a compute instance; the MIG device comes into being."""
    gpu, instance = session.gpu_instance(handle)
    wanted = _compute_by_id(gpu, instance, profile_id)

    def step(machine: Machine, now: Gpu) -> tuple[Gpu, ComputeInstance]:
        return hardware.create_compute_instance(machine, now, instance.serial, wanted)

    made = session.change_gpu(gpu.uuid, step)
    put_address(answer, session.handle(HandleKind.COMPUTE_INSTANCE, gpu.uuid, made.serial))


@export("nvmlGpuInstanceGetComputeInstances", Privilege.CONFIG)
def compute_instances(
    session: Session, handle: Any, profile_id: Any, array: Any, amount: Any
) -> None:
    """Handles of the live compute instances of a profile in a GPU instance."""
    gpu, instance = session.gpu_instance(handle)
    wanted = _compute_by_id(gpu, instance, profile_id)
    live = [each for each in instance.compute if each.slices == wanted.slices]
    kind = HandleKind.COMPUTE_INSTANCE
    put_addresses(array, [session.handle(kind, gpu.uuid, each.serial) for each in live])
    put(amount, len(live))


@export("nvmlGpuInstanceGetComputeInstanceById", Privilege.CONFIG)
def compute_instance_by_id(session: Session, handle: Any, ci_id: Any, answer: Any) -> None:
    """Handle of the live compute instance that has an id now."""
    gpu, instance = session.gpu_instance(handle)
    for compute in instance.compute:
        if compute.id == number(ci_id):
            kind = HandleKind.COMPUTE_INSTANCE
            put_address(answer, session.handle(kind, gpu.uuid, compute.serial))
            return
    raise RefusedError(Code.NOT_FOUND, f"no compute instance {number(ci_id)}")


@export("nvmlComputeInstanceGetInfo_v2")
def compute_instance_info(session: Session, handle: Any, answer: Any) -> None:
    """Id, profile id and place; ``device`` is the MIG device, not the parent."""
    gpu, instance, compute = session.compute_instance(handle)
    found = next(each for each in _compute_profiles(gpu, instance) if each.slices == compute.slices)
    fill(answer, id=compute.id, profileId=found.id)
    place = target(answer).placement
    place.start, place.size = compute.start, compute.slices
    device = session.handle(HandleKind.MIG_DEVICE, gpu.uuid, compute.serial)
    put_field_address(answer, "device", device)
    parent = session.handle(HandleKind.GPU_INSTANCE, gpu.uuid, instance.serial)
    put_field_address(answer, "gpuInstance", parent)


@export("nvmlComputeInstanceDestroy", Privilege.CONFIG, delay="destroy_s")
def destroy_compute_instance(session: Session, handle: Any) -> None:
    """Destroy a compute instance that no process uses."""
    device = session.compute_instance(handle)

    def step(_machine: Machine, now: Gpu) -> tuple[Gpu, None]:
        return hardware.destroy_compute_instance(now, device.compute.serial), None

    session.change_gpu(device.gpu.uuid, step)


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


def _compute_profiles(gpu: Gpu, instance: GpuInstance) -> list[hardware.ComputeProfile]:
    profile = gpu.profile(instance.profile_id)
    return list(hardware.compute_profiles(profile)) if profile else []


def _compute_by_id(gpu: Gpu, instance: GpuInstance, profile_id: Any) -> hardware.ComputeProfile:
    for profile in _compute_profiles(gpu, instance):
        if profile.id == number(profile_id):
            return profile
    raise RefusedError(Code.INVALID_ARGUMENT, f"no compute profile id {number(profile_id)}")


def _fill_compute_profile(
    session: Session, handle: Any, enums: tuple[int, int], answer: Any
) -> str:
    """Write the facts and return the name of the MIG device that would come of it."""
    enum, engines = enums
    if not 0 <= enum <= _LAST_COMPUTE_ENUM or engines != _SHARED_ENGINES:
        raise RefusedError(Code.INVALID_ARGUMENT, f"no compute profile enum {enum}, {engines}")
    gpu, instance = session.gpu_instance(handle)
    parent = gpu.profile(instance.profile_id)
    fits = [each for each in _compute_profiles(gpu, instance) if each.id == enum]
    if not fits or parent is None:
        raise RefusedError(Code.NOT_SUPPORTED, f"no compute profile enum {enum} here")
    wanted = fits[0]
    write = partial(fill, answer)
    write(id=wanted.id, sliceCount=wanted.slices, instanceCount=wanted.most)
    write(multiprocessorCount=wanted.sms, sharedCopyEngineCount=parent.copy_engines)
    write(sharedDecoderCount=parent.decoders, sharedEncoderCount=parent.encoders)
    write(sharedJpegCount=parent.jpegs, sharedOfaCount=parent.ofas)
    return str(replace(parent.profile, compute_slices=wanted.slices))
