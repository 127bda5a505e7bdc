"""MPS daemons over the stand-in program, and compute modes without a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sharing.errors import DriverError
from sharing.mps.daemons import MpsDaemons, MpsPatience, WantedDaemon
from sharing.mps.limits import MpsLimits
from sharing.mps.program import DaemonFolders, stand_in

QUARTER = MpsLimits(memory_mib=3840, thread_percentage=25)
QUICK = MpsPatience(
    answer_s=3,
    start_s=20,
    start_poll_s=0.05,
    probe_s=0.3,
    silent_probes=2,
    end_s=5,
    first_retry_s=0.05,
    longest_retry_s=0.2,
)


class Faults:
    """The faults of the stand-in, by the file that it reads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self, *words: str) -> None:
        self.path.write_text(" ".join(words))

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


class Modes:
    """Compute modes as a driver keeps them; gone GPUs refuse."""

    def __init__(self, modes: dict[str, int]) -> None:
        self.modes = modes
        self.lost: set[str] = set()

    async def get(self, gpu_uuid: str) -> int:
        self._check(gpu_uuid)
        return self.modes[gpu_uuid]

    async def set(self, gpu_uuid: str, mode: int) -> None:
        self._check(gpu_uuid)
        self.modes[gpu_uuid] = mode

    def _check(self, gpu_uuid: str) -> None:
        if gpu_uuid in self.lost:
            raise DriverError(f"GPU {gpu_uuid}", "is lost")


def daemons_at(root: Path, faults: Faults, **settings: Any) -> MpsDaemons:
    program = stand_in({"GPU_SHARING_MPS_FAULTS": str(faults.path)})
    return MpsDaemons(root, program=program, **{"patience": QUICK, **settings})


def wanted(
    device: str = "GPU-a", *, limits: MpsLimits = QUARTER, exclusive: bool = True
) -> WantedDaemon:
    return WantedDaemon(device_uuid=device, gpu_uuid=device, limits=limits, exclusive=exclusive)


def tell(folders: DaemonFolders, *commands: str) -> str:
    """What a person sees who asks a daemon by the command line."""
    env = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(folders.pipe)}
    argv = [sys.executable, "-m", "sharing.mps.standin"]
    done = subprocess.run(
        argv,
        input="\n".join(commands),
        capture_output=True,
        text=True,
        env=env,
        timeout=20,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()
