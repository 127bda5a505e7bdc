"""When the kubelet is admitting a pod, as far as its calls show: no time to ask it who holds what.

A kubelet marks devices as taken, calls Allocate, and only then writes down the pod that has them.
``List`` of PodResources makes it work out anew, from what is written down, which devices are
taken whenever a pod has ended meanwhile. Both at once, and the assignment under way is forgotten:
the next pod gets the same device (kubernetes/kubernetes#137534; seen on 1.37.2). So the two are
kept apart here: a list waits for admissions, and an admission for a list that has begun.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

_SETTLED_S: Final = 0.03
"""From our answer to the kubelet's note of it, and from advice to Allocate."""
_LONGEST_S: Final = 2.0
"""A kubelet that admits pods without a pause is asked all the same."""
_LIST_S: Final = 0.25
"""A list takes milliseconds; an admission waits no longer for one that hangs."""


class Admissions:
    """Keeps lists and admissions apart; one for all classes of a node.

    Args:
        settled_s: How long an answer takes to be written down.
        longest_s: How long a list waits at most.
        list_s: How long an admission waits at most.
    """

    def __init__(
        self,
        *,
        settled_s: float = _SETTLED_S,
        longest_s: float = _LONGEST_S,
        list_s: float = _LIST_S,
    ) -> None:
        self._settled_s, self._longest_s, self._list_s = settled_s, longest_s, list_s
        self._answering = 0
        self._answered_at = -float("inf")
        self._lists = 0
        self._no_list = asyncio.Event()
        self._no_list.set()

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Around the answer to GetPreferredAllocation or Allocate."""
        self._answering += 1
        try:
            if not self._no_list.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._no_list.wait(), self._list_s)
            yield
        finally:
            self._answering -= 1
            self._answered_at = time.monotonic()

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Around a List, which begins when no admission is under way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest_s):
                # For time to pass, which is no event.
                while (wait_s := self._unsettled_s()) > 0:  # noqa: ASYNC110
                    await asyncio.sleep(wait_s)
        self._lists += 1
        self._no_list.clear()
        try:
            yield
        finally:
            self._lists -= 1
            if not self._lists:
                self._no_list.set()

    def _unsettled_s(self) -> float:
        if self._answering:
            return self._settled_s
        return self._answered_at + self._settled_s - time.monotonic()
