"""Which devices a container gets.

The order of pkg/kubelet/cm/devicemanager ``devicesToAllocate``: devices of finished init
containers of the same pod; then those of the NUMA node hinted at; then the plugin's
advice; then any. The last draws lots upstream; here the lot is drawn by a seed.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from embedded.errors import EmbeddedError

Advice = Callable[[Collection[str], Collection[str], int], Awaitable[Sequence[str]]]
"""Asks the plugin: available ids, ids that must be among them, how many in all."""


class ShortageError(EmbeddedError):
    """There are fewer devices than asked for; the text is the kubelet's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one container asks of one resource.

    Attributes:
        resource: The resource's name.
        count: How many devices.
        reusable: Devices that finished init containers of the pod had.
        free: Healthy devices that nobody holds.
        numa: NUMA nodes by device.
        align: Whether devices of one NUMA node are preferred (topology manager).
        seed: What the lot is drawn by.
    """

    resource: str
    count: int
    reusable: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    numa: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    align: bool = False
    seed: str = ""


async def choose(need: Need, advise: Advice | None) -> tuple[str, ...]:
    """The devices for one container, in order of their ids.

    Args:
        need: What is asked for and what there is.
        advise: The plugin's advice; None if it gives none.

    Raises:
        ShortageError: If there are too few.
    """
    lots = random.Random(need.seed)
    chosen: set[str] = set()

    def take(candidates: Collection[str]) -> bool:
        """Take what is still missing, in the drawn order; whether nothing is missing now."""
        left = sorted(set(candidates) - chosen)
        lots.shuffle(left)
        chosen.update(left[: need.count - len(chosen)])
        return len(chosen) == need.count

    if take(need.reusable):
        return tuple(sorted(chosen))
    free = need.free - chosen
    missing = need.count - len(chosen)
    if len(free) < missing:
        raise ShortageError(
            "",
            f"requested number of devices unavailable for {need.resource}. "
            f"Requested: {missing}, Available: {len(free)}",
        )
    aligned = _aligned(need, free, missing)
    if advise and missing < len(aligned):
        advice = await advise(aligned | chosen, frozenset(chosen), need.count)
        if take(aligned.intersection(advice)):
            return tuple(sorted(chosen))
    if take(aligned):
        return tuple(sorted(chosen))
    if advise:
        advice = await advise(free | chosen, frozenset(chosen), need.count)
        if take(free.intersection(advice)):
            return tuple(sorted(chosen))
    take(free)
    return tuple(sorted(chosen))


def _aligned(need: Need, free: frozenset[str], missing: int) -> frozenset[str]:
    """The free devices of the NUMA node that the topology manager would hint at.

    The lowest-numbered node that alone has enough; none where alignment is off, where
    devices carry no topology, or where no single node suffices.
    """
    if not need.align:
        return frozenset()
    nodes = sorted({node for id_ in free for node in need.numa.get(id_, ())})
    for node in nodes:
        on_node = frozenset(id_ for id_ in free if node in need.numa.get(id_, ()))
        if len(on_node) >= missing:
            return on_node
    return frozenset()
