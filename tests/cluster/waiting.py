"""Waiting for other programs: looks again and again until a deadline, and says what it saw last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

_T = TypeVar("_T")
_PERIOD_S: Final = 0.05


class NeverHappenedError(AssertionError):
    """Something that a test waits for did not come in time."""

    def __init__(self, what: str, timeout_s: float, last: object) -> None:
        super().__init__(f"{what}: not within {timeout_s:g} s; seen last: {last}")


def until(
    what: str,
    look: Callable[[], _T],
    *,
    timeout_s: float,
    still: Callable[[], None] = lambda: None,
) -> _T:
    """What ``look`` returns as soon as that is true.

    Args:
        what: For the error.
        look: An OSError of it counts as not yet.
        timeout_s: Seconds until NeverHappenedError.
        still: Called before each look; raises when waiting has become pointless.
    """
    deadline = time.monotonic() + timeout_s
    last: object = None
    while True:
        still()
        try:
            if found := look():
                return found
            last = found
        except OSError as error:
            last = error
        if time.monotonic() > deadline:
            raise NeverHappenedError(what, timeout_s, last)
        time.sleep(_PERIOD_S)


async def eventually(
    what: str, look: Callable[[], Awaitable[_T]], *, timeout_s: float = 40.0
) -> _T:
    """What ``look`` answers as soon as that is true; for tests that run on a loop."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise NeverHappenedError(what, timeout_s, found)
        await asyncio.sleep(_PERIOD_S)
