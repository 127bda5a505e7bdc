"""What the kubelet has handed out twice all the same, as its own list shows (pure).

``inquiry`` keeps it from happening wherever the kubelet can be asked; this is what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharing.node.checkpoint import PodName
from sharing.node.held import Hold, Holder


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Double:
    """One share in the hands of several containers."""

    device_id: str
    resource: str
    holders: tuple[Holder, ...]

    @property
    def pods(self) -> tuple[PodName, ...]:
        """The pods, each once."""
        names = dict.fromkeys((one.namespace, one.pod) for one in self.holders)
        return tuple(PodName(namespace=namespace, name=pod) for namespace, pod in names)

    def __str__(self) -> str:
        who = " and ".join(f"container {one.container} of {one}" for one in self.holders)
        return (
            f"share {self.device_id} of {self.resource} was handed out twice by the kubelet, to "
            f"{who} (kubernetes#137534): delete the younger pod, and have exporters on this node "
            "list PodResources less often"
        )


def doubles(holds: Iterable[Hold]) -> tuple[Double, ...]:
    """The shares that more than one container holds, in order of device ids."""
    found: dict[tuple[str, str], set[Holder]] = {}
    for hold in holds:
        if hold.holder is not None:
            found.setdefault((hold.device_id, hold.resource), set()).add(hold.holder)
    return tuple(
        Double(device_id=device_id, resource=resource, holders=tuple(sorted(who)))
        for (device_id, resource), who in sorted(found.items())
        if len(who) > 1
    )
