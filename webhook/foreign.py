"""What other sharing systems call a share, as a table: resources, annotations, schedulers.

Opt-in by a profile's ``compatibility``, so that a namespace's manifests work on while a cluster
moves over. Names are the systems' defaults; what they mean is what their documentation says.

Sources: Project-HAMi/HAMi and Project-HAMi/volcano-vgpu-device-plugin, README;
NVIDIA/KAI-Scheduler, docs/gpu-sharing; nebuly-ai/nos, docs;
AliyunContainerService/gpushare-scheduler-extender, docs; Alibaba Cloud, cGPU;
NVIDIA/k8s-device-plugin, README ("renameByDefault").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sharing.api.choices import System
from sharing.names import GPU
from sharing.quantity import MIB

_GIB: Final = 2**30
_GB: Final = 10**9


class Words(NamedTuple):
    """The resource names of one system, each for one container."""

    devices: str = ""
    """How many GPUs it touches."""
    memory: str = ""
    """Memory on each of them."""
    memory_unit: int = MIB
    """Bytes that 1 of ``memory`` stands for."""
    percent: str = ""
    """Memory on each of them, in hundredths of a GPU."""
    cores: str = ""
    """Compute on each of them, in hundredths of a GPU."""
    dropped: tuple[str, ...] = ()
    """Understood, and not carried over."""
    schedulers: tuple[str, ...] = ()
    """Schedulers that place its pods; we need none."""

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        named = {self.devices, self.memory, self.percent, self.cores, *self.dropped}
        return frozenset(named - {"", GPU})


_ALIYUN: Final = Words(
    devices="aliyun.com/gpu-count",
    memory="aliyun.com/gpu-mem",
    cores="aliyun.com/gpu-core.percentage",
)
WORDS: Final[Mapping[System, Words]] = {
    System.HAMI: Words(
        devices=GPU,
        memory="nvidia.com/gpumem",
        percent="nvidia.com/gpumem-percentage",
        cores="nvidia.com/gpucores",
        dropped=("nvidia.com/priority",),
        schedulers=("hami-scheduler",),
    ),
    System.VOLCANO: Words(
        devices="volcano.sh/vgpu-number",
        memory="volcano.sh/vgpu-memory",
        percent="volcano.sh/vgpu-memory-percentage",
        cores="volcano.sh/vgpu-cores",
        schedulers=("volcano",),
    ),
    System.ALIYUN: _ALIYUN._replace(memory_unit=_GIB),
    System.ALIYUN_MIB: _ALIYUN,
    System.NOS: Words(schedulers=("nos-scheduler",)),
    System.KAI: Words(schedulers=("kai-scheduler", "runai-scheduler")),
    System.NVIDIA_SHARED: Words(devices="nvidia.com/gpu.shared"),
}
"""By system; nos and KAI, and shared MIG devices, need more than names."""

_SLICE: Final = re.compile(r"nvidia\.com/gpu-([1-9][0-9]{0,3})gb", re.ASCII)
_SHARED_MIG: Final = re.compile(r"nvidia\.com/mig-(.{1,20})\.shared", re.ASCII)
DROPPED_ANNOTATIONS: Final[Mapping[System, Mapping[str, str]]] = {
    System.HAMI: {
        "nvidia.com/use-gputype": "choose nodes by the label gpu.sharing/board",
        "nvidia.com/nouse-gputype": "choose nodes by the label gpu.sharing/board",
        "nvidia.com/use-gpuuuid": "GPUs are chosen by pool, not one by one",
        "nvidia.com/nouse-gpuuuid": "GPUs are chosen by pool, not one by one",
        "nvidia.com/numa-bind": "the kubelet's topology manager aligns devices",
        "nvidia.com/vgpu-mode": "ask by gpu.sharing/mode",
        "hami.io/node-scheduler-policy": "the scheduler's profile decides",
        "hami.io/gpu-scheduler-policy": "a layout decides",
    },
    System.VOLCANO: {"volcano.sh/vgpu-mode": "ask by gpu.sharing/mode"},
    System.KAI: {
        "mps": "ask by gpu.sharing/mode",
        "kai.scheduler/gpu-compute-sharing-mode": "ask by gpu.sharing/mode",
    },
}
"""What is not carried over, and what to do instead."""


class Slice(NamedTuple):
    """A resource whose name says the size."""

    memory_mib: int | None = None
    mig: str = ""
    """A MIG profile as resources spell it."""


class Vocabulary(NamedTuple):
    """The words of the systems that one profile reads."""

    systems: tuple[System, ...] = ()
    names: frozenset[str] = frozenset()

    def reads(self, name: str) -> bool:
        """Whether a resource name is one of theirs; ``nvidia.com/gpu`` is everybody's."""
        return name in self.names or self.slice(name) is not None

    def slice(self, name: str) -> Slice | None:
        """What a name stands for that says its size."""
        if System.NOS in self.systems and (found := _SLICE.fullmatch(name)):
            return Slice(memory_mib=-(-int(found[1]) * _GB // MIB))
        if System.NVIDIA_SHARED in self.systems and (found := _SHARED_MIG.fullmatch(name)):
            return Slice(mig=found[1])
        return None

    @property
    def schedulers(self) -> frozenset[str]:
        """Their schedulers."""
        return frozenset(name for one in self.systems for name in WORDS[one].schedulers)


OURS_ALONE: Final = Vocabulary()


@lru_cache(maxsize=64)
def vocabulary_of(systems: tuple[System, ...]) -> Vocabulary:
    """The words of these systems."""
    names = frozenset().union(*(WORDS[one].names for one in systems))
    return Vocabulary(systems, names) if systems else OURS_ALONE
