"""From an offer to what the kubelet and the container runtime have to know about each share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sharing.mode import Mode
from sharing.mps.daemons import DaemonFolders
from sharing.mps.limits import share_limits
from sharing.node.observed import GpuState
from sharing.node.offer import GpuOffer
from sharing.plugin.binding import MpsBinding, ShareBinding
from sharing.share import Share
from sharing.size import OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a binding needs besides its GPU."""

    folders: Callable[[str], DaemonFolders]
    """Where the MPS daemon of a GPU or MIG device and its clients meet."""
    client_pipe: Callable[[str, str], Path]
    """Through which folder clients of a share size reach a device's daemon."""
    is_healthy: Callable[[Share], bool]
    """Whether a share may be handed out now."""
    device_nodes: Callable[[GpuState, Share], tuple[str, ...]] = lambda _gpu, _share: ()
    """Device files of a share inside a container."""
    info_file: Callable[[str], str | None] = lambda _device_id: None
    """The file on the host that tells user code of a share, by device id."""


def bind(
    gpu: GpuState, offer: GpuOffer, around: Surroundings
) -> tuple[tuple[ShareBinding, ...], tuple[ShareBinding, ...]]:
    """What one GPU gives to the kubelet.

    Returns:
        What is listed, and what only its holders keep.
    """
    return (
        tuple(_binding(gpu, share, around) for share in offer.shares),
        tuple(_binding(gpu, share, around) for share in offer.draining),
    )


def _binding(gpu: GpuState, share: Share, around: Surroundings) -> ShareBinding:
    return ShareBinding(
        device_id=share.device_id,
        resource=share.share_class.resource_name,
        visible=visible_uuid(gpu, share),
        mode=share.share_class.mode,
        memory_mib=share.memory_mib,
        gpu_uuid=gpu.uuid,
        device_nodes=around.device_nodes(gpu, share),
        numa_node=gpu.numa_node,
        healthy=around.is_healthy(share),
        mps=_mps(gpu, share, around),
        info_file=around.info_file(share.device_id),
    )


def visible_uuid(gpu: GpuState, share: Share) -> str:
    """What a container of this share sees: the MIG device's UUID, or the GPU's."""
    cut_from = gpu.cuttables.get(share.place)
    return gpu.uuid if cut_from is None else cut_from.uuid


def _mps(gpu: GpuState, share: Share, around: Surroundings) -> MpsBinding | None:
    size = share.share_class.size
    if share.share_class.mode is not Mode.MPS or not isinstance(size, OneOf):
        return None
    cut_from = gpu.cuttables.get(share.place)
    if cut_from is None:
        return None
    folders = around.folders(cut_from.uuid)
    limits = share_limits(size, cut_from.memory_mib)
    return MpsBinding(
        pipe_dir=str(around.client_pipe(cut_from.uuid, str(size))),
        memory_limit_mib=limits.memory_mib,
        thread_percentage=limits.thread_percentage,
        shm_dir=None if folders.shm is None else str(folders.shm),
    )


def flattened(
    pairs: Iterable[tuple[tuple[ShareBinding, ...], tuple[ShareBinding, ...]]],
) -> tuple[tuple[ShareBinding, ...], tuple[ShareBinding, ...]]:
    """The bindings of all GPUs together."""
    listed: list[ShareBinding] = []
    held: list[ShareBinding] = []
    for shares, draining in pairs:
        listed += shares
        held += draining
    return tuple(listed), tuple(held)
