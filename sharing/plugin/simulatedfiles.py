"""Device files of simulated GPUs: by number, since no host has them.

A container runtime makes such a file inside the container and lets the container open it, as it
does with a real one; then no driver answers (ENXIO). The numbers are in the range that Linux
keeps for local use, so that they never reach a real GPU of the same machine.

Source: Linux, Documentation/admin-guide/devices.txt, "120-127 char LOCAL/EXPERIMENTAL USE".
"""

from __future__ import annotations

import re
from typing import Final

MAJOR: Final = 120
_GPU: Final = re.compile(r"/dev/nvidia([0-9]{1,3})", re.ASCII)
_CAPABILITY: Final = re.compile(r"/dev/nvidia-caps/nvidia-cap([0-9]{1,5})", re.ASCII)
_CONTROL: Final = {"/dev/nvidiactl": 1000, "/dev/nvidia-uvm": 1001, "/dev/nvidia-uvm-tools": 1002}
_FIRST_CAPABILITY: Final = 2000


def minor_of(path: str) -> int | None:
    """The minor number of a device file; None for one that no simulated GPU has."""
    if match := _GPU.fullmatch(path):
        return int(match[1])
    if match := _CAPABILITY.fullmatch(path):
        return _FIRST_CAPABILITY + int(match[1])
    return _CONTROL.get(path)
