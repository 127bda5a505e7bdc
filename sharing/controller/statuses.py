"""What the controller writes into the status of layouts and profiles (pure)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sharing.api.node import Condition
from sharing.controller.layouts import LayoutOutcome, LayoutSeen
from sharing.controller.profiles import ProfileOutcome, ProfileSeen


def layout_status(outcome: LayoutOutcome, seen: LayoutSeen, now: datetime) -> dict[str, Any] | None:
    """The status of a GPULayout; None if it says so already."""
    ready = _ready(outcome, seen.conditions, seen.generation, now)
    if seen.conditions == (ready,):
        return None
    return {"observedGeneration": seen.generation, "conditions": [_plain(ready)]}


def profile_status(
    outcome: ProfileOutcome, seen: ProfileSeen, now: datetime
) -> dict[str, Any] | None:
    """The status of a SharingProfile; None if it says so already."""
    ready = _ready(outcome, seen.conditions, seen.generation, now)
    status = {
        "observedGeneration": seen.generation,
        "namespaceCount": outcome.namespace_count,
        "namespaces": [_plain(one) for one in outcome.namespaces],
        "grants": [_plain(one) for one in outcome.grants],
        "conditions": [_plain(ready)],
    }
    return None if status == seen.told else status


def _ready(
    outcome: LayoutOutcome | ProfileOutcome,
    before: tuple[Condition, ...],
    generation: int | None,
    now: datetime,
) -> Condition:
    status = "True" if outcome.ready else "False"
    since = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for one in before:
        if one.type == "Ready" and one.status == status:
            since = one.last_transition_time
    return Condition(
        type="Ready",
        status=status,
        reason=outcome.reason,
        message=outcome.message[:1024],
        last_transition_time=since,
        observed_generation=generation,
    )


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain
