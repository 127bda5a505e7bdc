"""Together: all shares of a pod on one node, since a pod runs on one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sharing.mode import Mode
from sharing.shareclass import ShareClass
from webhook.ask import Ask, Want
from webhook.choice import Field, Solved, options
from webhook.nodes import Need
from webhook.offers import Room

_MOST_LOOKS: Final = 20_000
"""Looks at one container's share in all arrangements of a pod; beyond, none is looked for."""


class Served(NamedTuple):
    """One container's ask with the share that serves it."""

    ask: Ask
    solved: Solved


def needs_of(served: Iterable[Served]) -> dict[ShareClass, Need]:
    """What a node must have of each class.

    Sidecars stay, init containers come one after the other, app containers together. Source:
    Kubernetes documentation, "Sidecar Containers", resource sharing within containers.

    Args:
        served: The shares, init containers in the pod's order.
    """
    counts: dict[ShareClass, tuple[int, int, int]] = {}
    memory: dict[ShareClass, int] = {}
    for ask, solved in served:
        share_class, number = solved.share.share_class, solved.number
        staying, apps, peak = counts.get(share_class, (0, 0, 0))
        if not ask.container.is_init:
            apps += number
        elif ask.container.raw.get("restartPolicy") == "Always":
            staying += number
            peak = max(peak, staying)
        else:
            peak = max(peak, staying + number)
        counts[share_class] = (staying, apps, peak)
        least = solved.least_memory_mib or 0
        memory[share_class] = max(least, memory.get(share_class, 0))
    return {
        share_class: Need(max(staying + apps, peak), memory[share_class])
        for share_class, (staying, apps, peak) in counts.items()
    }


def have_room(served: Sequence[Served], room: Room) -> bool:
    """Whether some node has all of these shares, free or held."""
    return room.known.having(needs_of(served), room.nodes) != 0


def rearranged(
    asks: Sequence[tuple[Ask, Mode]], field: Field, room: Room
) -> tuple[Served, ...] | None:
    """Shares for all asks that one node has, larger than needed where that must be; or None.

    Equal wants get equal shares. The first want is tried smallest first, then the next, so the
    same pod always gets the same.
    """
    wants = list(dict.fromkeys((ask.want, mode) for ask, mode in asks))
    chosen: dict[tuple[Want, Mode], Solved] = {}
    looks = 0

    def search(depth: int) -> bool:
        nonlocal looks
        looks += len(asks)
        served = [Served(a, chosen[a.want, m]) for a, m in asks if (a.want, m) in chosen]
        if looks > _MOST_LOOKS or not have_room(served, room):
            return False
        if depth == len(wants):
            return True
        for option in options(*wants[depth], field):
            chosen[wants[depth]] = option
            if search(depth + 1):
                return True
        chosen.pop(wants[depth], None)
        return False

    if len(wants) * len(asks) > _MOST_LOOKS or not search(0):
        return None
    return tuple(Served(ask, chosen[ask.want, mode]) for ask, mode in asks)
