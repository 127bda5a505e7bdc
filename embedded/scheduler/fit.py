"""Whether a node has room for a pod. The kubelet asks the same question at admission."""

from __future__ import annotations

from dataclasses import dataclass

from embedded.scheduler.amounts import PODS, Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """One resource of which a node has too little.

    Attributes:
        resource: Its name.
        requested: What the pod needs.
        used: What other pods hold.
        capacity: What the node offers to pods in all.
    """

    resource: str
    requested: int
    used: int
    capacity: int

    def __str__(self) -> str:
        return "Too many pods" if self.resource == PODS else f"Insufficient {self.resource}"


def shortages(
    demand: Amounts, *, used: Amounts, pods: int, allocatable: Amounts
) -> tuple[Shortage, ...]:
    """What is missing on a node, pods first, then in order of resource names.

    A demand of zero asks for nothing, also where the node does not know the resource
    (noderesources ``fitsRequest``).

    Args:
        demand: What the pod needs.
        used: What the node's pods need in all.
        pods: How many pods the node has.
        allocatable: What the node offers.
    """
    found = []
    most = allocatable.get(PODS, 0)
    if pods + 1 > most:
        found.append(Shortage(resource=PODS, requested=1, used=pods, capacity=most))
    for name in sorted(demand):
        need, held, room = demand[name], used.get(name, 0), allocatable.get(name, 0)
        if need > 0 and need > room - held:
            found.append(Shortage(resource=name, requested=need, used=held, capacity=room))
    return tuple(found)
