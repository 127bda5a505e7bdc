"""Which pods make room for a more important one (defaultpreemption plugin).

Only where leaving would help: a node refused for a taint, a label or a cordon stays
refused. On each node as few pods as possible go, the least important first; of the nodes
the one whose victims matter least. Disruption budgets are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from embedded.scheduler.decision import Room, refusals
from embedded.scheduler.views import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A node that would have room without some pods.

    Attributes:
        node: Its name.
        victims: The pods that have to go, the most important first.
    """

    node: str
    victims: tuple[Pod, ...]


def preempt(
    pod: Pod, rooms: Sequence[Room], *, namespaces: Mapping[str, Mapping[str, str]]
) -> Preemption | None:
    """The cheapest way to make room for a pod that fits nowhere; None if there is none.

    Args:
        pod: The pod that waits.
        rooms: All nodes with their pods.
        namespaces: Labels of each namespace, for affinity between pods.
    """
    if pod.spec.get("preemptionPolicy") == "Never":
        return None
    ways = [
        Preemption(node=room.node.name, victims=victims)
        for room in rooms
        if (victims := _victims(pod, room, rooms, namespaces))
    ]
    return min(ways, key=_cost, default=None)


def _cost(way: Preemption) -> tuple[int, int, int, str]:
    priorities = [victim.priority for victim in way.victims]
    return max(priorities), sum(priorities), len(priorities), way.node


def _victims(
    pod: Pod,
    room: Room,
    rooms: Sequence[Room],
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[Pod, ...]:
    """The pods of one node that have to go; empty if that would not help."""

    def fits(pods: Sequence[Pod]) -> bool:
        tried = replace(room, pods=tuple(pods))
        others = [tried if one.node.name == room.node.name else one for one in rooms]
        return not refusals(pod, tried, others, namespaces)

    stay = [one for one in room.pods if one.priority >= pod.priority]
    # The most important and longest running are reprieved first.
    lesser = sorted(
        (one for one in room.pods if one.priority < pod.priority),
        key=lambda one: (-one.priority, one.created, one.namespace, one.name),
    )
    if not lesser or not fits(stay):
        return ()
    victims = []
    for one in lesser:
        if fits([*stay, one]):
            stay.append(one)
        else:
            victims.append(one)
    return tuple(victims)
