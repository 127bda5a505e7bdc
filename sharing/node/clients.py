"""Which MPS daemons a node needs for the layouts that its GPUs serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharing.errors import InputError
from sharing.layout import GpuLayout
from sharing.mode import Mode
from sharing.mps.daemons import ClientGroup, WantedDaemon
from sharing.mps.limits import MpsLimits, ceiling, share_limits
from sharing.node.held import Hold
from sharing.shareclass import parse_resource_name
from sharing.size import OneOf, Size


def daemons_of(
    layouts: Mapping[str, GpuLayout], memory_mib: Mapping[str, int]
) -> tuple[WantedDaemon, ...]:
    """A daemon for each GPU that is shared by MPS, with the ceiling of its largest share.

    Args:
        layouts: MPS layouts by GPU UUID.
        memory_mib: Memory of the node's GPUs by UUID; others get no daemon.
    """
    return tuple(
        WantedDaemon(
            device_uuid=uuid,
            gpu_uuid=uuid,
            limits=limits_of(layout, memory_mib[uuid]),
            groups=groups_of(layout, memory_mib[uuid]),
        )
        for uuid, layout in sorted(layouts.items())
        if uuid in memory_mib
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
    """What the daemon of a GPU has to allow.

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
    """The smallest MPS layout that has every MPS share which pods hold on a GPU.

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


def layout_to_take_over(
    holds: Iterable[Hold], applied: GpuLayout | None, wanted: GpuLayout
) -> GpuLayout | None:
    """What the MPS daemon that an earlier agent left on a GPU has to serve on.

    None where it serves nobody and is not wanted any more, or never was.

    Args:
        holds: The holds on the GPU.
        applied: The layout that the GPU served last, if that is known.
        wanted: What it shall be.
    """
    used = layout_of_holds(holds)
    if applied is None or applied.mode is not Mode.MPS:
        return used
    return applied if used is not None or applied == wanted else None
