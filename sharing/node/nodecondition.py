"""The Node's own condition about its GPUs, as node problem detectors write theirs (pure).

The kubelet keeps conditions that are not its own, and so do we: a strategic merge patch names one
condition by its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharing.api.node import Condition
from sharing.node.diagnosis import NODE_CONDITION


def seen_condition(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Status, reason and message of the condition that a Node has; empty if it has none."""
    conditions = (item.get("status") or {}).get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, Mapping) and one.get("type") == NODE_CONDITION:
            status, reason, message = (one.get(key) for key in ("status", "reason", "message"))
            return str(status or ""), str(reason or ""), str(message or "")
    return ("", "", "")


def condition_to_write(
    seen: tuple[str, str, str], wanted: Condition | None
) -> dict[str, Any] | None:
    """The condition as a Node holds it; None if the Node has it already."""
    if wanted is None or seen == (wanted.status, wanted.reason, wanted.message):
        return None
    return {
        "type": NODE_CONDITION,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": wanted.last_transition_time,
        "lastHeartbeatTime": wanted.last_transition_time,
    }
