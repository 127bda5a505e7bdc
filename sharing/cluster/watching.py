"""Reads the stream of a watch: one JSON object a line, of any length."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from sharing.cluster.errors import UnreachableError, error_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class EventType(StrEnum):
    """What a watch event tells."""

    OPENED = "OPENED"
    """The server accepted the watch; our own, not on the wire."""
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing changed up to the resource version of its object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch.

    Attributes:
        type: What happened.
        item: The object after it (before it, where it was deleted); empty for OPENED.
    """

    type: EventType
    item: dict[str, Any] = field(default_factory=dict)


async def read_events(
    response: aiohttp.ClientResponse, subject: str
) -> AsyncGenerator[WatchEvent, None]:
    """The events of an accepted watch, until the server ends it.

    Raises:
        ApiError: If the server reports an error inside the stream (GoneError for a
            resource version that is too old), the connection breaks, or a line is no event.
    """
    yield WatchEvent(type=EventType.OPENED)
    # Not readline: it refuses lines above 64 KiB, and objects may have 1.5 MiB.
    rest: list[bytes] = []
    try:
        async for chunk in response.content.iter_any():
            *ended, last = chunk.split(b"\n")
            for piece in ended:
                line = b"".join([*rest, piece])
                rest.clear()
                if line.strip():
                    yield _event(line, subject)
            rest.append(last)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise UnreachableError(subject, f"the watch broke off: {error}") from error
    # Bytes after the last line end belong to an event that was cut off; whoever watches
    # on from the last resource version gets it again.


def _event(line: bytes, subject: str) -> WatchEvent:
    try:
        decoded = orjson.loads(line)
        kind, item = decoded["type"], decoded["object"]
        if kind == "ERROR":
            code = item.get("code")
            seconds = (item.get("details") or {}).get("retryAfterSeconds")
            raise error_of(
                subject,
                code if isinstance(code, int) else 500,
                item,
                retry_after_s=float(seconds) if isinstance(seconds, int) else None,
            )
        if not isinstance(item, dict):
            raise TypeError(kind)
        return WatchEvent(type=EventType(kind), item=item)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnreachableError(subject, f"a line of the watch is no event: {error}") from error
