"""Resource names that a node offered once: their keys are taken off the Node.

A kubelet shows a resource that nobody serves any more as ``0``, for ever, also after its own
restart (NVIDIA/k8s-device-plugin#240, gpu-operator#361). Autoscalers and people take such a key for
something that the node can have. A key may go once the kubelet has forgotten the plugin, five
minutes after it left; before that it would come back with the kubelet's next word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from sharing.errors import InputError
from sharing.shareclass import parse_resource_name

FORGOTTEN_S: Final = 330.0
"""A kubelet's grace for a plugin that left, and half a minute. Source: kubernetes,
pkg/kubelet/cm/devicemanager, ``endpointStopGracePeriod``."""


def empty_keys(capacity: Mapping[str, object]) -> tuple[str, ...]:
    """The share resources of which a Node has none, in order."""
    return tuple(sorted(k for k, amount in capacity.items() if str(amount) == "0" and _is_ours(k)))


def _is_ours(name: str) -> bool:
    try:
        return parse_resource_name(name) is not None
    except InputError:
        return False


@dataclass(slots=True)
class DeadKeys:
    """Since when keys are empty and not served; knows no clock.

    Args:
        after_s: For how long a key has to be so before it is taken off.
    """

    after_s: float = FORGOTTEN_S
    _since: dict[str, float] = field(default_factory=dict)

    def due(self, empty: Collection[str], served: Collection[str], now: float) -> tuple[str, ...]:
        """The keys to take off now.

        Args:
            empty: Share resources of which the Node has none.
            served: Those that are offered, sick ones included.
            now: Seconds of any clock that does not go back.
        """
        dead = set(empty) - set(served)
        self._since = {key: self._since.get(key, now) for key in sorted(dead)}
        return tuple(key for key, since in self._since.items() if now - since >= self.after_s)

    def is_due(self, now: float) -> bool:
        """Whether the time of a key has come that is waited for."""
        return any(now - since >= self.after_s for since in self._since.values())
