"""Shares: the units that the kubelet counts, one by one, with ids that stay.

A device id names a place on a GPU, not a thing that the driver made: it is the same after a
restart, a reboot or when an instance is made anew at the same placement.

==============  ============================  ==========================================
exclusive       ``GPU-<uuid>``
MPS, slices     ``GPU-<uuid>::<n>``           n counts all shares of the GPU, biggest first
MIG             ``GPU-<uuid>::<MIG>-<start>`` MIG profile as in resource names, and its slot
cut from MIG    ``<id of the MIG share>::<n>`` n counts all shares of the instance, biggest first
==============  ============================  ==========================================

The ``::`` form is NVIDIA's for replicas, which exporters parse; ids stay below 63 characters.
Source: NVIDIA/k8s-device-plugin, replica ids; kubelet device plugin API, ``Device.ID``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sharing.errors import SizeError
from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import MILLI_PER_GPU, OneOf

_START: Final = re.compile(r"[0-9]{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One unit of one share class on one GPU."""

    device_id: str
    gpu_uuid: str
    share_class: ShareClass
    memory_mib: int
    """What the share may use: enforced by MIG and MPS, advisory under time-slicing."""
    start: int | None = None
    """Slot of the MIG instance that it is or is cut from; None outside of MIG."""

    @property
    def place(self) -> str:
        """What it is cut from, or is: a MIG instance by its device id, or the GPU's UUID."""
        return place_of(self.device_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstance:
    """A MIG instance as planned or as read from the driver."""

    profile: MigProfile
    start: int
    memory_mib: int


def mig_device_id(gpu_uuid: str, profile: MigProfile, start: int) -> str:
    """The device id of a MIG share."""
    return f"{gpu_uuid}::{profile.resource_token}-{start}"


@lru_cache(maxsize=4096)
def instance_named(device_id: str) -> tuple[MigProfile, int] | None:
    """MIG profile and start of the instance that a share is or is cut from; None outside of MIG."""
    _, colons, rest = device_id.partition("::")
    token, dash, start = rest.partition("::")[0].rpartition("-")
    if not colons or not dash or not _START.fullmatch(start):
        return None
    try:
        return MigProfile.from_token(token), int(start)
    except SizeError:
        return None


def place_of(device_id: str) -> str:
    """What a share is cut from, or is: a MIG instance by its device id, or the GPU's UUID."""
    gpu_uuid, named = device_id.partition("::")[0], instance_named(device_id)
    return gpu_uuid if named is None else mig_device_id(gpu_uuid, *named)


def shares_of(
    layout: GpuLayout,
    *,
    gpu_uuid: str,
    memory_mib: int,
    instances: Sequence[PlacedInstance] = (),
) -> tuple[Share, ...]:
    """The shares that a GPU of this layout yields, biggest first.

    Under MIG these are the ``instances`` whose MIG profile the layout names, at most as many as
    it names, or what it cuts them into: what the driver does not show is never offered.
    """
    if layout.mode is Mode.EXCLUSIVE:
        whole = ShareClass(mode=layout.mode, pool=layout.pool)
        return (
            Share(device_id=gpu_uuid, gpu_uuid=gpu_uuid, share_class=whole, memory_mib=memory_mib),
        )
    if layout.mode is Mode.MIG:
        return tuple(_mig_shares(layout, gpu_uuid, instances))
    return tuple(_parts(layout.shares, gpu_uuid=gpu_uuid, cut_from=gpu_uuid, memory_mib=memory_mib))


def _mig_shares(
    layout: GpuLayout, gpu_uuid: str, instances: Sequence[PlacedInstance]
) -> Iterable[Share]:
    for size, count in layout.sizes:
        placed = sorted((i for i in instances if i.profile == size), key=lambda i: i.start)
        for instance in placed[:count]:
            device_id = mig_device_id(gpu_uuid, instance.profile, instance.start)
            if layout.cut_of(instance.profile) is not None:
                yield from _parts(
                    layout.of_each(size),
                    gpu_uuid=gpu_uuid,
                    cut_from=device_id,
                    memory_mib=instance.memory_mib,
                    start=instance.start,
                )
                continue
            yield Share(
                device_id=device_id,
                gpu_uuid=gpu_uuid,
                share_class=ShareClass(mode=layout.mode, size=size, pool=layout.pool),
                memory_mib=instance.memory_mib,
                start=instance.start,
            )


def _parts(
    classes: Iterable[tuple[ShareClass, int]],
    *,
    gpu_uuid: str,
    cut_from: str,
    memory_mib: int,
    start: int | None = None,
) -> Iterable[Share]:
    each = [share_class for share_class, count in classes for _ in range(count)]
    for number, share_class in enumerate(each):
        yield Share(
            device_id=f"{cut_from}::{number}",
            gpu_uuid=gpu_uuid,
            share_class=share_class,
            memory_mib=part_memory_mib(share_class, memory_mib),
            start=start,
        )


def part_memory_mib(share_class: ShareClass, memory_mib: int) -> int:
    """A part's memory, rounded down so that all parts together fit what they are cut from."""
    parts = share_class.size.parts if isinstance(share_class.size, OneOf) else 1
    return memory_mib // parts


def worth_milli(
    share_class: ShareClass,
    *,
    memory_mib: int,
    gpu_memory_mib: int,
    compute_share: tuple[int, int] = (0, 1),
) -> int:
    """A share's worth in thousandths of a GPU, rounded up.

    MIG, and what is cut from it, counts by the larger of its memory and its compute share;
    ``compute_share`` is (slices of the instance, slices of the GPU).
    """
    if share_class.mode is Mode.EXCLUSIVE:
        return MILLI_PER_GPU
    parts = share_class.size.parts if isinstance(share_class.size, OneOf) else 1
    if share_class.instance is None:
        return -(-MILLI_PER_GPU // parts)
    slices, of = compute_share[0], compute_share[1] * parts
    by_memory = -(-MILLI_PER_GPU * memory_mib // gpu_memory_mib)
    return min(MILLI_PER_GPU, max(by_memory, -(-MILLI_PER_GPU * slices // of)))
