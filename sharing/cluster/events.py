"""Kubernetes Events: what happened to an object, where ``kubectl describe`` shows it.

Recording never waits and never fails whoever records: one writer does the rest. The same event
again raises a counter, also after a restart of the program or in another replica of it: an
Event's name is made of what it says. Floods are held down as ``eventflow`` says; what waits for
its turn, or for a server that is away, is added up meanwhile and written with its own times.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import structlog

from sharing.cluster.backoff import Backoff
from sharing.cluster.errors import (
    AlreadyExistsError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from sharing.cluster.eventflow import (
    Alike,
    Budget,
    EventPolicy,
    note_message,
    refilled,
    refunded,
    spent,
    wait_s,
)
from sharing.cluster.kind import EVENTS
from sharing.errors import GpuSharingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from sharing.cluster.client import Client

K = TypeVar("K")
V = TypeVar("V")

_log: Final = structlog.get_logger()
_MOST_WAITING: Final = 1000
_REMEMBERED: Final = 4096
_LONGEST_PAUSE_S: Final = 30.0
_LONGEST_MESSAGE: Final = 1024
"""The API refuses longer ones."""
_COMBINED: Final = "(combined from similar events): "
"""As client-go begins them."""
_PASSING: Final = (UnreachableError, ServerError, TooManyRequestsError)
"""What may be over at the next try."""


def reference(item: Mapping[str, Any]) -> dict[str, str]:
    """The ``involvedObject`` that names an object."""
    metadata = item.get("metadata") or {}
    named = {
        "apiVersion": item.get("apiVersion"),
        "kind": item.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
    }
    return {key: str(value) for key, value in named.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    about: tuple[tuple[str, str], ...]
    reason: str
    message: str
    type: str
    combined: bool = False
    """Stands for many that are alike; ``message`` is the latest one's."""

    @property
    def name(self) -> str:
        said = "" if self.combined else self.message
        identity = repr((self.about, self.reason, said, self.type))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return f"{dict(self.about).get('name', 'unknown')[:200]}.{digest}"

    @property
    def text(self) -> str:
        return f"{_COMBINED if self.combined else ''}{self.message}"[:_LONGEST_MESSAGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """An event that is to be written, and how often it happened since it was."""

    event: _Event
    times: int
    first: str
    last: str

    def before(self, later: _Waiting | None) -> _Waiting:
        """This one, with what happened later."""
        if later is None:
            return self
        return replace(later, times=self.times + later.times, first=self.first)


class EventRecorder:
    """Writes events for one program; an async context manager.

    Needs the rights to create and patch events, and no other.

    Args:
        client: The connection.
        component: Who reports, such as ``gpu-sharing-agent``.
        instance: Which of them, such as the node's name.
        policy: How many are too many.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        instance: str = "",
        policy: EventPolicy | None = None,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._policy = policy or EventPolicy()
        self._waiting: dict[str, _Waiting] = {}
        self._counts: dict[str, int] = {}
        self._alike: dict[tuple[object, ...], Alike] = {}
        self._budgets: dict[object, Budget] = {}
        self._dropped = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def record(
        self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Note that something happened.

        Args:
            about: The object, or its ``reference``.
            reason: One word in CamelCase, for programs.
            message: A sentence, for people; cut at 1024 characters, the API's limit.
            warning: Whether somebody should look.
        """
        named = reference(about) if "metadata" in about else dict(about)
        event = self._combined(
            _Event(
                about=tuple(sorted(named.items())),
                reason=reason,
                message=message[:_LONGEST_MESSAGE],
                type="Warning" if warning else "Normal",
            )
        )
        name = event.name
        before = self._waiting.get(name)
        if before is None and len(self._waiting) >= _MOST_WAITING:
            if not self._dropped:
                _log.warning("event was dropped", reason=reason, about=named)
            self._dropped += 1
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        new = _Waiting(event=event, times=1, first=now, last=now)
        self._waiting[name] = new if before is None else before.before(new)
        self._idle.clear()
        self._wake.set()

    def _combined(self, event: _Event) -> _Event:
        """The event, or the one that stands for it and many more."""
        key = (event.about, event.reason, event.type)
        known, too_many = note_message(
            self._alike.pop(key, None), event.message, now=time.monotonic(), policy=self._policy
        )
        _remember(self._alike, key, known)
        return replace(event, combined=True) if too_many else event

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"events of {self._component}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def drain(self) -> None:
        """Return once everything recorded so far is written."""
        await self._idle.wait()

    async def _run(self) -> None:
        backoff = Backoff(first_s=0.2, cap_s=_LONGEST_PAUSE_S)
        waits = backoff.waits()
        away = False
        while True:
            due = await self._next()
            try:
                await self._write(due)
            except _PASSING as error:
                if not away:
                    _log.warning("events wait for the API server", error=str(error))
                away = True
                self._put_back(due)
                await asyncio.sleep(min(error.retry_after_s or next(waits), _LONGEST_PAUSE_S))
                continue
            except GpuSharingError as error:
                _log.warning("event was not written", reason=due.event.reason, error=str(error))
            if away:
                _log.info("events are written again")
                away, waits = False, backoff.waits()
            self._settle()

    async def _next(self) -> _Waiting:
        """The first that its object's budget allows; it is taken out, and paid for."""
        while True:
            self._wake.clear()
            now, nap_s = time.monotonic(), None
            for name, due in self._waiting.items():
                about = due.event.about
                budget = refilled(self._budgets.get(about), now=now, policy=self._policy)
                pause_s = wait_s(budget, self._policy)
                if not pause_s:
                    self._budgets.pop(about, None)
                    _remember(self._budgets, about, spent(budget))
                    return self._waiting.pop(name)
                nap_s = pause_s if nap_s is None else min(nap_s, pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(nap_s):
                    await self._wake.wait()

    def _put_back(self, due: _Waiting) -> None:
        name, about = due.event.name, due.event.about
        if about in self._budgets:
            self._budgets[about] = refunded(self._budgets[about])
        again = due.before(self._waiting.pop(name, None))
        self._waiting = {name: again} | self._waiting

    def _settle(self) -> None:
        if self._dropped > 1:
            _log.warning("events were dropped", number=self._dropped)
        self._dropped = 0
        if not self._waiting:
            self._idle.set()

    async def _write(self, due: _Waiting) -> None:
        name, count = due.event.name, self._counts.pop(due.event.name, None)
        try:
            _remember(self._counts, name, await self._write_counted(due, count))
        except _PASSING:
            if count is not None:
                _remember(self._counts, name, count)
            raise

    async def _write_counted(self, due: _Waiting, known: int | None) -> int:
        """Write it; how often it happened in all."""
        if known is not None:
            with suppress(NotFoundError):  # it aged out on the server
                return await self._count(due, known)
        total = (known or 0) + due.times
        try:
            await self._create(due, total)
        except AlreadyExistsError:  # written before we started, or by another replica
            return await self._count(due, None)
        return total

    async def _count(self, due: _Waiting, known: int | None) -> int:
        """Add to the count of an Event that is there; what it is now.

        The answer to a patch tells the count, so no right to read Events is needed.
        """
        if known is None:
            there = await self._patch(due, {"lastTimestamp": due.last})
            said = there.get("count")
            known = said if isinstance(said, int) and said > 0 else 1
        total = known + due.times
        patch = {"count": total, "lastTimestamp": due.last, "message": due.event.text}
        await self._patch(due, patch)
        return total

    async def _patch(self, due: _Waiting, patch: dict[str, Any]) -> dict[str, Any]:
        namespace = _namespace(due.event)
        return await self._client.patch(EVENTS, due.event.name, patch, namespace=namespace)

    async def _create(self, due: _Waiting, count: int) -> None:
        event, namespace = due.event, _namespace(due.event)
        await self._client.create(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": event.name, "namespace": namespace},
                "involvedObject": dict(event.about),
                "reason": event.reason,
                "message": event.text,
                "type": event.type,
                "count": count,
                "firstTimestamp": due.first,
                "lastTimestamp": due.last,
                "source": {"component": self._component, "host": self._instance},
                "reportingComponent": self._component,
                "reportingInstance": self._instance,
            },
        )


def _namespace(event: _Event) -> str:
    return dict(event.about).get("namespace") or "default"


def _remember(mapping: dict[K, V], key: K, value: V) -> None:
    """Keep what was used last; bounded."""
    mapping[key] = value
    if len(mapping) > _REMEMBERED:
        del mapping[next(iter(mapping))]
