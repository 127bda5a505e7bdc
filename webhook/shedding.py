"""When there is too much at once: how late the loop runs, and how much is being buffered.

Values and counting only; who measures and who turns away is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_RECOVERED: Final = 0.5
"""Part of the limit below which the loop counts as well again, so that it does not flutter."""
_STRIKES: Final = 3
"""Late ticks in a row that make an overload; one alone is a hiccup of the machine, and what it
held up is done sooner than it would be asked again."""
_PATIENCE_S: Final = 1.0
"""A body that takes longer than this gives way to one that has just begun."""


@dataclass(slots=True)
class LoopLag:
    """How late the event loop runs, by a clock that ticks in it."""

    most_s: float
    lag_s: float = 0.0
    overloaded: bool = False
    _strikes: int = 0

    def observe(self, lag_s: float) -> None:
        """Take the lateness of one tick, in seconds."""
        self.lag_s = max(lag_s, 0.0)
        limit = self.most_s * _RECOVERED if self.overloaded else self.most_s
        self._strikes = self._strikes + 1 if self.lag_s > limit else 0
        self.overloaded = self._strikes >= (1 if self.overloaded else _STRIKES)


@dataclass(slots=True, eq=False)
class Arrival:
    """A body on its way."""

    began_s: float
    give_way: Callable[[], None]
    """Ends its reading."""
    size: int = 0
    evicted: bool = False


@dataclass(slots=True)
class Buffers:
    """The bytes of all bodies on their way, bounded together.

    A caller that sends slowly cannot keep others out: where the bound is reached, the body that
    is longest on its way gives way, as long as it had a fair chance.
    """

    most_bytes: int
    total: int = 0
    _arrivals: dict[Arrival, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._arrivals)

    def begin(self, arrival: Arrival) -> None:
        """Count a body from now on."""
        self._arrivals[arrival] = None

    def end(self, arrival: Arrival) -> None:
        """Forget a body that has arrived or was given up."""
        if arrival in self._arrivals:
            del self._arrivals[arrival]
            self.total -= arrival.size

    def take(self, arrival: Arrival, size: int, now_s: float) -> bool:
        """Count more bytes of a body; False where there is no room for them."""
        while self.total + size > self.most_bytes:
            oldest = next(iter(self._arrivals), arrival)
            if oldest is arrival or now_s - oldest.began_s < _PATIENCE_S:
                return False
            oldest.evicted = True
            self.end(oldest)
            oldest.give_way()
        if arrival.evicted:
            return False
        arrival.size += size
        self.total += size
        return True
