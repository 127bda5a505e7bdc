"""Who holds which share: the kubelet's word, as values.

The kubelet's PodResources is the truth about assignments. A device that our own Allocate answered
a moment ago counts as held too, since the kubelet lists it only once its admission is through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharing.migprofile import MigProfile
from sharing.share import instance_named, place_of


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Holder:
    """One container of one pod."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Hold:
    """One share in the hands of a container."""

    device_id: str
    resource: str
    """The extended resource under which it was handed out: it says mode, size and pool."""
    holder: Holder | None = None
    """None for a share that was handed out a moment ago and is not listed yet."""

    @property
    def gpu_uuid(self) -> str:
        """The GPU that the share is on."""
        return gpu_of(self.device_id)

    @property
    def mig_place(self) -> tuple[MigProfile, int] | None:
        """MIG profile and start of the instance, if the share is one or is cut from one."""
        return instance_named(self.device_id)

    @property
    def place(self) -> str:
        """What the share is or is cut from: a MIG instance's device id, or the GPU's UUID."""
        return place_of(self.device_id)

    def __str__(self) -> str:
        return (
            str(self.holder) if self.holder else f"a pod that is being admitted ({self.resource})"
        )


def is_whole(device_id: str) -> bool:
    """Whether a device id means a GPU or a part of one, and nothing in a MIG instance."""
    return instance_named(device_id) is None


def gpu_of(device_id: str) -> str:
    """The GPU's UUID inside a device id."""
    return device_id.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Held:
    """All holds of a node."""

    holds: tuple[Hold, ...] = ()

    @classmethod
    def of(cls, holds: Iterable[Hold]) -> Held:
        """The holds in one order, whatever order they came in."""
        return cls(tuple(sorted(set(holds), key=_order)))

    def on(self, gpu_uuid: str) -> tuple[Hold, ...]:
        """Those on one GPU."""
        return tuple(hold for hold in self.holds if hold.gpu_uuid == gpu_uuid)


def _order(hold: Hold) -> tuple[str, str, bool, str]:
    return (hold.device_id, hold.resource, hold.holder is None, str(hold.holder or ""))
