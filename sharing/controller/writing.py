"""Writing many objects so that one which is refused does not stop, or slow down, the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from sharing.cluster.backoff import Backoff
from sharing.cluster.errors import ConflictError, NotFoundError
from sharing.errors import GpuSharingError

Work: TypeAlias = Callable[[], Awaitable[None]]
_log: Final = structlog.get_logger()
_AT_ONCE: Final = 8
"""Requests under way together."""
_BACKOFF: Final = Backoff(first_s=0.5, cap_s=60.0)


@dataclass(slots=True)
class _Retry:
    waits: Iterator[float]
    at: float = 0.0
    reason: str = ""


class Writes:
    """Does pieces of work by name; one that failed rests for a growing while."""

    def __init__(self) -> None:
        self._retries: dict[str, _Retry] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def next_retry_s(self) -> float:
        """Seconds until some work may be tried again; infinite if none rests."""
        now = time.monotonic()
        return min((max(0.0, one.at - now) for one in self._retries.values()), default=float("inf"))

    @property
    def resting(self) -> frozenset[str]:
        """The names of work that failed and waits, or is about to be tried again."""
        return frozenset(self._retries)

    async def do(self, work: Mapping[str, Work]) -> None:
        """Do all of it that does not rest; returns when all is done or failed."""
        for name in self._retries.keys() - work.keys():
            del self._retries[name]
        now = time.monotonic()
        due = []
        for name, piece in work.items():
            retry = self._retries.get(name)
            if retry is None or retry.at <= now:
                due.append(self._attempt(name, piece))
        await asyncio.gather(*due)

    async def _attempt(self, name: str, piece: Work) -> None:
        async with self._gate:
            try:
                await piece()
            except (ConflictError, NotFoundError):
                # Our copy was behind; its change is on the way and brings the next turn.
                self._rest(name, "")
            except GpuSharingError as error:
                self._rest(name, str(error))
            else:
                self._retries.pop(name, None)

    def _rest(self, name: str, reason: str) -> None:
        retry = self._retries.setdefault(name, _Retry(_BACKOFF.waits()))
        retry.at = time.monotonic() + next(retry.waits)
        if reason and reason != retry.reason:
            _log.warning("write was refused", what=name, error=reason)
        retry.reason = reason
