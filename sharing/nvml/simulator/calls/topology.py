"""How GPUs are connected: NVLink through switches, PCIe pairs, NUMA nodes."""

from __future__ import annotations

from typing import Any, Final

from sharing.nvml.codes import Code, TopologyLevel
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.session import Session
from sharing.nvml.simulator.state import Gpu
from sharing.nvml.simulator.symbols import export, fill, number, put

_NVLINKS: Final = {
    "V100-32GB": 6,
    "A100-40GB": 12,
    "A100-80GB": 12,
    "H100-80GB": 18,
    "H100-96GB": 18,
    "H20-96GB": 18,
    "H20-141GB": 18,
    "GH200-144GB": 18,
    "H200-141GB": 18,
    "GH200-96GB": 18,
    "B200-180GB": 18,
    "GB200-186GB": 18,
    "B300-269GB": 18,
    "GB300-278GB": 18,
}
"""Links of each GPU into the NVSwitches. Source: NVIDIA data sheets."""
_COHERENT: Final = frozenset({"GH200-96GB", "GH200-144GB", "GB200-186GB", "GB300-278GB"})
"""Boards whose memory is a NUMA node of its own."""
_CPUS_PER_NODE: Final = 32
_BITS: Final = 64
_P2P_OK: Final = 0
_P2P_NOT_SUPPORTED: Final = 5
_SWITCH: Final = 2
_SWITCH_BUS: Final = 0x07
_PAIR: Final = 2


@export("nvmlDeviceGetTopologyCommonAncestor")
def common_ancestor(session: Session, one: Any, other: Any, answer: Any) -> None:
    """The closest thing that two GPUs share: a PCIe switch for pairs, else the NUMA node."""
    first, second = session.gpu(one), session.gpu(other)
    gpus = session.machine().gpus
    pairs = {gpus.index(first) // _PAIR, gpus.index(second) // _PAIR}
    if first.uuid == second.uuid:
        level = TopologyLevel.INTERNAL
    elif first.numa_node != second.numa_node:
        level = TopologyLevel.SYSTEM
    else:
        level = TopologyLevel.SINGLE if len(pairs) == 1 else TopologyLevel.NODE
    put(answer, int(level))


@export("nvmlDeviceGetP2PStatus")
def p2p_status(session: Session, one: Any, other: Any, _capability: Any, answer: Any) -> None:
    """Whether two GPUs reach each other's memory; MIG mode ends that."""
    both = (session.gpu(one), session.gpu(other))
    linked = all(_active(gpu) and not gpu.mig_current for gpu in both)
    put(answer, _P2P_OK if linked else _P2P_NOT_SUPPORTED)


@export("nvmlDeviceGetNvLinkState")
def nvlink_state(session: Session, handle: Any, link: Any, answer: Any) -> None:
    """Whether a link is up."""
    gpu = _linked(session.gpu(handle), number(link))
    put(answer, int(number(link) not in gpu.nvlinks_down))


@export("nvmlDeviceGetNvLinkRemoteDeviceType")
def nvlink_remote_type(session: Session, handle: Any, link: Any, answer: Any) -> None:
    """What is at a link's other end."""
    _linked(session.gpu(handle), number(link))
    put(answer, _SWITCH)


@export("nvmlDeviceGetNvLinkRemotePciInfo_v2")
def nvlink_remote_pci(session: Session, handle: Any, link: Any, answer: Any) -> None:
    """PCI address of the switch at a link's other end."""
    _linked(session.gpu(handle), number(link))
    bus = _SWITCH_BUS + number(link) % 4
    fill(answer, domain=0, bus=bus, device=0, busId=f"00000000:{bus:02X}:00.0".encode())


@export("nvmlDeviceGetCpuAffinity")
def cpu_affinity(session: Session, handle: Any, size: Any, answer: Any) -> None:
    """The CPUs near a GPU, as bits in words."""
    first = session.gpu(handle).numa_node * _CPUS_PER_NODE
    words = getattr(answer, "_obj", answer)
    for index in range(number(size)):
        cpus = range(first, first + _CPUS_PER_NODE)
        words[index] = sum(1 << cpu % _BITS for cpu in cpus if cpu // _BITS == index)


@export("nvmlDeviceGetMemoryAffinity")
def memory_affinity(session: Session, handle: Any, size: Any, answer: Any, _scope: Any) -> None:
    """The NUMA nodes near a GPU, as bits in words."""
    node = session.gpu(handle).numa_node
    words = getattr(answer, "_obj", answer)
    for index in range(number(size)):
        words[index] = 1 << node % _BITS if node // _BITS == index else 0


@export("nvmlDeviceGetNumaNodeId")
def numa_node_id(session: Session, handle: Any, answer: Any) -> None:
    """The NUMA node that a GPU's own memory is, on boards where it is one."""
    gpu = session.gpu(handle)
    if not is_coherent(gpu):
        raise RefusedError(Code.NOT_SUPPORTED, "the GPU is no NUMA node")
    put(answer, gpu.numa_node)


def is_coherent(gpu: Gpu) -> bool:
    """Whether a GPU shares one address space with its CPU."""
    return gpu.board in _COHERENT


def nvlink_count(gpu: Gpu) -> int:
    """NVLinks of a GPU, up or down."""
    return _NVLINKS.get(gpu.board, 0)


def _active(gpu: Gpu) -> bool:
    return nvlink_count(gpu) > len(gpu.nvlinks_down)


def _linked(gpu: Gpu, link: int) -> Gpu:
    if not nvlink_count(gpu):
        raise RefusedError(Code.NOT_SUPPORTED, f"{gpu.board} has no NVLink")
    if not 0 <= link < nvlink_count(gpu):
        raise RefusedError(Code.INVALID_ARGUMENT, f"no link {link}")
    return gpu
