"""What happened, as an audit log in memory that tests and people can read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One answered request.

    Attributes:
        annotations: What admission recorded (``<webhook name>/<key>``).
    """

    method: str
    path: str
    user: str
    code: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class AuditLog:
    """The last events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[AuditEvent] = deque(maxlen=_EVENTS)

    def add(self, event: AuditEvent) -> None:
        """Record an event."""
        self._events.append(event)

    def __iter__(self) -> Iterator[AuditEvent]:
        return iter(tuple(self._events))

    def annotations(self, key: str) -> list[str]:
        """All recorded values of one annotation."""
        return [event.annotations[key] for event in self if key in event.annotations]
