"""How to run a control daemon and how to ask it: NVIDIA's program, or the stand-in.

One program is both: with ``-f`` it is the daemon in the foreground, without it sends commands to
the daemon of ``CUDA_MPS_PIPE_DIRECTORY`` and prints the answers. It speaks v2, with commands from
standard input, or v3 from driver r615 on, with commands as arguments.
Source: NVIDIA MPS documentation, "nvidia-cuda-mps-control" and "MPS v3 Interface".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

from sharing.mps.limits import MpsLimits

VERSION_ENV: Final = "CUDA_MPS_PROTOCOL_VERSION"


class MpsVersion(IntEnum):
    """Which words a daemon understands, by its protocol number."""

    V2 = 2
    """The default of every driver so far."""
    V3 = 3
    """Limits by share size, which clients cannot loosen; driver r615 or later."""


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

    @property
    def configuration(self) -> Path:
        """With what a v3 daemon starts."""
        return self.log / "daemon.toml"


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
    version: MpsVersion = MpsVersion.V2

    def speaking(self, version: MpsVersion) -> MpsProgram:
        """The same program in other words."""
        return replace(self, version=version)

    def daemon_argv(self, folders: DaemonFolders) -> tuple[str, ...]:
        """The command line that becomes the daemon; its process id stays the same throughout."""
        if self.version is MpsVersion.V3:
            many = ("--multiuser",) if self.multi_user else ()
            start = ("-p", "3", *many, "-a", str(folders.configuration))
        else:
            start = ("--multiuser-server",) if self.multi_user else ()
        run = (*self.argv, "-f", *start)
        if folders.shm is None:
            return run
        apart = ("unshare", "--mount", "--propagation", "private")
        return (*apart, "sh", "-c", _BIND_SHM, str(folders.shm), *run)

    def daemon_env(
        self, folders: DaemonFolders, device_uuid: str, limits: MpsLimits
    ) -> Mapping[str, str]:
        """The daemon's own variables.

        The limits are among them too, so that no server ever starts without, not even between
        the daemon's start and our first command (NVIDIA/k8s-device-plugin#1946). A v3 daemon
        has them from its configuration file.
        """
        env = self.client_env(folders) | {
            "CUDA_MPS_LOG_DIRECTORY": str(folders.log),
            "CUDA_VISIBLE_DEVICES": device_uuid,
        }
        if self.version is MpsVersion.V3:
            return env
        return env | {
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={limits.memory_mib}M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(limits.thread_percentage),
        }

    def client_env(self, folders: DaemonFolders) -> dict[str, str]:
        """The variables by which the program finds the daemon."""
        return dict(self.env) | {
            "CUDA_MPS_PIPE_DIRECTORY": str(folders.pipe),
            # Said in any case: it beats what the command line says.
            VERSION_ENV: str(int(self.version)),
        }


def stand_in(env: Mapping[str, str] | None = None) -> MpsProgram:
    """The program for simulated GPUs; needs no root. See ``standin`` for its variables."""
    return MpsProgram(
        # -I and -S: it needs the standard library only, and starts three times as fast.
        argv=(sys.executable, "-I", "-S", str(Path(__file__).with_name("standin.py"))),
        private_shm=False,
        env=tuple(sorted((env or {}).items())),
    )


def program_of(version: MpsVersion, *, simulated: bool) -> MpsProgram:
    """The program of this machine: NVIDIA's, or the stand-in for simulated GPUs."""
    return (stand_in() if simulated else MpsProgram()).speaking(version)
