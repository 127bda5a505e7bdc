"""Whether a GPU, or one MIG instance of it, may take new work: a state machine over signs.

::

    healthy ── sign ──> suspect ── too many ──┐          suspects take work
       │                   │ time             ▼
       └───── fault ───────┼────────────> unhealthy <── failed probe ─┐
                           ▼                  │ quiet                 │
    healthy <── time ── recovered <── probes ─┴──> probing ───────────┘

A fault is acted on when it is first seen. It is over when the device was quiet for a while and
passes its probes; the more often it falls ill, the longer the quiet has to be. A driver that was
away is no fault of the device: the first probe that passes ends it, unless it happens again and
again. What a sign means stands in a table (``xid``); here are the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from sharing.node.finding import Finding
from sharing.node.xid import ADVICE, Action, FaultTable, Limits, Reaction, Sign, shipped_table
from sharing.nvml.codes import RecoveryAction

_MOST_SIGNS: Final = 64
"""Counted signs that an ailment remembers."""


class State(StrEnum):
    """How a device is."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Something was seen; it takes work."""
    UNHEALTHY = "unhealthy"
    PROBING = "probing"
    """Quiet long enough, and passing probes; it takes no work yet."""
    RECOVERED = "recovered"
    """It takes work; if it falls ill again, that is a relapse."""

    @property
    def takes_work(self) -> bool:
        """Whether shares of the device may be handed out."""
        return self not in {State.UNHEALTHY, State.PROBING}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """When a device is ill and when it is well again; times in seconds."""

    table: FaultTable = field(default_factory=shipped_table)
    quiet_s: float = 30.0
    """How long nothing bad may happen before a fault is over; doubled by each relapse."""
    longest_quiet_s: float = 3600.0
    probes: int = 2
    """How many probes in a row have to pass."""
    forget_after_s: float = 86400.0
    """A relapse later than this counts as a first fault."""
    flap_limit: int = 5
    """Relapses after which the quiet is ``flap_quiet_s``."""
    flap_quiet_s: float = 86400.0
    cool_down_c: int = 5
    """How far below its slowdown temperature a GPU is cool again."""

    @classmethod
    def of(cls, table: FaultTable) -> HealthPolicy:
        """The policy that a table with its times is."""
        return cls(table=table, **{name: getattr(table.limits, name) for name in _TIMES})


_TIMES: Final = tuple(Limits.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """What is known against a GPU or MIG instance; kept after its end, to know a relapse."""

    state: State = State.UNHEALTHY
    reason: str
    """One word for machines: ``Xid79``, ``GpuLost``."""
    message: str
    xid: int | None = None
    action: Action = Action.NONE
    """What is to be done, where somebody has to."""
    since: float
    """Unix time at which it was first seen, seconds."""
    last: float
    """Unix time of the latest sign of it."""
    relapses: int = 0
    passed: int = 0
    """Probes passed in a row."""
    over: float | None = None
    """Unix time of the latest recovery; None if there was none."""
    until: float = 0.0
    """Unix time until which a suspect is one."""
    signs: tuple[tuple[str, float], ...] = ()
    """Counted signs: reason and Unix time."""

    @property
    def advice(self) -> str:
        """What a person has to do; empty if nothing."""
        return ADVICE.get(self.action, "")

    def to_json(self) -> dict[str, Any]:
        """As it is kept on disk."""
        raw = {name: getattr(self, name) for name in _FIELDS}
        raw["state"], raw["action"] = str(self.state), str(self.action)
        raw["signs"] = [list(sign) for sign in self.signs]
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ailment:
        """What is kept on disk.

        Raises:
            ValueError: It is none.
        """
        try:
            over = raw["over"]
            xid = raw.get("xid")
            state = raw.get("state") or (State.UNHEALTHY if over is None else State.RECOVERED)
            return cls(
                state=State(state),
                reason=str(raw["reason"]),
                message=str(raw["message"]),
                xid=None if xid is None else int(xid),
                action=Action(raw.get("action", "")),
                since=float(raw["since"]),
                last=float(raw["last"]),
                relapses=int(raw["relapses"]),
                passed=int(raw["passed"]),
                over=None if over is None else float(over),
                until=float(raw.get("until", 0.0)),
                signs=tuple((str(reason), float(at)) for reason, at in raw.get("signs", ())),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no ailment: {error}") from error


_FIELDS: Final = (
    "reason",
    "message",
    "xid",
    "since",
    "last",
    "relapses",
    "passed",
    "over",
    "until",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A look at a device."""

    readable: bool
    """The driver answers every question about it."""
    recovery_action: RecoveryAction = RecoveryAction.NONE
    """What the driver wants to be done first."""
    well: bool = True
    """Nothing else that was seen forbids new work."""

    @property
    def passes(self) -> bool:
        """Whether it speaks for the device."""
        return self.readable and self.well and self.recovery_action is RecoveryAction.NONE


def after_sign(
    before: Ailment | None, finding: Finding, now: float, policy: HealthPolicy
) -> Ailment:
    """What is known against a device after a sign."""
    if before is not None and _is_forgotten(before, now, policy):
        before = None
    signs = _counted(before, finding, now)
    many = sum(reason == finding.reason for reason, _ in signs)
    acts = finding.rule.reaction is Reaction.ACT or (
        finding.rule.reaction is Reaction.COUNT and many >= finding.rule.limit
    )
    if before is not None and not before.state.takes_work:
        return (
            _worse(replace(before, signs=signs), finding, now)
            if acts
            else (replace(before, signs=signs))
        )
    fresh = Ailment(
        state=State.UNHEALTHY if acts else State.SUSPECT,
        reason=finding.reason,
        message=_message(finding, many),
        xid=finding.xid,
        action=finding.to_do,
        since=now,
        last=now,
        until=now + finding.rule.window_s,
        signs=signs,
    )
    if before is None:
        return fresh
    relapses = before.relapses + (1 if acts and before.over is not None else 0)
    fresh = replace(fresh, relapses=relapses, over=before.over)
    if not acts and before.state is State.SUSPECT:
        same = before.reason == fresh.reason
        return replace(
            fresh if same or fresh.action.rank > before.action.rank else before,
            since=before.since,
            last=now,
            until=max(before.until, fresh.until),
            signs=signs,
        )
    return fresh


def after_probe(before: Ailment, probe: Probe, now: float, policy: HealthPolicy) -> Ailment | None:
    """What is known after a look at the device; None once there is nothing to remember.

    A clock that was set back prolongs nothing: the quiet begins anew at the latest.
    """
    if before.last > now:
        before = replace(before, last=now)
    if before.state.takes_work:
        return _settled(before, now, policy)
    if not probe.passes:
        return replace(before, state=State.UNHEALTHY, last=now, passed=0)
    passed = before.passed + 1
    if _was_only_unseen(before, policy):
        return replace(before, state=State.RECOVERED, passed=passed, over=now)
    if now - before.last < quiet_s(before, policy):
        return before
    if passed < policy.probes:
        return replace(before, state=State.PROBING, passed=passed)
    return replace(before, state=State.RECOVERED, passed=passed, over=now)


def quiet_s(ailment: Ailment, policy: HealthPolicy) -> float:
    """How long the device has to be quiet, in seconds."""
    if ailment.relapses >= policy.flap_limit:
        return policy.flap_quiet_s
    return float(min(policy.quiet_s * 2.0 ** min(ailment.relapses, 30), policy.longest_quiet_s))


def _was_only_unseen(ailment: Ailment, policy: HealthPolicy) -> bool:
    """Whether nothing is known against the device but that the driver was away for a while."""
    return ailment.reason == Sign.DRIVER_UNAVAILABLE and ailment.relapses < policy.flap_limit


def state_of(ailment: Ailment | None) -> State:
    """How a device is."""
    return State.HEALTHY if ailment is None else ailment.state


def is_ill(ailment: Ailment | None) -> bool:
    """Whether the device may take no new work."""
    return not state_of(ailment).takes_work


def _settled(before: Ailment, now: float, policy: HealthPolicy) -> Ailment | None:
    """A suspect whose time is up is what it was before; a recovery is forgotten in time."""
    if before.state is State.SUSPECT and now >= before.until:
        if before.over is None:
            return None
        before = replace(before, state=State.RECOVERED)
    return None if _is_forgotten(before, now, policy) else before


def _is_forgotten(ailment: Ailment, now: float, policy: HealthPolicy) -> bool:
    return (
        ailment.state is State.RECOVERED
        and ailment.over is not None
        and now - ailment.over > policy.forget_after_s
    )


def _counted(before: Ailment | None, finding: Finding, now: float) -> tuple[tuple[str, float], ...]:
    signs = before.signs if before is not None else ()
    if finding.rule.reaction is not Reaction.COUNT or finding.steady:
        return signs
    window = now - finding.rule.window_s
    kept = [(reason, at) for reason, at in signs if reason != finding.reason or window < at <= now]
    return (*kept, (finding.reason, now))[-_MOST_SIGNS:]


def _worse(before: Ailment, finding: Finding, now: float) -> Ailment:
    """An illness goes on; the sign that asks most of people is the one that is told."""
    again = replace(before, state=State.UNHEALTHY, last=now, passed=0)
    action = finding.to_do
    only_unseen = before.reason == Sign.DRIVER_UNAVAILABLE
    if finding.reason == Sign.DRIVER_UNAVAILABLE:
        return again  # says nothing about the device, and must not hide what is known
    if action.rank <= before.action.rank and not only_unseen:
        return again
    if finding.reason == Sign.RECOVERY_ACTION and before.xid is not None:
        return replace(again, action=action)  # what the driver recommends about that XID
    return replace(
        again, reason=finding.reason, message=finding.message, xid=finding.xid, action=action
    )


def _message(finding: Finding, many: int) -> str:
    if finding.rule.reaction is not Reaction.COUNT:
        return finding.message
    return f"{finding.message}, {many} of {finding.rule.limit} within {finding.rule.window_s:g} s"
