"""Signs of illness: what an event, or a look at a device, says against it (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharing.node.xid import RECOVERY, Action, FaultTable, Reaction, Rule, Sign
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.observed import DriverEvent, EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sign that a device is ill, or may be."""

    reason: str
    message: str
    rule: Rule
    xid: int | None = None
    action: Action | None = None
    """In place of the rule's, where the driver itself says what to do."""
    steady: bool = False
    """It is seen at every look as long as it lasts, so seeing it again counts nothing."""

    @property
    def to_do(self) -> Action:
        """What is to be done about it."""
        return self.rule.action if self.action is None else self.action


def finding_of(event: DriverEvent, table: FaultTable) -> Finding | None:
    """What an event says about the device; None if it is no sign of illness."""
    match event.kind:
        case EventKind.XID:
            rule = table.of_xid(event.data)
            if rule.reaction is Reaction.IGNORE:
                return None
            name = f": {rule.name}" if rule.name else ""
            return Finding(
                reason=f"Xid{event.data}",
                message=f"XID {event.data}{name}",
                rule=rule,
                xid=event.data,
            )
        case EventKind.LOST:
            return sign_of(Sign.GPU_LOST, table)
        case EventKind.UNAVAILABLE:
            return sign_of(Sign.GPU_UNAVAILABLE, table)
        case EventKind.RECOVERY_ACTION:
            return recovery_of(event.data, table)
        case EventKind.MIG_CONFIG | EventKind.ECC | EventKind.OTHER:
            return None  # a reason to look; what the look shows decides


def sign_of(
    sign: Sign, table: FaultTable, detail: str = "", *, steady: bool = False
) -> Finding | None:
    """A finding by its line in the table; None where that says to ignore it."""
    rule = table.signs[sign]
    if rule.reaction is Reaction.IGNORE:
        return None
    message = f"{rule.name}: {detail}" if detail else rule.name
    return Finding(reason=str(sign), message=message, rule=rule, steady=steady)


def recovery_of(data: int, table: FaultTable) -> Finding | None:
    """What the driver's recommended recovery action says; None if it recommends nothing."""
    if data == RecoveryAction.NONE:
        return None
    known = RecoveryAction(data) if data in set(RecoveryAction) else None
    word = known.name.lower().replace("_", " ") if known is not None else f"action {data}"
    found = sign_of(Sign.RECOVERY_ACTION, table, word, steady=True)
    if found is None:
        return None
    return replace(found, action=RECOVERY[known] if known else Action.CONTACT_SUPPORT)
