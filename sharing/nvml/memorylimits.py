"""Limits of GPU memory by cgroup: what NVML 13.5 and drivers of its age enforce by themselves.

The first cap for time-shared GPUs that a process cannot get round. Root and Linux only, not in MIG
mode; it is gone when the cgroup is. No report of its use in the field is known, so it is never the
only thing that a share's memory rests on.

Source: nvml.h 13.5, ``nvmlDeviceSetMemoryLimits_v1``.
"""

from __future__ import annotations

from typing import Any, Final

from sharing.nvml.binding import UNANSWERABLE, Binding
from sharing.nvml.codes import Code
from sharing.nvml.errors import NvmlError

_MIB: Final = 1 << 20


def limit_memory(
    binding: Binding, handle: Any, cgroup: str, *, memory_mib: int, subject: str
) -> bool:
    """Limit the GPU memory of a cgroup, and read it back.

    Args:
        binding: The driver.
        handle: The GPU's.
        cgroup: Path of the cgroup below its mount point.
        memory_mib: Soft and hard limit.
        subject: The GPU, for errors.

    Returns:
        False where this driver, pynvml or GPU has no such limits.

    Raises:
        NvmlError: The driver refuses, or accepts and does something else.
    """
    if not hasattr(binding.nvml, "nvmlDeviceSetMemoryLimits_v1"):
        return False
    wanted = binding.nvml.c_nvmlSetMemoryLimits_v1_t()
    wanted.nameSpace = cgroup.encode()
    wanted.softLimit = wanted.hardLimit = memory_mib * _MIB
    told = binding.nvml.c_nvmlGetMemoryLimits_v1_t()
    told.nameSpace = cgroup.encode()
    try:
        binding.call("DeviceSetMemoryLimits_v1", handle, wanted, subject=subject)
        binding.call("DeviceGetMemoryLimits_v1", handle, told, subject=subject)
    except NvmlError as error:
        if error.code in UNANSWERABLE:
            return False
        raise
    if told.hardLimit != wanted.hardLimit:
        raise NvmlError(
            subject,
            f"limits cgroup {cgroup} to {told.hardLimit // _MIB} MiB after {memory_mib} MiB "
            "were accepted",
            fix="nothing to do, the share stays advisory",
            code=Code.UNKNOWN,
            call="nvmlDeviceSetMemoryLimits_v1",
        )
    return True
