"""Resetting one GPU: not in NVML, so NVIDIA's own command does it.

Only boards before Hopper need it, to bring a MIG mode into force that the driver could not switch
by itself. A GPU is named by its UUID, so that no other one is touched, and the command refuses
while anything uses it.

Source: nvidia-smi manual, ``--gpu-reset``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sharing.errors import DriverError, InputError
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Machine
from sharing.nvml.simulator.store import Store

COMMAND: Final = "nvidia-smi"
_LIMIT_S: Final = 120.0
_LONGEST: Final = 300

Reset = Callable[[str], None]
"""Resets the GPU of a UUID; blocks. Raises ResetError."""


class ResetError(DriverError):
    """A GPU was not reset."""


def by_command(command: str = COMMAND) -> Reset:
    """A reset by ``nvidia-smi --gpu-reset -i UUID``; our own NVML session must be closed."""

    def reset(uuid: str) -> None:
        arguments = [command, "--gpu-reset", "-i", uuid]
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and the UUID is the driver's
                arguments, capture_output=True, timeout=_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refused(uuid, f"{command} cannot be run: {error}") from error
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace")
            raise _refused(uuid, " ".join(said.split())[:_LONGEST] or f"exit {done.returncode}")

    return reset


def simulated(state: Path) -> Reset:
    """The same for simulated GPUs: refused while processes use it, or where no reset exists."""

    def reset(uuid: str) -> None:
        def step(machine: Machine) -> tuple[Machine, object]:
            if operate.find(machine, uuid).passed_through:
                raise _refused(uuid, "GPU Reset is not supported in this virtual machine")
            return operate.reset(machine, uuid)

        try:
            Store(state).change(step)
        except InputError as error:
            raise _refused(uuid, str(error)) from error

    return reset


def _refused(uuid: str, why: str) -> ResetError:
    return ResetError(
        f"GPU {uuid}",
        f"was not reset: {why}",
        fix="stop monitoring agents and other clients of this GPU, or restart the node; "
        "it is tried again",
        example=f"{COMMAND} --gpu-reset -i {uuid}",
    )
