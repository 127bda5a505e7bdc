"""What happens to a simulated machine from outside: processes, faults, resets, reboots.

Functions from a machine to the next one; ``gpu-sharing gpu …`` and tests apply them to the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from sharing.board import Board, Placement
from sharing.errors import InputError, shown
from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code, EventType, RecoveryAction
from sharing.nvml.simulator import hardware, memory
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.state import (
    MOST_EVENTS,
    Delays,
    Event,
    Failure,
    Gpu,
    GpuInstance,
    Machine,
    Process,
    ProcessKind,
)

_NAMESPACE: Final = uuid.UUID("a3a2f1de-5b7c-5d0e-9a52-1d8c3c1b7f10")
_FIRST_BUSES: Final = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)
_FIRST_PID: Final = 4001
XID_LOST: Final = 79
"""GPU has fallen off the bus."""
RECOVERY_BY_XID: Final = {
    48: RecoveryAction.GPU_RESET,
    63: RecoveryAction.DRAIN_AND_RESET,
    64: RecoveryAction.GPU_RESET,
    74: RecoveryAction.GPU_RESET,
    79: RecoveryAction.NODE_REBOOT,
    95: RecoveryAction.GPU_RESET,
    119: RecoveryAction.GPU_RESET,
    120: RecoveryAction.GPU_RESET,
}
"""What the driver recommends after an XID. Source: NVIDIA XID catalogue, abridged."""
_ENDS_CLIENTS: Final = frozenset({8, 11, 13, 25, 31, 32, 43, 45, 69, 109})
"""XIDs of one MPS client that end all clients. Source: NVIDIA MPS, "Error Containment"."""

Result = TypeVar("Result")

MEANING: Final = {
    Code.IN_USE: "stop what uses it first",
    Code.INSUFFICIENT_RESOURCES: "destroy instances first, or take another profile or place",
    Code.INVALID_ARGUMENT: "take one of the legal places",
    Code.NOT_SUPPORTED: "switch MIG mode on first, on a board that has it",
    Code.MEMORY: "take less memory",
}


def new_machine(boards: Sequence[Board], *, seed: str) -> Machine:
    """A machine with GPUs of the given boards; the same seed gives the same UUIDs."""
    gpus = tuple(_new_gpu(board, index, len(boards), seed) for index, board in enumerate(boards))
    return Machine(seed=seed, gpus=gpus)


def find(machine: Machine, which: str) -> Gpu:
    """The GPU that a person means, by index or UUID.

    Raises:
        InputError: The machine has none such.
    """
    for index, gpu in enumerate(machine.gpus):
        if which in {str(index), gpu.uuid, gpu.pci_bus_id}:
            return gpu
    raise InputError(
        "GPU",
        f"{shown(which)} is not in this machine",
        expected=f"an index from 0 to {len(machine.gpus) - 1}, or a UUID",
        example="0",
    )


def with_gpu(machine: Machine, gpu: Gpu) -> Machine:
    """The machine with one GPU's state replaced."""
    same = (gpu if each.uuid == gpu.uuid else each for each in machine.gpus)
    return replace(machine, gpus=tuple(same))


def with_event(machine: Machine, uuid_: str, type_: EventType, data: int = 0) -> Machine:
    """The machine with an event of a whole GPU to report."""
    return _report(machine, Event(number=0, uuid=uuid_, type=int(type_), data=data))


# MIG, as nvidia-smi or another controller would do it


def set_mig_mode(machine: Machine, which: str, *, on: bool) -> tuple[Machine, Code]:
    """Change MIG mode behind everybody's back."""
    gpu, status = _refusable(which, lambda: hardware.set_mig_mode(find(machine, which), on=on))
    changed = with_gpu(machine, gpu)
    if status is Code.SUCCESS:
        changed = with_event(changed, gpu.uuid, EventType.MIG_CONFIG_CHANGE)
    return changed, status


def create_instance(
    machine: Machine,
    which: str,
    profile: MigProfile,
    start: int | None = None,
    *,
    with_compute: bool = True,
) -> tuple[Machine, GpuInstance]:
    """Create an instance as another controller would, or leave it half made."""
    gpu = find(machine, which)
    known = gpu.model.mig_profile(profile)
    at = None if start is None else Placement(start, known.length)
    gpu, made = _refusable(which, lambda: hardware.create_gpu_instance(gpu, known, at))
    if with_compute:
        whole = max(hardware.compute_profiles(known), key=lambda each: each.slices)
        gpu, _ = hardware.create_compute_instance(machine, gpu, made.serial, whole)
    changed = with_event(with_gpu(machine, gpu), gpu.uuid, EventType.MIG_CONFIG_CHANGE)
    return changed, hardware.gpu_instance(gpu, made.serial)


def destroy_instance(machine: Machine, which: str, gi_id: int) -> tuple[Machine, GpuInstance]:
    """Destroy an instance with all that lies in it, as another controller would."""
    gpu = find(machine, which)
    instance = _instance(gpu, which, gi_id)

    def step() -> Gpu:
        after = gpu
        for compute in instance.compute:
            after = hardware.destroy_compute_instance(after, compute.serial)
        return hardware.destroy_gpu_instance(after, instance.serial)

    left = _refusable(which, step)
    changed = with_event(with_gpu(machine, left), gpu.uuid, EventType.MIG_CONFIG_CHANGE)
    return changed, instance


# Processes


def start_process(  # noqa: PLR0913 - what a process is
    machine: Machine,
    which: str,
    *,
    name: str = "python",
    pid: int | None = None,
    kind: ProcessKind = ProcessKind.COMPUTE,
    memory_mib: int = 512,
    gi_id: int | None = None,
    cgroup: str = "",
) -> tuple[Machine, Process]:
    """Pretend that a process uses a GPU, or an instance of it.

    Raises:
        InputError: It could not run there: no such instance, no memory left, or a whole GPU
            asked for while it is in MIG mode.
    """
    gpu = find(machine, which)
    known = {process.pid for each in machine.gpus for process in each.processes}
    if pid in known:
        raise InputError(f"process {pid}", "runs already", fix="choose another pid")
    ci_id: int | None = None
    if gi_id is not None:
        instance = _instance(gpu, which, gi_id)
        if not instance.compute:
            raise InputError(f"GPU {which}", f"GPU instance {gi_id} has no compute instance yet")
        ci_id = instance.compute[0].id
    elif gpu.mig_current and kind is not ProcessKind.MONITOR:
        raise InputError(
            f"GPU {which}",
            "is in MIG mode, so a process runs in an instance",
            fix="name one",
            example="--instance 3",
        )
    process = Process(
        pid=pid or max(known | {_FIRST_PID - 1}) + 1,
        name=name,
        kind=kind,
        memory_mib=memory_mib,
        gi_id=gi_id,
        ci_id=ci_id,
        cgroup=cgroup,
    )
    memory.must_have_room(gpu, which, process)
    return with_gpu(machine, replace(gpu, processes=(*gpu.processes, process))), process


def stop_process(machine: Machine, pid: int) -> tuple[Machine, Process]:
    """End a pretended process.

    Raises:
        InputError: No such process.
    """
    for gpu in machine.gpus:
        for process in gpu.processes:
            if process.pid == pid:
                left = tuple(each for each in gpu.processes if each.pid != pid)
                return with_gpu(machine, replace(gpu, processes=left)), process
    raise InputError(f"process {pid}", "does not run on this machine")


# Faults


def report_xid(
    machine: Machine,
    which: str,
    xid: int,
    *,
    gi_id: int | None = None,
    recovery: RecoveryAction | None = None,
) -> tuple[Machine, Event]:
    """Report an XID error, of the GPU or of one of its instances."""
    gpu = find(machine, which)
    ci_id = None
    if gi_id is not None:
        compute = _instance(gpu, which, gi_id).compute
        ci_id = compute[0].id if compute else None
    action = RECOVERY_BY_XID.get(xid, RecoveryAction.NONE) if recovery is None else recovery
    if gi_id is None and xid in _ENDS_CLIENTS:
        left = tuple(each for each in gpu.processes if each.kind is not ProcessKind.MPS)
        gpu = replace(gpu, processes=left)
    if action:
        gpu = replace(gpu, recovery_action=int(action))
    machine = with_gpu(machine, gpu)
    event = Event(
        number=0, uuid=gpu.uuid, type=int(EventType.XID), data=xid, gi_id=gi_id, ci_id=ci_id
    )
    machine = _report(machine, event)
    if action:
        machine = with_event(machine, gpu.uuid, EventType.RECOVERY_ACTION, int(action))
    return machine, event


def lose(machine: Machine, which: str) -> tuple[Machine, Gpu]:
    """Let a GPU fall off the bus; its processes end."""
    machine, _ = report_xid(machine, which, XID_LOST)
    gone = replace(find(machine, which), lost=True, processes=())
    return with_gpu(machine, gone), gone


def reset(machine: Machine, which: str) -> tuple[Machine, Gpu]:
    """Reset one GPU.

    Raises:
        InputError: Something uses it.
    """
    fresh = _refusable(which, lambda: hardware.reset(find(machine, which)))
    changed = with_event(with_gpu(machine, fresh), fresh.uuid, EventType.MIG_CONFIG_CHANGE)
    return changed, fresh


def reboot(machine: Machine, order: Sequence[int] | None = None) -> tuple[Machine, int]:
    """Start the node again; GPUs may come back in another order.

    Args:
        machine: The machine.
        order: The old indices in their new order; unchanged if None.

    Raises:
        InputError: The order is no permutation of the indices.
    """
    old = list(range(len(machine.gpus)))
    chosen = old if order is None else list(order)
    if sorted(chosen) != old:
        raise InputError("order of GPUs", f"{chosen} is no permutation of {old}")
    gpus = [hardware.reboot(machine.gpus[index]) for index in chosen]
    numbered = tuple(replace(gpu, minor=index) for index, gpu in enumerate(gpus))
    boot = machine.boot + 1
    again = replace(machine, gpus=numbered, boot=boot, events=(), version_mismatch=False)
    return again, boot


def swap(machine: Machine, which: str, board: Board) -> tuple[Machine, Gpu]:
    """Put another GPU into a slot, as a technician would between shutdown and start."""
    old = find(machine, which)
    index = machine.gpus.index(old)
    seed = f"{machine.seed} swapped {machine.boot} {old.uuid}"
    fresh = replace(_new_gpu(board, index, len(machine.gpus), seed), pci_bus=old.pci_bus)
    gpus = tuple(fresh if each is old else each for each in machine.gpus)
    return replace(machine, gpus=gpus), fresh


def fail_calls(machine: Machine, failure: Failure) -> tuple[Machine, Failure]:
    """Let calls to a function fail, as often as asked."""
    return replace(machine, failures=(*machine.failures, failure)), failure


def slow_down(machine: Machine, delays: Delays) -> tuple[Machine, Delays]:
    """Let the slow calls take time."""
    return replace(machine, delays=delays), delays


def _new_gpu(board: Board, index: int, count: int, seed: str) -> Gpu:
    last = len(_FIRST_BUSES) - 1
    bus = _FIRST_BUSES[index] if index <= last else (_FIRST_BUSES[last] + index - last) % 256
    return Gpu(
        uuid=f"GPU-{uuid.uuid5(_NAMESPACE, f'{seed} {index}')}",
        board=board.name,
        minor=index,
        pci_bus=bus,
        numa_node=0 if 2 * index < count else 1,
    )


def _report(machine: Machine, event: Event) -> Machine:
    numbered = replace(event, number=machine.next_event)
    events = (*machine.events, numbered)[-MOST_EVENTS:]
    return replace(machine, events=events, next_event=machine.next_event + 1)


def _instance(gpu: Gpu, which: str, gi_id: int) -> GpuInstance:
    for instance in gpu.instances:
        if instance.id == gi_id:
            return instance
    there = ", ".join(str(instance.id) for instance in gpu.instances) or "none"
    raise InputError(f"GPU {which}", f"has no GPU instance {gi_id}", expected=f"one of: {there}")


def _refusable(which: str, step: Callable[[], Result]) -> Result:
    try:
        return step()
    except RefusedError as refused:
        raise InputError(
            f"GPU {which}",
            f"the driver refuses: {refused.why} ({refused.code.name})",
            fix=MEANING.get(refused.code, ""),
        ) from refused
