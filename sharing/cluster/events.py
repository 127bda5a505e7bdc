"""Kubernetes Events: what happened to an object, where ``kubectl describe`` shows it.

Recording never waits and never fails whoever records: events go through a bounded queue
to one writer. The same event again only raises a counter on the object written before.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from sharing.cluster.client import Client

_log: Final = structlog.get_logger()
_QUEUE_LIMIT: Final = 1000
_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024
"""The API refuses longer ones."""


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

    @property
    def name(self) -> str:
        identity = repr((self.about, self.reason, self.message, self.type))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return f"{dict(self.about).get('name', 'unknown')[:200]}.{digest}"


class EventRecorder:
    """Writes events for one program; an async context manager.

    Args:
        client: The connection.
        component: Who reports, such as ``gpu-sharing-agent``.
        instance: Which of them, such as the node's name.
    """

    def __init__(self, client: Client, component: str, *, instance: str = "") -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_QUEUE_LIMIT)
        self._counts: dict[_Event, int] = {}
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
        event = _Event(
            about=tuple(sorted(named.items())),
            reason=reason,
            message=message[:_LONGEST_MESSAGE],
            type="Warning" if warning else "Normal",
        )
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            _log.warning("event was dropped", reason=reason, about=named)

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
        await self._queue.join()

    async def _run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except ApiError as error:
                _log.warning("event was not written", reason=event.reason, error=str(error))
            finally:
                self._queue.task_done()

    async def _write(self, event: _Event) -> None:
        about = dict(event.about)
        namespace = about.get("namespace") or "default"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        count = self._counts.pop(event, 0) + 1
        self._counts[event] = count
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        if count > 1:
            with suppress(NotFoundError):  # it aged out on the server
                patch = {"count": count, "lastTimestamp": now}
                await self._client.patch(EVENTS, event.name, patch, namespace=namespace)
                return
        await self._client.create(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": event.name, "namespace": namespace},
                "involvedObject": about,
                "reason": event.reason,
                "message": event.message,
                "type": event.type,
                "count": count,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": self._component, "host": self._instance},
                "reportingComponent": self._component,
                "reportingInstance": self._instance,
            },
        )
