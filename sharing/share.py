"""Shares: the units that the kubelet counts, one by one, with ids that stay.

A device id names a place on a GPU, not a thing that the driver made: it is the same after a
restart, a reboot or when an instance is made anew at the same placement.

==============  ============================  ==========================================
exclusive       ``GPU-<uuid>``
MPS, slices     ``GPU-<uuid>::<n>``           n counts all shares of the GPU, biggest first
MIG             ``GPU-<uuid>::<MIG>-<start>`` MIG profile as in resource names, and its slot
==============  ============================  ==========================================

The ``::`` form is NVIDIA's for replicas, which exporters parse; ids stay below 63 characters.
Source: NVIDIA/k8s-device-plugin, replica ids; kubelet device plugin API, ``Device.ID``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import MILLI_PER_GPU, OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One unit of one share class on one GPU."""

    device_id: str
    gpu_uuid: str
    share_class: ShareClass
    memory_mib: int
    """What the share may use: enforced by MIG and MPS, advisory under time-slicing."""
    start: int | None = None
    """Slot of the MIG instance; None for other modes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstance:
    """A MIG instance as planned or as read from the driver."""

    profile: MigProfile
    start: int
    memory_mib: int


def mig_device_id(gpu_uuid: str, profile: MigProfile, start: int) -> str:
    """The device id of a MIG share."""
    return f"{gpu_uuid}::{profile.resource_token}-{start}"


def shares_of(
    layout: GpuLayout,
    *,
    gpu_uuid: str,
    memory_mib: int,
    instances: Sequence[PlacedInstance] = (),
) -> tuple[Share, ...]:
    """The shares that a GPU of this layout yields, biggest first.

    Under MIG these are the ``instances`` whose MIG profile the layout names, at most as many as
    it names: what the driver does not show is never offered.
    """
    if layout.mode is Mode.EXCLUSIVE:
        whole = ShareClass(mode=layout.mode, pool=layout.pool)
        return (
            Share(device_id=gpu_uuid, gpu_uuid=gpu_uuid, share_class=whole, memory_mib=memory_mib),
        )
    if layout.mode is Mode.MIG:
        return tuple(_mig_shares(layout, gpu_uuid, instances))
    return tuple(_parts(layout, gpu_uuid, memory_mib))


def _mig_shares(
    layout: GpuLayout, gpu_uuid: str, instances: Sequence[PlacedInstance]
) -> Iterable[Share]:
    for share_class, count in layout.shares:
        placed = sorted(
            (i for i in instances if i.profile == share_class.size), key=lambda i: i.start
        )
        for instance in placed[:count]:
            yield Share(
                device_id=mig_device_id(gpu_uuid, instance.profile, instance.start),
                gpu_uuid=gpu_uuid,
                share_class=share_class,
                memory_mib=instance.memory_mib,
                start=instance.start,
            )


def _parts(layout: GpuLayout, gpu_uuid: str, memory_mib: int) -> Iterable[Share]:
    number = 0
    for share_class, count in layout.shares:
        for _ in range(count):
            yield Share(
                device_id=f"{gpu_uuid}::{number}",
                gpu_uuid=gpu_uuid,
                share_class=share_class,
                memory_mib=part_memory_mib(share_class, memory_mib),
            )
            number += 1


def part_memory_mib(share_class: ShareClass, gpu_memory_mib: int) -> int:
    """A part's memory, rounded down so that all parts together fit the GPU."""
    parts = share_class.size.parts if isinstance(share_class.size, OneOf) else 1
    return gpu_memory_mib // parts


def worth_milli(
    share_class: ShareClass,
    *,
    memory_mib: int,
    gpu_memory_mib: int,
    compute_share: tuple[int, int] = (0, 1),
) -> int:
    """A share's worth in thousandths of a GPU, rounded up.

    MIG counts by the larger of its memory and its compute share; ``compute_share`` is (slices of
    the instance, slices of the GPU).
    """
    if share_class.mode is Mode.EXCLUSIVE:
        return MILLI_PER_GPU
    if isinstance(share_class.size, OneOf):
        return -(-MILLI_PER_GPU // share_class.size.parts)
    slices, of = compute_share
    by_memory = -(-MILLI_PER_GPU * memory_mib // gpu_memory_mib)
    return min(MILLI_PER_GPU, max(by_memory, -(-MILLI_PER_GPU * slices // of)))
