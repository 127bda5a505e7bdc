"""Processes and utilisation. Most of it is not to be had for MIG devices."""

from __future__ import annotations

from typing import Any, Final

from sharing.nvml.codes import WHOLE_DEVICE, Code
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.session import MigDevice, Session
from sharing.nvml.simulator.state import Permission, Process, ProcessKind
from sharing.nvml.simulator.symbols import export, fill, put, target

_MIB: Final = 1 << 20
_MOST_PERCENT: Final = 100


@export("nvmlDeviceGetComputeRunningProcesses_v2")
@export("nvmlDeviceGetComputeRunningProcesses_v3")
def compute_processes(session: Session, handle: Any, amount: Any, array: Any) -> None:
    """Processes with a compute context."""
    _answer(session, handle, ProcessKind.COMPUTE, (amount, array))


@export("nvmlDeviceGetGraphicsRunningProcesses_v2")
@export("nvmlDeviceGetGraphicsRunningProcesses_v3")
def graphics_processes(session: Session, handle: Any, amount: Any, array: Any) -> None:
    """Processes with a graphics context."""
    _answer(session, handle, ProcessKind.GRAPHICS, (amount, array))


@export("nvmlDeviceGetMPSComputeRunningProcesses_v2")
@export("nvmlDeviceGetMPSComputeRunningProcesses_v3")
def mps_processes(session: Session, handle: Any, amount: Any, array: Any) -> None:
    """Clients of an MPS server."""
    _answer(session, handle, ProcessKind.MPS, (amount, array))


@export("nvmlDeviceGetUtilizationRates")
def utilization(session: Session, handle: Any, answer: Any) -> None:
    """Per cent of time in which kernels ran and memory was used."""
    gpu = session.gpu(handle)
    if gpu.mig_current:
        raise RefusedError(Code.NOT_SUPPORTED, "not in MIG mode")
    busy = sum(each.sm_percent for each in gpu.processes)
    used = sum(each.memory_mib for each in gpu.processes)
    memory = _MOST_PERCENT * used // gpu.model.memory_mib
    fill(answer, gpu=min(busy, _MOST_PERCENT), memory=min(memory, _MOST_PERCENT))


@export("nvmlDeviceGetProcessUtilization")
def process_utilization(
    session: Session, handle: Any, samples: Any, amount: Any, _since: Any
) -> None:
    """Utilisation by process; success without samples if there are none, as real drivers do."""
    gpu = session.gpu(handle)
    if gpu.mig_current:
        raise RefusedError(Code.NOT_SUPPORTED, "not in MIG mode")
    busy = [each for each in gpu.processes if each.sm_percent]
    room = target(amount).value
    put(amount, len(busy))
    if busy and (samples is None or room < len(busy)):
        raise RefusedError(Code.INSUFFICIENT_SIZE, f"{len(busy)} samples")
    for index, process in enumerate(busy):
        samples[index].pid = process.pid
        samples[index].smUtil = process.sm_percent


def _answer(session: Session, handle: Any, kind: ProcessKind, answer: tuple[Any, Any]) -> None:
    amount, array = answer
    found = _processes(session, handle, kind)
    room = target(amount).value
    put(amount, len(found))
    if found and (array is None or room < len(found)):
        raise RefusedError(Code.INSUFFICIENT_SIZE, f"{len(found)} processes")
    for index, process in enumerate(found):
        entry = array[index]
        entry.pid = process.pid
        entry.usedGpuMemory = process.memory_mib * _MIB
        entry.gpuInstanceId = WHOLE_DEVICE if process.gi_id is None else process.gi_id
        entry.computeInstanceId = WHOLE_DEVICE if process.ci_id is None else process.ci_id


def _processes(session: Session, handle: Any, kind: ProcessKind) -> list[Process]:
    """Processes of a device. On the parent those in instances are for the privileged only."""
    device = session.device(handle)
    if isinstance(device, MigDevice):
        place = (device.instance.id, device.compute.id)
        mine = [each for each in device.gpu.processes if (each.gi_id, each.ci_id) == place]
    elif device.mig_current and session.machine().permission is Permission.NONE:
        mine = []
    else:
        mine = list(device.processes)
    return sorted((each for each in mine if each.kind is kind), key=lambda each: each.pid)
