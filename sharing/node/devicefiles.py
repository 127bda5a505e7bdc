"""Which device files a container needs for a share: the GPU's, and a MIG instance's capabilities.

The driver numbers MIG capabilities in a file of its own; each line is ``gpu0/gi7/ci0/access 42``
with the GPU's minor number, which is not its index.

Source: NVIDIA MIG User Guide, "Device nodes and capabilities"; NVIDIA/nvidia-container-toolkit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sharing.node.observed import GpuState
from sharing.share import Share

MIG_MINORS: Final = Path("/proc/driver/nvidia-caps/mig-minors")
_CONTROL: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def device_nodes(gpu: GpuState, share: Share) -> tuple[str, ...]:
    """The device files of a share on this machine."""
    nodes = [f"/dev/nvidia{gpu.minor}", *_CONTROL]
    for one in gpu.instances:
        if one.device_id(gpu.uuid) == share.device_id:
            nodes += capabilities(_minors(), gpu.minor, one.gi_id)
    return tuple(nodes)


def capabilities(minors: str, gpu_minor: int, gi_id: int) -> tuple[str, ...]:
    """The capability files of a whole MIG instance, which has one compute instance.

    Args:
        minors: The driver's numbering.
        gpu_minor: The GPU's minor number.
        gi_id: The GPU instance's number.
    """
    instance = f"gpu{gpu_minor}/gi{gi_id}"
    wanted = (f"{instance}/access", f"{instance}/ci0/access")
    numbers = dict(
        line.split(maxsplit=1)
        for line in minors.splitlines()
        if len(line.split()) == 2  # noqa: PLR2004 - a name and a number
    )
    return tuple(
        f"/dev/nvidia-caps/nvidia-cap{int(numbers[name])}"
        for name in wanted
        if numbers.get(name, "").isdigit()
    )


def _minors() -> str:
    try:
        return MIG_MINORS.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""  # an old driver without capability files, or none mounted
