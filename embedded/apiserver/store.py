"""Objects in memory with one counter of revisions, a history and its subscribers.

The rules are etcd's as the API server shows them: each write takes the next revision; a
writer may demand the revision it has read; history is kept for a while, and whoever asks
for older gets 410. Nothing here awaits, so each call is atomic for the event loop.

Stored objects are shared with every reader and must never be changed in place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from embedded.apiserver.objects import Json, own_meta, revision_of
from embedded.apiserver.status import gone

HISTORY_EVENTS: Final = 5000
QUEUE_EVENTS: Final = 20_000

Key = tuple[str, str]  # (namespace or "", name)


class Change(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One write: the object after it (for a deletion: the last state) and before it."""

    revision: int
    change: Change
    obj: Json
    previous: Json | None


class RevisionConflictError(Exception):
    """The object is no longer at the revision that the writer demanded."""


class Subscription:
    """Events of one resource from a revision on."""

    def __init__(self, replay: list[StoreEvent], on_close: Callable[[Subscription], None]) -> None:
        self.queue: asyncio.Queue[StoreEvent | None] = asyncio.Queue()
        self._on_close = on_close
        for event in replay:
            self.queue.put_nowait(event)

    def push(self, event: StoreEvent) -> bool:
        """Hand an event over; False when the reader is hopelessly behind."""
        if self.queue.qsize() >= QUEUE_EVENTS:
            self.end()
            return False
        self.queue.put_nowait(event)
        return True

    def end(self) -> None:
        """Tell the reader that nothing more comes."""
        self.queue.put_nowait(None)

    def close(self) -> None:
        """Stop receiving."""
        self._on_close(self)


@dataclass(slots=True)
class _Shelf:
    """Everything of one resource."""

    objects: dict[Key, Json] = field(default_factory=dict)
    history: deque[StoreEvent] = field(default_factory=deque)
    forgotten: int = 0  # revision of the youngest event that left the history
    subscribers: list[Subscription] = field(default_factory=list)


class Store:
    """All objects of a cluster.

    Args:
        history_events: How many past events each resource keeps for late watchers.
    """

    def __init__(self, *, history_events: int = HISTORY_EVENTS) -> None:
        self.revision = 1
        self._history_events = history_events
        self._shelves: dict[str, _Shelf] = {}

    def _shelf(self, resource: str) -> _Shelf:
        return self._shelves.setdefault(resource, _Shelf())

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        """The object, or nothing."""
        return self._shelf(resource).objects.get((namespace, name))

    def objects(self, resource: str, namespace: str = "") -> list[Json]:
        """The objects of a namespace, or of all, ordered by namespace and name."""
        objects = self._shelf(resource).objects
        keys = sorted(key for key in objects if not namespace or key[0] == namespace)
        return [objects[key] for key in keys]

    def resources(self) -> list[str]:
        """Names of all resources that hold objects."""
        return sorted(name for name, shelf in self._shelves.items() if shelf.objects)

    def put(self, resource: str, key: Key, obj: Json, *, expected: int | None = None) -> Json:
        """Create or replace; the object gets the next revision.

        Args:
            resource: ``plural.group``.
            key: Namespace and name.
            obj: Becomes the store's; not to be touched by the caller any more.
            expected: Revision that must be current; 0 for "must not exist"; None for any.

        Raises:
            RevisionConflictError: ``expected`` does not hold.
        """
        shelf = self._shelf(resource)
        previous = shelf.objects.get(key)
        _demand(previous, expected)
        self.revision += 1
        own_meta(obj)["resourceVersion"] = str(self.revision)
        shelf.objects[key] = obj
        change = Change.MODIFIED if previous is not None else Change.ADDED
        self._publish(shelf, StoreEvent(self.revision, change, obj, previous))
        return obj

    def remove(self, resource: str, key: Key, *, expected: int | None = None) -> Json:
        """Delete; returns the last state, which carries the revision of the deletion.

        Raises:
            RevisionConflictError: ``expected`` does not hold, or there is no object.
        """
        shelf = self._shelf(resource)
        previous = shelf.objects.get(key)
        if previous is None:
            raise RevisionConflictError
        _demand(previous, expected)
        self.revision += 1
        del shelf.objects[key]
        metadata = {**previous["metadata"], "resourceVersion": str(self.revision)}
        last = {**previous, "metadata": metadata}
        self._publish(shelf, StoreEvent(self.revision, Change.DELETED, last, previous))
        return last

    def subscribe(self, resource: str, since: int) -> Subscription:
        """Events after a revision, and all that follow.

        Raises:
            StatusError: 410, the history does not reach back so far.
        """
        shelf = self._shelf(resource)
        if since < shelf.forgotten:
            raise gone(f"too old resource version: {since} ({shelf.forgotten})")
        replay = [event for event in shelf.history if event.revision > since]
        subscription = Subscription(replay, lambda closed: _discard(shelf.subscribers, closed))
        shelf.subscribers.append(subscription)
        return subscription

    def forget_history(self) -> None:
        """Drop all history, as etcd's compaction does; running watches go on."""
        for shelf in self._shelves.values():
            shelf.forgotten = self.revision
            shelf.history.clear()

    def end_subscriptions(self, resource: str | None = None) -> None:
        """End every watch, or those of one resource."""
        for name, shelf in self._shelves.items():
            if resource in {None, name}:
                for subscription in tuple(shelf.subscribers):
                    subscription.end()

    def _publish(self, shelf: _Shelf, event: StoreEvent) -> None:
        shelf.history.append(event)
        if len(shelf.history) > self._history_events:
            shelf.forgotten = shelf.history.popleft().revision
        for subscription in tuple(shelf.subscribers):
            if not subscription.push(event):
                _discard(shelf.subscribers, subscription)


def _demand(previous: Json | None, expected: int | None) -> None:
    if expected is None:
        return
    current = revision_of(previous) if previous is not None else 0
    if current != expected:
        raise RevisionConflictError


def _discard(subscribers: list[Subscription], subscription: Subscription) -> None:
    if subscription in subscribers:
        subscribers.remove(subscription)
