"""Time that a test turns by hand."""

from __future__ import annotations

import asyncio


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._arrived = asyncio.Condition()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        entry = (self._now + seconds, woken)
        self._sleepers.append(entry)
        async with self._arrived:
            self._arrived.notify_all()
        try:
            await woken.wait()
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    async def until_sleeper(self, seconds: float) -> None:
        """Return once somebody sleeps until so many seconds from now."""
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(
                lambda: any(due == self._now + seconds for due, _ in self._sleepers)
            )

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for entry in [entry for entry in self._sleepers if entry[0] <= self._now]:
            self._sleepers.remove(entry)
            entry[1].set()
