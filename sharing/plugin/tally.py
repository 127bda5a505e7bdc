"""What the kubelet asked and how it was answered, counted since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from sharing.plugin.errors import (
    HeldShareError,
    PluginError,
    SeveralSharesError,
    UnknownShareError,
)


class Refusal(StrEnum):
    """Why a container was not given what the kubelet asked for."""

    UNKNOWN_SHARE = "unknown-share"
    """Allocate named a share that does not exist; the pod fails."""
    SEVERAL_SHARES = "several-shares"
    """Allocate named several shares for one container; the pod fails."""
    HELD = "held"
    """Allocate named a share that another container holds; the pod fails."""
    NOT_READY = "not-ready"
    """PreStartContainer met a share that waits for its MPS daemon; the start is tried again."""
    GONE = "gone"
    """PreStartContainer named a share that is no more; the start is tried again."""
    OTHER = "other"


@dataclass(slots=True)
class Tally:
    """Counts by extended resource name."""

    allocations: Counter[str] = field(default_factory=Counter)
    """Containers that were given shares."""
    refusals: Counter[tuple[str, Refusal]] = field(default_factory=Counter)

    def allocated(self, resource: str, containers: int) -> None:
        """Some containers were given their shares."""
        self.allocations[resource] += containers

    def refused(self, resource: str, why: Refusal | PluginError) -> None:
        """A container was not."""
        self.refusals[resource, why if isinstance(why, Refusal) else _refusal(why)] += 1


def _refusal(error: PluginError) -> Refusal:
    match error:
        case UnknownShareError():
            return Refusal.UNKNOWN_SHARE
        case SeveralSharesError():
            return Refusal.SEVERAL_SHARES
        case HeldShareError():
            return Refusal.HELD
        case _:
            return Refusal.OTHER
