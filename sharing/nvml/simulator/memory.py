"""Who may take how much of a simulated GPU's memory."""

from __future__ import annotations

from sharing.errors import InputError
from sharing.nvml.simulator.state import Gpu, Process


def must_have_room(gpu: Gpu, which: str, process: Process) -> None:
    """Refuse a process that wants more memory than its cgroup, instance or GPU has left.

    Raises:
        InputError: It does.
    """
    total = gpu.model.memory_mib
    if process.gi_id is not None:
        instance = next(each for each in gpu.instances if each.id == process.gi_id)
        profile = gpu.profile(instance.profile_id)
        total = profile.memory_mib if profile else total
    limits = [each.hard >> 20 for each in gpu.memory_limits if each.cgroup == process.cgroup]
    if limits and limits[0]:
        mine = sum(each.memory_mib for each in gpu.processes if each.cgroup == process.cgroup)
        if mine + process.memory_mib > limits[0]:
            raise InputError(
                f"GPU {which}",
                f"cgroup {process.cgroup} may use {limits[0] - mine} MiB more, the process wants "
                f"{process.memory_mib}",
                fix="take less memory",
            )
    used = sum(each.memory_mib for each in gpu.processes if each.gi_id == process.gi_id)
    if used + process.memory_mib > total:
        raise InputError(
            f"GPU {which}",
            f"has {total - used} MiB left, the process wants {process.memory_mib}",
            fix="take less memory",
        )
