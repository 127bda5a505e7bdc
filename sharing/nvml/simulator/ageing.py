"""What wears a simulated GPU out: heat, memory errors, remapped rows, links; and a new driver.

Functions from a machine to the next one, as in ``operate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sharing.errors import InputError
from sharing.migprofile import MigProfile
from sharing.nvml.codes import EventType
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.calls.topology import nvlink_count
from sharing.nvml.simulator.state import Gpu, Machine, Renamed


def heat(machine: Machine, which: str, celsius: int) -> tuple[Machine, Gpu]:
    """Let a GPU have a temperature."""
    gpu = replace(operate.find(machine, which), temperature_c=celsius)
    return operate.with_gpu(machine, gpu), gpu


def memory_errors(
    machine: Machine, which: str, *, corrected: int = 0, uncorrected: int = 0
) -> tuple[Machine, Gpu]:
    """Let memory errors happen; the driver reports an event of each kind."""
    gpu = operate.find(machine, which)
    before = gpu.ecc_errors
    gpu = replace(gpu, ecc_errors=(before[0] + corrected, before[1] + uncorrected))
    machine = operate.with_gpu(machine, gpu)
    if corrected:
        machine = operate.with_event(machine, gpu.uuid, EventType.SINGLE_BIT_ECC, corrected)
    if uncorrected:
        machine = operate.with_event(machine, gpu.uuid, EventType.DOUBLE_BIT_ECC, uncorrected)
    return machine, gpu


def remap_rows(
    machine: Machine, which: str, *, pending: bool = False, failed: bool = False
) -> tuple[Machine, Gpu]:
    """Let a row wait for its replacement, or find none; with neither all rows are well."""
    gpu = operate.find(machine, which)
    rows = (*gpu.remapped_rows[:2], int(pending), int(failed))
    gpu = replace(gpu, remapped_rows=rows)
    return operate.with_gpu(machine, gpu), gpu


def set_link(machine: Machine, which: str, link: int, *, up: bool) -> tuple[Machine, Gpu]:
    """Let an NVLink go down, or come up again after one more recovery.

    Raises:
        InputError: The GPU has no such link.
    """
    gpu = operate.find(machine, which)
    count = nvlink_count(gpu)
    if not 0 <= link < count:
        known = f"0 to {count - 1}" if count else "none"
        raise InputError(f"GPU {which}", f"has no NVLink {link}", expected=known)
    down = {*gpu.nvlinks_down} - {link} if up else {*gpu.nvlinks_down, link}
    recovered = int(up and link in gpu.nvlinks_down)
    gpu = replace(
        gpu,
        nvlinks_down=tuple(sorted(down)),
        nvlink_recoveries=gpu.nvlink_recoveries + recovered,
    )
    return operate.with_gpu(machine, gpu), gpu


def change_driver(
    machine: Machine, version: str, renamed: Iterable[Renamed] = ()
) -> tuple[Machine, str]:
    """Start the node again with another driver, which may name MIG profiles otherwise.

    Published layouts broke that way: GB200's ``1g.24gb`` became ``1g.23gb``
    (NVIDIA/mig-parted#227).

    Raises:
        InputError: The version is none, or a name is no MIG profile.
    """
    if not version.partition(".")[0].isdecimal():
        raise InputError("driver version", f"{version!r} is none", example="580.95.05")
    changes = tuple(renamed)
    for change in changes:
        MigProfile.parse(change.profile)
        MigProfile.parse(change.name)
    again, _ = operate.reboot(replace(machine, driver_version=version))
    gpus = tuple(replace(gpu, renamed=_known(gpu, changes)) for gpu in again.gpus)
    return replace(again, gpus=gpus), version


def _known(gpu: Gpu, changes: tuple[Renamed, ...]) -> tuple[Renamed, ...]:
    offered = {str(each.profile) for each in replace(gpu, renamed=()).model.mig}
    return tuple(change for change in changes if change.profile in offered)
