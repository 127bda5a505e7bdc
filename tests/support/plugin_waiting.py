"""Waiting for what has no event of its own: looks until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(met: Callable[[], bool], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not met():  # noqa: ASYNC110 - the state of another process sends no event
            await asyncio.sleep(0.01)
