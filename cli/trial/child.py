"""The entry of a program that must not outlive the process that started it.

The parent cannot arrange this between fork and exec: code that runs there finds gRPC's threads
half gone. So the child asks the kernel itself, and then is the command like any other.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

from cli.main import main

_PR_SET_PDEATHSIG: Final = 1
"""Source: Linux, ``prctl(2)``."""


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends, or now if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv.pop(1)))
    main()
