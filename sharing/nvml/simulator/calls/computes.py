# The signatures are NVML's.
# ruff: noqa: PLR0917
"""Compute instances: what makes a GPU instance a MIG device."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from sharing.nvml.codes import Code
from sharing.nvml.simulator import hardware
from sharing.nvml.simulator.hardware import RefusedError
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

_LAST_COMPUTE_ENUM: Final = 8
_COMPUTE_INFO_V2: Final = 0x02000088
_SHARED_ENGINES: Final = 0


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
