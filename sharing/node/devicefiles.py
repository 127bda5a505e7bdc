"""Which device files a container needs for a share: the GPU's, and a MIG instance's capabilities.

The driver numbers MIG capabilities in a file of its own; each line is ``gpu0/gi7/ci0/access 42``
with the GPU's minor number, which is not its index.

Source: NVIDIA MIG User Guide, "Device nodes and capabilities"; NVIDIA/nvidia-container-toolkit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sharing.node.observed import GpuState
from sharing.share import Share

MIG_MINORS: Final = Path("/proc/driver/nvidia-caps/mig-minors")
_FIRST_MINOR: Final = 3
_GPU_INSTANCES: Final = 15
_PER_INSTANCE: Final = 9
"""One for the GPU instance and one for each of 8 compute instances."""
_CONTROL: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def device_nodes(gpu: GpuState, share: Share) -> tuple[str, ...]:
    """The device files of a share on this machine."""
    return _nodes(gpu, share, lambda _: _minors())


def simulated_nodes(gpu: GpuState, share: Share) -> tuple[str, ...]:
    """The device files of a share of a simulated GPU, numbered as the driver does."""
    return _nodes(gpu, share, usual_minors)


def _nodes(gpu: GpuState, share: Share, minors: Callable[[int], str]) -> tuple[str, ...]:
    nodes = [f"/dev/nvidia{gpu.minor}", *_CONTROL]
    for one in gpu.instances:
        if one.device_id(gpu.uuid) == share.place:
            nodes += capabilities(minors(gpu.minor), gpu.minor, one.gi_id)
    return tuple(nodes)


def usual_minors(gpu_minor: int) -> str:
    """The driver's numbering of one GPU's MIG capabilities: 15 GPU instances with 8 CIs each.

    Numbers 1 and 2 are those of the node's configuration and monitoring.
    """
    first = _FIRST_MINOR + gpu_minor * _GPU_INSTANCES * _PER_INSTANCE
    lines = []
    for gi in range(_GPU_INSTANCES):
        number = first + gi * _PER_INSTANCE
        lines.append(f"gpu{gpu_minor}/gi{gi}/access {number}")
        lines += [
            f"gpu{gpu_minor}/gi{gi}/ci{ci}/access {number + 1 + ci}"
            for ci in range(_PER_INSTANCE - 1)
        ]
    return "\n".join(lines)


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
