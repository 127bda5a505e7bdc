"""Bindings of each mode, as an agent would make them."""

from __future__ import annotations

from sharing.mode import Mode
from sharing.plugin.binding import MpsBinding, ShareBinding

MIB = 81559


def gpu_uuid(index: int) -> str:
    return f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000"


def mig_uuid(index: int) -> str:
    return f"MIG-{index:08d}-aaaa-bbbb-cccc-000000000000"


def whole(index: int, *, numa: int | None = None, healthy: bool = True) -> ShareBinding:
    uuid = gpu_uuid(index)
    return ShareBinding(
        device_id=uuid,
        resource="nvidia.com/gpu",
        visible=uuid,
        mode=Mode.EXCLUSIVE,
        memory_mib=MIB,
        gpu_uuid=uuid,
        device_nodes=(f"/dev/nvidia{index}",),
        numa_node=numa,
        healthy=healthy,
    )


def slice_(index: int, number: int, *, parts: int = 4, healthy: bool = True) -> ShareBinding:
    uuid = gpu_uuid(index)
    return ShareBinding(
        device_id=f"{uuid}::{number}",
        resource=f"gpu.sharing/timeslice-1of{parts}",
        visible=uuid,
        mode=Mode.TIME_SLICING,
        memory_mib=MIB // parts,
        gpu_uuid=uuid,
        device_nodes=(f"/dev/nvidia{index}",),
        healthy=healthy,
    )


def mps(index: int, number: int, *, parts: int = 4, numa: int | None = None) -> ShareBinding:
    uuid = gpu_uuid(index)
    return ShareBinding(
        device_id=f"{uuid}::{number}",
        resource=f"gpu.sharing/mps-1of{parts}",
        visible=uuid,
        mode=Mode.MPS,
        memory_mib=MIB // parts,
        gpu_uuid=uuid,
        device_nodes=(f"/dev/nvidia{index}",),
        numa_node=numa,
        mps=MpsBinding(
            pipe_dir=f"/run/gpu-sharing/mps/{uuid}/pipe",
            shm_dir=f"/run/gpu-sharing/mps/{uuid}/shm",
            memory_limit_mib=MIB // parts,
            thread_percentage=100 // parts,
        ),
    )


def mig(index: int, start: int, *, profile: str = "1g.10gb") -> ShareBinding:
    return ShareBinding(
        device_id=f"{gpu_uuid(index)}::{profile}-{start}",
        resource=f"nvidia.com/mig-{profile}",
        visible=mig_uuid(index * 10 + start),
        mode=Mode.MIG,
        memory_mib=9856,
        gpu_uuid=gpu_uuid(index),
        device_nodes=(
            f"/dev/nvidia{index}",
            f"/dev/nvidia-caps/nvidia-cap{30 + start}",
            f"/dev/nvidia-caps/nvidia-cap{31 + start}",
        ),
    )
