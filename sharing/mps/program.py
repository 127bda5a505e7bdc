"""How to run a control daemon and how to ask it: NVIDIA's program, or the stand-in.

One program is both: with ``-f`` it is the daemon in the foreground, without arguments it reads
commands from standard input, sends them to the daemon of ``CUDA_MPS_PIPE_DIRECTORY`` and prints
the answers. Source: NVIDIA MPS documentation, "nvidia-cuda-mps-control".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sharing.mps.limits import MpsLimits

_BIND_SHM: Final = 'mount --bind "$0" /dev/shm && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFolders:
    """Where one daemon and its clients meet; private to one GPU, usable by non-root pods."""

    pipe: Path
    log: Path
    shm: Path | None

    @property
    def pid_file(self) -> Path:
        """Written by the daemon. Source: NVIDIA MPS documentation, as above."""
        return self.pipe / "nvidia-cuda-mps-control.pid"

    @property
    def output(self) -> Path:
        """What the daemon said since its start."""
        return self.log / "daemon.out"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsProgram:
    """A program that speaks MPS, as argv."""

    argv: tuple[str, ...] = ("nvidia-cuda-mps-control",)
    multi_user: bool = True
    """One server for clients of all users; without it a second UID waits for the first to end."""
    private_shm: bool = True
    """Give each daemon a ``/dev/shm`` of its own, in a mount namespace of its own. Needs root
    and ``unshare``; otherwise daemon and clients share the host's."""
    env: tuple[tuple[str, str], ...] = ()
    """Further variables of the daemon."""

    def daemon_argv(self, folders: DaemonFolders) -> tuple[str, ...]:
        """The command line that becomes the daemon; its process id stays the same throughout."""
        run = (*self.argv, "-f", *(("--multiuser-server",) if self.multi_user else ()))
        if folders.shm is None:
            return run
        apart = ("unshare", "--mount", "--propagation", "private")
        return (*apart, "sh", "-c", _BIND_SHM, str(folders.shm), *run)

    def daemon_env(
        self, folders: DaemonFolders, device_uuid: str, limits: MpsLimits
    ) -> Mapping[str, str]:
        """The daemon's own variables.

        The limits are among them too, so that no server ever starts without, not even between
        the daemon's start and our first command (NVIDIA/k8s-device-plugin#1946).
        """
        return self.client_env(folders) | {
            "CUDA_MPS_LOG_DIRECTORY": str(folders.log),
            "CUDA_VISIBLE_DEVICES": device_uuid,
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={limits.memory_mib}M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(limits.thread_percentage),
        }

    def client_env(self, folders: DaemonFolders) -> dict[str, str]:
        """The variables by which the program finds the daemon."""
        return dict(self.env) | {"CUDA_MPS_PIPE_DIRECTORY": str(folders.pipe)}


def stand_in(env: Mapping[str, str] | None = None) -> MpsProgram:
    """The program for simulated GPUs; needs no root. See ``standin`` for its variables."""
    return MpsProgram(
        # -I and -S: it needs the standard library only, and starts three times as fast.
        argv=(sys.executable, "-I", "-S", str(Path(__file__).with_name("standin.py"))),
        private_shm=False,
        env=tuple(sorted((env or {}).items())),
    )
