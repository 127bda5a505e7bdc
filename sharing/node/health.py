"""Whether a GPU, or one MIG instance of it, may take new work: a state machine over events.

A fault is acted on when it is first seen. It is over when the device was quiet for a while and
passes its probes; the more often it falls ill, the longer the quiet has to be. What the driver
reports about an application's own mistake is no fault of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from sharing.nvml.codes import RecoveryAction
from sharing.nvml.observed import DriverEvent, EventKind


class Reaction(StrEnum):
    """What an XID means for the device."""

    IGNORE = "ignore"
    """An application's fault, or none: the device is fine."""
    ACT = "act"
    """No new work until the device passed its probes."""


APPLICATION_XIDS: Final[Mapping[int, Reaction]] = MappingProxyType(
    dict.fromkeys((13, 31, 43, 45, 68, 109), Reaction.IGNORE)
)
"""Graphics engine exception, memory page fault, reset channel, preemptive clean-up, video
processor exception, context switch time-out: a program's doing.

Source: NVIDIA/k8s-device-plugin, health check, ignored XIDs; NVIDIA XID catalogue.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """When a device is ill and when it is well again."""

    xids: Mapping[int, Reaction] = field(default_factory=lambda: APPLICATION_XIDS)
    """XIDs that are not listed are acted on."""
    quiet_s: float = 30.0
    """How long nothing bad may happen before a fault is over; doubled by each relapse."""
    longest_quiet_s: float = 3600.0
    probes: int = 2
    """How many probes in a row have to pass."""
    forget_after_s: float = 86400.0
    """A relapse later than this counts as a first fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """A fault of a GPU or MIG instance; kept after its end, to know a relapse."""

    reason: str
    """One word for machines: ``Xid79``, ``GpuLost``."""
    message: str
    since: float
    """Unix time at which it was first seen, seconds."""
    last: float
    """Unix time of the latest sign of it."""
    relapses: int = 0
    passed: int = 0
    """Probes passed in a row."""
    over: float | None = None
    """Unix time of recovery; None while it lasts."""

    def to_json(self) -> dict[str, Any]:
        """As it is kept on disk."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ailment:
        """What is kept on disk.

        Raises:
            ValueError: It is none.
        """
        try:
            over = raw["over"]
            return cls(
                reason=str(raw["reason"]),
                message=str(raw["message"]),
                since=float(raw["since"]),
                last=float(raw["last"]),
                relapses=int(raw["relapses"]),
                passed=int(raw["passed"]),
                over=None if over is None else float(over),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no ailment: {error}") from error


_FIELDS: Final = ("reason", "message", "since", "last", "relapses", "passed", "over")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sign that a device is ill."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A look at a device."""

    readable: bool
    """The driver answers every question about it."""
    recovery_action: RecoveryAction = RecoveryAction.NONE
    """What the driver wants to be done first."""


def finding_of(event: DriverEvent, policy: HealthPolicy) -> Finding | None:
    """What an event says about the device; None if it is no sign of illness."""
    match event.kind:
        case EventKind.XID:
            if policy.xids.get(event.data, Reaction.ACT) is Reaction.IGNORE:
                return None
            return Finding(
                reason=f"Xid{event.data}",
                message=f"the driver reported XID {event.data}; see NVIDIA's XID catalogue",
            )
        case EventKind.LOST:
            return Finding(reason="GpuLost", message="the GPU fell off the bus")
        case EventKind.UNAVAILABLE:
            return Finding(reason="GpuUnavailable", message="the driver says it is unavailable")
        case EventKind.RECOVERY_ACTION:
            if event.data == RecoveryAction.NONE:
                return None
            return Finding(
                reason="RecoveryAction", message=f"the driver recommends {_action(event.data)}"
            )
        case EventKind.MIG_CONFIG | EventKind.ECC | EventKind.OTHER:
            return None


def fell_ill(before: Ailment | None, finding: Finding, now: float, policy: HealthPolicy) -> Ailment:
    """The ailment after a sign of illness."""
    if before is None or (before.over is not None and now - before.over > policy.forget_after_s):
        return Ailment(reason=finding.reason, message=finding.message, since=now, last=now)
    if before.over is None:
        return replace(before, last=now, passed=0)
    return Ailment(
        reason=finding.reason,
        message=finding.message,
        since=now,
        last=now,
        relapses=before.relapses + 1,
    )


def probed(before: Ailment, probe: Probe, now: float, policy: HealthPolicy) -> Ailment:
    """The ailment after a probe: over if the device was quiet and passed often enough."""
    if before.over is not None:
        return before
    if not probe.readable or probe.recovery_action is not RecoveryAction.NONE:
        return replace(before, last=now, passed=0)
    if now - before.last < quiet_s(before, policy):
        return before
    passed = before.passed + 1
    return replace(before, passed=passed, over=now if passed >= policy.probes else None)


def quiet_s(ailment: Ailment, policy: HealthPolicy) -> float:
    """How long the device has to be quiet, in seconds."""
    return float(min(policy.quiet_s * 2.0 ** min(ailment.relapses, 30), policy.longest_quiet_s))


def is_ill(ailment: Ailment | None) -> bool:
    """Whether the device may take no new work."""
    return ailment is not None and ailment.over is None


def _action(data: int) -> str:
    known = {int(action): action.name.lower().replace("_", " ") for action in RecoveryAction}
    return known.get(data, f"action {data}")
