"""How ``gpu list`` writes a node: a line a GPU, below it what lies and runs on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sharing.nvml.codes import RecoveryAction
from sharing.nvml.observed import GpuProcess, ObservedGpu, ObservedNode


def rows_of(node: ObservedNode, users: Mapping[str, Sequence[GpuProcess]]) -> Iterator[str]:
    """The lines, without colour.

    Args:
        node: What the driver reports.
        users: Processes by UUID; GPUs that do not answer may be left out.
    """
    yield f"driver {node.driver_version}, CUDA {node.cuda_version}"
    width = max((len(gpu.board.name) for gpu in node.gpus), default=0)
    for gpu in node.gpus:
        yield f"{gpu.index:>2}  {gpu.board.name:<{width}}  {gpu.uuid or '-':<40}  {_state(gpu)}"
        mine = users.get(gpu.uuid, ())
        for instance in gpu.instances:
            yield (
                f"      {instance.profile} at {instance.placement.start}, "
                f"id {instance.gi_id}  {instance.uuid or 'half made or split'}"
            )
            yield from (_user(each) for each in mine if each.gi_id == instance.gi_id)
        yield from (_user(each) for each in mine if each.gi_id is None)


def _state(gpu: ObservedGpu) -> str:
    if gpu.fault is not None:
        return f"no answer: {gpu.fault.code.name}"
    words = []
    if gpu.mig_capable:
        words.append(f"MIG {'on' if gpu.mig_mode else 'off'}")
        if gpu.mig_pending != gpu.mig_mode:
            words.append(f"{'on' if gpu.mig_pending else 'off'} after a reset")
    if gpu.recovery_action is not RecoveryAction.NONE:
        words.append(f"wants {gpu.recovery_action.name.lower().replace('_', ' ')}")
    return ", ".join(words) or "no MIG"


def _user(process: GpuProcess) -> str:
    memory = "?" if process.memory_mib is None else str(process.memory_mib)
    return f"        pid {process.pid}, {process.kind}, {memory} MiB"
