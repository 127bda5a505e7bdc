# The signatures are NVML's.
"""Devices: handles, identity, memory, modes."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, Final

from sharing.board import Architecture
from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code, ComputeMode
from sharing.nvml.simulator.hardware import RefusedError, mig_devices
from sharing.nvml.simulator.session import HandleKind, MigDevice, Session
from sharing.nvml.simulator.state import Gpu, Machine
from sharing.nvml.simulator.symbols import (
    Privilege,
    export,
    fill,
    must_version,
    number,
    put,
    put_address,
    put_text,
    target,
)

_MIB: Final = 1 << 20
_MEMORY_V2: Final = 0x02000028
_RESERVED_MIB: Final = 640
_NVIDIA: Final = 0x10DE
LAST_WITHOUT_QUERY: Final = 535
"""Drivers up to about R535 list MIG placements only while MIG mode is on."""
_ARCHITECTURES: Final = {
    Architecture.VOLTA: 5,
    Architecture.TURING: 6,
    Architecture.AMPERE: 7,
    Architecture.ADA: 8,
    Architecture.HOPPER: 9,
    Architecture.BLACKWELL: 10,
    Architecture.UNKNOWN: 0xFFFFFFFF,
}


@export("nvmlDeviceGetCount_v2")
def count(session: Session, answer: Any) -> None:
    """Number of GPUs."""
    put(answer, len(session.machine().gpus))


@export("nvmlDeviceGetHandleByIndex_v2")
def handle_by_index(session: Session, index: Any, answer: Any) -> None:
    """Handle of the GPU at an index."""
    gpus = session.machine().gpus
    if not 0 <= number(index) < len(gpus):
        raise RefusedError(Code.INVALID_ARGUMENT, "index out of range")
    _answer_gpu(session, gpus[number(index)], answer)


@export("nvmlDeviceGetHandleByUUID")
def handle_by_uuid(session: Session, uuid: Any, answer: Any) -> None:
    """Handle of a GPU or a MIG device."""
    wanted = (uuid.value if hasattr(uuid, "value") else uuid or b"").decode(errors="replace")
    for gpu in session.machine().gpus:
        if gpu.uuid == wanted:
            _answer_gpu(session, gpu, answer)
            return
        for found in mig_devices(gpu) if not gpu.lost and gpu.instances else ():
            if found and found[1].uuid == wanted:
                address = session.handle(HandleKind.MIG_DEVICE, gpu.uuid, found[1].serial)
                put_address(answer, address)
                return
    raise RefusedError(Code.NOT_FOUND, f"no device {wanted}")


@export("nvmlDeviceGetHandleByPciBusId_v2")
def handle_by_pci_bus_id(session: Session, bus_id: Any, answer: Any) -> None:
    """Handle of the GPU at a PCI address, the domain in 4 or 8 digits."""
    text = (bus_id.value if hasattr(bus_id, "value") else bus_id or b"").decode(errors="replace")
    for gpu in session.machine().gpus:
        if gpu.pci_bus_id.upper().endswith(text.upper()) and len(text) >= len("0000:00:00.0"):
            _answer_gpu(session, gpu, answer)
            return
    raise RefusedError(Code.NOT_FOUND, f"no GPU at {text}")


@export("nvmlDeviceGetName")
def name(session: Session, handle: Any, buffer: Any, size: Any) -> None:
    """Product name, for a MIG device with its MIG profile."""
    device = session.device(handle)
    gpu = device.gpu if isinstance(device, MigDevice) else device
    text = gpu.product or gpu.model.product_names[0]
    if isinstance(device, MigDevice):
        text = f"{text} MIG {mig_name(device)}"
    put_text(buffer, size, text)


@export("nvmlDeviceGetUUID")
def uuid(session: Session, handle: Any, buffer: Any, size: Any) -> None:
    """UUID of a GPU or a MIG device."""
    device = session.device(handle)
    put_text(buffer, size, device.compute.uuid if isinstance(device, MigDevice) else device.uuid)


@export("nvmlDeviceGetIndex")
def index(session: Session, handle: Any, answer: Any) -> None:
    """Index of a GPU among GPUs, of a MIG device in its GPU."""
    device = session.device(handle)
    if isinstance(device, MigDevice):
        found = mig_devices(device.gpu)
        put(answer, found.index((device.instance, device.compute)))
        return
    put(answer, session.machine().gpus.index(device))


@export("nvmlDeviceGetMinorNumber")
def minor_number(session: Session, handle: Any, answer: Any) -> None:
    """Number in ``/dev/nvidia<minor>``."""
    put(answer, session.gpu(handle).minor)


@export("nvmlDeviceGetPciInfo_v3")
def pci_info(session: Session, handle: Any, answer: Any) -> None:
    """PCI address and ids; of the parent for a MIG device."""
    device = session.device(handle)
    gpu = device.gpu if isinstance(device, MigDevice) else device
    ids = gpu.model.pci_device_ids
    fill(
        answer,
        domain=0,
        bus=gpu.pci_bus,
        device=0,
        pciDeviceId=(ids[0] << 16 | _NVIDIA) if ids else _NVIDIA,
        busId=gpu.pci_bus_id.encode(),
        busIdLegacy=gpu.pci_bus_id[4:].encode(),
    )


@export("nvmlDeviceGetMemoryInfo")
def memory_info(session: Session, handle: Any, answer: Any) -> None:
    """Total, used and free memory in bytes."""
    total, used = memory(session.device(handle))
    fill(answer, total=total * _MIB, used=used * _MIB, free=(total - used) * _MIB)


@export("nvmlDeviceGetMemoryInfo_v2")
def memory_info_v2(session: Session, handle: Any, answer: Any) -> None:
    """The same, with what the driver keeps for itself."""
    must_version(answer, _MEMORY_V2)
    device = session.device(handle)
    total, used = memory(device)
    reserved = 0 if isinstance(device, MigDevice) else min(_RESERVED_MIB, total - used)
    free = total - used - reserved
    fill(answer, total=total * _MIB, used=used * _MIB, free=free * _MIB, reserved=reserved * _MIB)


@export("nvmlDeviceGetArchitecture")
def architecture(session: Session, handle: Any, answer: Any) -> None:
    """Generation of the GPU."""
    put(answer, _ARCHITECTURES[session.gpu(handle).model.architecture])


@export("nvmlDeviceGetCudaComputeCapability")
def compute_capability(session: Session, handle: Any, major: Any, minor: Any) -> None:
    """CUDA compute capability."""
    device = session.device(handle)
    gpu = device.gpu if isinstance(device, MigDevice) else device
    put(major, gpu.model.compute_capability[0])
    put(minor, gpu.model.compute_capability[1])


@export("nvmlDeviceGetPersistenceMode")
def persistence_mode(session: Session, handle: Any, answer: Any) -> None:
    """Whether the driver stays loaded without clients."""
    put(answer, int(session.gpu(handle).persistence))


@export("nvmlDeviceGetComputeMode")
def compute_mode(session: Session, handle: Any, answer: Any) -> None:
    """Who may create a context."""
    put(answer, session.gpu(handle).compute_mode)


@export("nvmlDeviceSetComputeMode", Privilege.ROOT)
def set_compute_mode(session: Session, handle: Any, mode: Any) -> None:
    """Say who may create a context; in MIG mode there is no exclusive use by one process."""
    gpu, wanted = session.gpu(handle), number(mode)
    if wanted not in set(ComputeMode):
        raise RefusedError(Code.INVALID_ARGUMENT, f"no compute mode {wanted}")
    if gpu.mig_current and wanted == ComputeMode.EXCLUSIVE_PROCESS:
        raise RefusedError(Code.NOT_SUPPORTED, "not in MIG mode")

    def step(_machine: Machine, now: Gpu) -> tuple[Gpu, None]:
        return replace(now, compute_mode=wanted), None

    session.change_gpu(gpu.uuid, step)


@export("nvmlDeviceGetAttributes_v2")
def attributes(session: Session, handle: Any, answer: Any) -> None:
    """What a MIG device consists of."""
    device = session.mig_device(handle)
    profile = device.gpu.profile(device.instance.profile_id)
    if profile is None:
        raise RefusedError(Code.UNKNOWN, "no such MIG profile")
    whole = profile.profile.gpu_slices
    fields = {
        "multiprocessorCount": profile.sms * device.compute.slices // whole,
        "sharedCopyEngineCount": profile.copy_engines,
        "sharedDecoderCount": profile.decoders,
        "sharedEncoderCount": profile.encoders,
        "sharedJpegCount": profile.jpegs,
        "sharedOfaCount": profile.ofas,
        "gpuInstanceSliceCount": whole,
        "computeInstanceSliceCount": device.compute.slices,
        "memorySizeMB": profile.memory_mib,
    }
    struct = target(answer)
    ctypes.memset(ctypes.addressof(struct), 0, ctypes.sizeof(struct))
    fill(answer, **fields)


def can_query(machine: Machine, gpu: Gpu) -> bool:
    """Whether MIG profiles can be listed while MIG mode is off."""
    return gpu.model.mig_capable and machine.driver_major > LAST_WITHOUT_QUERY


def memory(device: Gpu | MigDevice) -> tuple[int, int]:
    """Total and used memory of a device in MiB."""
    if isinstance(device, MigDevice):
        profile = device.gpu.profile(device.instance.profile_id)
        users = [each for each in device.gpu.processes if each.gi_id == device.instance.id]
        return (profile.memory_mib if profile else 0), sum(each.memory_mib for each in users)
    return device.model.memory_mib, sum(each.memory_mib for each in device.processes)


def mig_name(device: MigDevice) -> MigProfile:
    """The MIG profile of a MIG device, split compute instances included."""
    profile = device.gpu.profile(device.instance.profile_id)
    if profile is None:
        raise RefusedError(Code.UNKNOWN, "no such MIG profile")
    return replace(profile.profile, compute_slices=device.compute.slices)


def _answer_gpu(session: Session, gpu: Gpu, answer: Any) -> None:
    if gpu.lost:
        raise RefusedError(Code.GPU_IS_LOST, f"{gpu.uuid} fell off the bus")
    put_address(answer, session.handle(HandleKind.GPU, gpu.uuid))
