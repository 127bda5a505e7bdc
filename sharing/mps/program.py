"""How to run a control daemon and how to ask it: NVIDIA's program, or the stand-in.

One program is both: with ``-f`` it is the daemon in the foreground, without arguments it reads
commands from standard input, sends them to the daemon of ``CUDA_MPS_PIPE_DIRECTORY`` and prints
the answers. Source: NVIDIA MPS documentation, "nvidia-cuda-mps-control".
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsProgram:
    """A program that speaks MPS, as argv."""

    argv: tuple[str, ...] = ("nvidia-cuda-mps-control",)
    multi_user: bool = True
    """One server for clients of all users; without it a second UID waits for the first to end."""
    private_shm: bool = True
    """Give each daemon a ``/dev/shm`` of its own, in a mount namespace of its own. Needs root
    and ``unshare``; otherwise daemon and clients share the host's."""


def stand_in() -> MpsProgram:
    """The program for simulated GPUs; needs no root."""
    return MpsProgram(
        # -I and -S: it needs the standard library only, and starts three times as fast.
        argv=(sys.executable, "-I", "-S", str(Path(__file__).with_name("standin.py"))),
        private_shm=False,
    )
