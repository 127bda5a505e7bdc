"""Which MPS daemons a node needs for the layouts that its GPUs serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sharing.errors import InputError
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.mode import Mode
from sharing.mps.daemons import ClientGroup, WantedDaemon
from sharing.mps.limits import MpsLimits, ceiling, share_limits
from sharing.node.held import Hold
from sharing.node.observed import Cuttable, GpuState
from sharing.shareclass import parse_resource_name
from sharing.size import OneOf, Size


def daemons_of(
    layouts: Mapping[str, GpuLayout], cuttables: Iterable[Cuttable]
) -> tuple[WantedDaemon, ...]:
    """A daemon for whatever is shared by MPS, with the ceiling of its largest share.

    Args:
        layouts: MPS layouts by UUID of GPU or MIG device.
        cuttables: The node's GPUs and MIG instances; others get no daemon.
    """
    return tuple(
        WantedDaemon(
            device_uuid=one.uuid,
            gpu_uuid=one.gpu_uuid,
            limits=limits_of(layouts[one.uuid], one.memory_mib),
            groups=groups_of(layouts[one.uuid], one.memory_mib),
            exclusive=one.uuid == one.gpu_uuid,
        )
        for one in sorted(cuttables, key=lambda one: one.uuid)
        if one.uuid in layouts
    )


def groups_of(layout: GpuLayout, memory_mib: int) -> tuple[ClientGroup, ...]:
    """The sizes of a layout with what one client of each may use.

    Raises:
        MpsLimitError: A share rounds to nothing.
    """
    each = {size: share_limits(size, memory_mib) for size, _ in layout.sizes
            if isinstance(size, OneOf)}  # fmt: skip
    return tuple(
        ClientGroup(
            name=str(size), memory_mib=one.memory_mib, thread_percentage=one.thread_percentage
        )
        for size, one in each.items()
    )


def limits_of(layout: GpuLayout, memory_mib: int) -> MpsLimits:
    """What the daemon of a GPU or MIG device has to allow.

    Raises:
        MpsLimitError: A share rounds to nothing.
    """
    return ceiling(
        share_limits(size, memory_mib)
        for size, count in layout.sizes
        for _ in range(count)
        if isinstance(size, OneOf)
    )


def layout_of_holds(holds: Iterable[Hold]) -> GpuLayout | None:
    """The smallest MPS layout that has every MPS share which pods hold on a GPU or instance.

    For a daemon of which nothing is known but that pods use it.
    """
    counts: dict[tuple[Size, str | None], set[str]] = {}
    for hold in holds:
        try:
            share_class = parse_resource_name(hold.resource)
        except InputError:
            continue
        if share_class is not None and share_class.mode is Mode.MPS and share_class.size:
            key = (share_class.size, share_class.pool)
            counts.setdefault(key, set()).add(hold.device_id)
    if not counts:
        return None
    pools = sorted({pool or "" for _, pool in counts})
    sizes = tuple((size, len(ids)) for (size, _), ids in counts.items())
    try:
        return GpuLayout(mode=Mode.MPS, sizes=sizes, pool=pools[0] or None)
    except InputError:
        return None


def mps_to_take_over(
    gpu: GpuState, holds: Iterable[Hold], applied: GpuLayout | None, wanted: GpuLayout
) -> dict[str, GpuLayout]:
    """What the MPS daemons that an earlier agent left on a GPU have to serve on.

    Args:
        gpu: The GPU as it is.
        holds: The holds on it.
        applied: The layout that it served last, if that is known.
        wanted: What it shall be.

    Returns:
        Layouts by UUID of GPU or MIG device; none for a daemon that shall end.
    """
    listed, found = tuple(holds), {}
    if not gpu.mig_enabled:
        mine = [hold for hold in listed if hold.mig_place is None]
        layout = layout_to_take_over(mine, applied, wanted)
        return {} if layout is None else {gpu.uuid: layout}
    for one in gpu.instances:
        mine = [hold for hold in listed if hold.place == one.device_id(gpu.uuid)]
        before = None if applied is None else applied.mps_of(one.profile)
        after = wanted.mps_of(one.profile) or EXCLUSIVE_LAYOUT
        layout = layout_to_take_over(mine, before, after)
        if layout is not None and one.mig_uuid is not None:
            found[one.mig_uuid] = replace(layout, pool=None)
    return found


def layout_to_take_over(
    holds: Iterable[Hold], applied: GpuLayout | None, wanted: GpuLayout
) -> GpuLayout | None:
    """What the MPS daemon that an earlier agent left on a GPU or instance has to serve on.

    None where it serves nobody and is not wanted any more, or never was.

    Args:
        holds: The holds on it.
        applied: The layout that it served last, if that is known.
        wanted: What it shall be.
    """
    used = layout_of_holds(holds)
    if applied is None or applied.mode is not Mode.MPS:
        return used
    return applied if used is not None or applied == wanted else None
