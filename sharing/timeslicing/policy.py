"""NVIDIA's command for compute policies: the only way to a GPU's time slice, which NVML lacks.

    nvidia-smi compute-policy -i UUID --set-timeslice 0..3
    nvidia-smi compute-policy -i UUID --list

The driver keeps the setting by GPU until it is loaded again. Setting it needs root.
Source: ``nvidia-smi compute-policy --help``; kubernetes-sigs/dra-driver-nvidia-gpu sets it so too.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sharing.errors import shown
from sharing.timeslice import TimeSlice
from sharing.timeslicing.errors import TimeSliceError

COMMAND: Final = "nvidia-smi"
_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,80}", re.ASCII)
_VALUE: Final = re.compile(r"time-?\s?slice[\s|:]+(default|short|medium|long)\b", re.IGNORECASE)
_MOST_SAID: Final = 1 << 14
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputePolicy:
    """The command as argv; see ``stand_in`` for the one without GPUs."""

    argv: tuple[str, ...] = (COMMAND,)
    env: tuple[tuple[str, str], ...] = ()
    """Further variables."""
    timeout_s: float = 20.0
    """Without persistence mode each call loads the driver first."""

    async def get(self, uuid: str) -> TimeSlice:
        """The time slice of a GPU.

        Raises:
            TimeSliceError: The command fails, or says nothing that is understood.
        """
        said = await self._run(uuid, "--list")
        values = {one.lower() for one in _VALUE.findall(said)}
        if len(values) != 1:
            raise TimeSliceError(
                f"GPU {uuid}",
                f"its time slice was not understood: {shown(said.strip())}",
                expected="one line such as 'Time-slice  Default'",
            )
        return TimeSlice(values.pop())

    async def set(self, uuid: str, value: TimeSlice) -> None:
        """Change it.

        Raises:
            TimeSliceError: The command fails.
        """
        await self._run(uuid, "--set-timeslice", str(value.number))

    async def _run(self, uuid: str, *arguments: str) -> str:
        if not _UUID.fullmatch(uuid):
            raise TimeSliceError(f"GPU {shown(uuid)}", "has no UUID that a command can name")
        argv = (*self.argv, "compute-policy", "-i", uuid, *arguments)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=os.environ | dict(self.env),
            )
        except OSError as error:
            raise _failed(uuid, f"{self.argv[0]} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self.timeout_s):
                out, _ = await process.communicate()
        except TimeoutError:
            raise _failed(uuid, f"no answer within {self.timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        said = out[:_MOST_SAID].decode(errors="replace")
        if process.returncode:
            raise _failed(uuid, " ".join(said.split())[:_LONGEST] or f"exit {process.returncode}")
        return said


def stand_in(state: Path, faults: Path | None = None) -> ComputePolicy:
    """The command for simulated GPUs.

    Args:
        state: The file that it keeps slices in.
        faults: A file of words that it goes wrong by; see ``standin``.
    """
    env = {"GPU_SHARING_TIMESLICES": str(state)}
    if faults is not None:
        env["GPU_SHARING_TIMESLICE_FAULTS"] = str(faults)
    program = Path(__file__).with_name("standin.py")
    return ComputePolicy(
        argv=(sys.executable, "-I", "-S", str(program)), env=tuple(sorted(env.items()))
    )


def _failed(uuid: str, why: str) -> TimeSliceError:
    return TimeSliceError(
        f"GPU {uuid}",
        f"nvidia-smi compute-policy failed: {why}",
        fix="run the agent as root with the driver's nvidia-smi in its PATH; it is tried again",
        example=f"nvidia-smi compute-policy -i {uuid} --set-timeslice 1",
    )
