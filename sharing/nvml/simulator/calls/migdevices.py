"""MIG devices: the slow walk over indices, and the way from a device to what it lies in."""

from __future__ import annotations

from typing import Any

from sharing.nvml.codes import Code
from sharing.nvml.simulator import hardware
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.session import HandleKind, MigDevice, Session
from sharing.nvml.simulator.symbols import export, number, put, put_address


@export("nvmlDeviceGetMaxMigDeviceCount")
def max_count(session: Session, handle: Any, answer: Any) -> None:
    """How many MIG device indices there are; many of them empty."""
    put(answer, session.gpu(handle).model.mig_compute_slices)


@export("nvmlDeviceGetMigDeviceHandleByIndex", delay="walk_s")
def handle_by_index(session: Session, handle: Any, index: Any, answer: Any) -> None:
    """Handle of the MIG device at an index."""
    gpu = session.gpu(handle)
    hardware.must_be_on(gpu)
    devices = hardware.mig_devices(gpu)
    if not 0 <= number(index) < len(devices):
        raise RefusedError(Code.INVALID_ARGUMENT, "index out of range")
    found = devices[number(index)]
    if found is None:
        raise RefusedError(Code.NOT_FOUND, "no MIG device at this index")
    put_address(answer, session.handle(HandleKind.MIG_DEVICE, gpu.uuid, found[1].serial))


@export("nvmlDeviceIsMigDeviceHandle")
def is_mig_device(session: Session, handle: Any, answer: Any) -> None:
    """Whether a handle is a MIG device's."""
    put(answer, int(isinstance(session.device(handle), MigDevice)))


@export("nvmlDeviceGetGpuInstanceId")
def gpu_instance_id(session: Session, handle: Any, answer: Any) -> None:
    """Id of the GPU instance that a MIG device lies in."""
    put(answer, session.mig_device(handle).instance.id)


@export("nvmlDeviceGetComputeInstanceId")
def compute_instance_id(session: Session, handle: Any, answer: Any) -> None:
    """Id of the compute instance that a MIG device is."""
    put(answer, session.mig_device(handle).compute.id)


@export("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
def parent(session: Session, handle: Any, answer: Any) -> None:
    """Handle of the GPU that a MIG device is a part of."""
    put_address(answer, session.handle(HandleKind.GPU, session.mig_device(handle).gpu.uuid))
