"""Who holds which share: the kubelet's word, as values.

The kubelet's PodResources is the truth about assignments. A device that our own Allocate answered
a moment ago counts as held too, since the kubelet lists it only once its admission is through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sharing.errors import SizeError
from sharing.migprofile import MigProfile

_START: Final = re.compile(r"[0-9]{1,3}", re.ASCII)


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
        """MIG profile and start of the instance, if the share is one."""
        _, colons, rest = self.device_id.partition("::")
        token, dash, start = rest.rpartition("-")
        if not colons or not dash or not _START.fullmatch(start):
            return None
        try:
            return MigProfile.from_token(token), int(start)
        except SizeError:
            return None

    def __str__(self) -> str:
        return (
            str(self.holder) if self.holder else f"a pod that is being admitted ({self.resource})"
        )


def is_whole(device_id: str) -> bool:
    """Whether a device id means a GPU or a part of one that is no MIG instance."""
    return Hold(device_id=device_id, resource="").mig_place is None


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
