"""How long to wait before the next try: doubling, with jitter, up to a cap."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A schedule of waits.

    Attributes:
        first_s: The first wait, seconds.
        cap_s: No wait is longer, seconds.
        spread: Each wait is drawn from [1 - spread, 1] times its nominal length, so that
            many clients of one server do not come back at the same moment.
    """

    first_s: float = 0.2
    cap_s: float = 30.0
    spread: float = 0.5

    def waits(self, chance: random.Random | None = None) -> Iterator[float]:
        """The waits in seconds, without end."""
        draw = chance or random.Random()
        nominal = self.first_s
        while True:
            yield nominal * (1 - self.spread * draw.random())
            nominal = min(nominal * 2, self.cap_s)
