"""Rules for what programs write about themselves: leases and events (pure).

Source: ``pkg/apis/coordination/validation`` and ``pkg/apis/core/validation/events.go``.
"""

from __future__ import annotations

from typing import Final

from embedded.apiserver.objects import Json, meta, section
from embedded.apiserver.status import Cause, invalid_value

_CLUSTER: Final = "default"
"""Where events about objects without a namespace lie."""


def lease_causes(lease: Json) -> list[Cause]:
    """What is wrong with a lease."""
    spec = section(lease, "spec")
    causes = []
    for key, least, why in (
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ):
        if key in spec and spec[key] < least:
            causes.append(invalid_value(f"spec.{key}", spec[key], why))
    return causes


def event_causes(event: Json) -> list[Cause]:
    """What is wrong with an event of the core group."""
    about, own = section(event, "involvedObject").get("namespace"), meta(event).get("namespace")
    if about == own or (not about and own == _CLUSTER):
        return []
    why = "does not match event.namespace"
    return [invalid_value("involvedObject.namespace", about or "", why)]
