"""Turns a subscription of the store into the events that one watcher wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, labels_of, meta, namespace_of
from embedded.apiserver.registry import in_version
from embedded.apiserver.selectors import FieldSelector, LabelSelector
from embedded.apiserver.status import StatusError
from embedded.apiserver.store import Change, Store, StoreEvent

BOOKMARK_PERIOD_S: Final = 60.0
INITIAL_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which objects a list or watch is about."""

    namespace: str = ""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    def takes(self, obj: Json | None) -> bool:
        """Whether an object belongs."""
        return (
            obj is not None
            and (not self.namespace or namespace_of(obj) == self.namespace)
            and self.labels.matches(labels_of(obj))
            and self.fields.matches(obj)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How a client watches.

    Attributes:
        since: Revision to start after; None to start with everything that exists.
        bookmarks: Whether the client takes bookmarks.
        announce_initial: Whether a bookmark closes the initial events (watch-list).
        timeout_s: After how long the server ends the watch.
    """

    since: int | None = None
    bookmarks: bool = False
    announce_initial: bool = False
    timeout_s: float = 1800.0


async def events(  # noqa: PLR0917 - the parts of a watch
    store: Store,
    kind: ResourceKind,
    wanted: Wanted,
    options: WatchOptions,
    now: Callable[[], float],
) -> AsyncGenerator[tuple[str, Json], None]:
    """(type, object) pairs until the time is over or the server ends the watch.

    A problem with the wanted revision comes as an ERROR event, as from the real server.
    """
    initial = store.objects(kind.qualified, wanted.namespace) if options.since is None else []
    since = store.revision if options.since is None else options.since
    try:
        subscription = store.subscribe(kind.qualified, since)
    except StatusError as error:
        yield "ERROR", error.as_json()
        return
    end = now() + options.timeout_s
    try:
        for obj in initial:
            if wanted.takes(obj):
                yield Change.ADDED.value, in_version(obj, kind)
        if options.announce_initial:
            yield "BOOKMARK", _bookmark(kind, since, {INITIAL_END: "true"})
        while (left := end - now()) > 0:
            try:
                wait_s = min(left, BOOKMARK_PERIOD_S)
                event = await asyncio.wait_for(subscription.queue.get(), wait_s)
            except TimeoutError:
                if options.bookmarks:
                    yield "BOOKMARK", _bookmark(kind, store.revision)
                continue
            if event is None:
                return
            told = as_seen(event, wanted)
            if told is not None:
                yield told.value, in_version(_shown(event, told), kind)
    finally:
        subscription.close()


def _shown(event: StoreEvent, told: Change) -> Json:
    """The object of an event; of one that leaves a watcher's sight, as it was last seen."""
    if told is not Change.DELETED or event.change is Change.DELETED or event.previous is None:
        return event.obj
    metadata = {**meta(event.previous), "resourceVersion": str(event.revision)}
    return {**event.previous, "metadata": metadata}


def as_seen(event: StoreEvent, wanted: Wanted) -> Change | None:
    """What an event is to a watcher with selectors: objects come into sight and leave it."""
    after = event.change is not Change.DELETED and wanted.takes(event.obj)
    before = wanted.takes(event.previous)
    if after:
        return Change.MODIFIED if before else Change.ADDED
    return Change.DELETED if before else None


def _bookmark(kind: ResourceKind, revision: int, annotations: Json | None = None) -> Json:
    metadata: Json = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
