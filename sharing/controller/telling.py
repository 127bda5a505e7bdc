"""Saying things once: what was told of an object is not told again while it stays so."""

from __future__ import annotations

from collections.abc import Iterable

from sharing.cluster.events import EventRecorder
from sharing.controller.audit import Telling


class Tellings:
    """Records Events.

    Args:
        events: Where to.
    """

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._told: dict[str, frozenset[tuple[str, str, str]]] = {}

    def tell(self, topic: str, tellings: Iterable[Telling]) -> None:
        """Tell what is new about a topic; what is no longer so may be told again later."""
        now = {telling.key: telling for telling in tellings}
        told = self._told.get(topic, frozenset())
        for key, telling in now.items():
            if key not in told:
                self._events.record(
                    telling.about, telling.reason, telling.message, warning=telling.warning
                )
        self._told[topic] = frozenset(now)
