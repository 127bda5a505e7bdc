"""Nodes whose agent has not taken in its newest spec for too long.

Each node has a deadline of its own; what is done for one never waits for another
(nos waited for the slowest node and so never planned again while one was down).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Silence:
    """How long each node has owed an answer.

    Args:
        patience_s: After how many seconds a node is silent.
    """

    patience_s: float = 60.0
    _owing: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The generation that a node has yet to take in, and since when, by node."""

    def note(self, owed: Mapping[str, int], now: float) -> dict[str, float]:
        """Which nodes are silent, and for how many seconds.

        Args:
            owed: The generation that each node has yet to take in.
            now: The time on a clock that never goes back.
        """
        kept = {node: since for node, since in self._owing.items() if node in owed}
        # A newer spec does not give a silent node new time: it has been silent all along.
        self._owing = {
            node: (generation, kept[node][1] if node in kept else now)
            for node, generation in owed.items()
        }
        return {
            node: now - since
            for node, (_, since) in sorted(self._owing.items())
            if now - since >= self.patience_s
        }

    def next_s(self, now: float) -> float:
        """Seconds until the next node becomes silent; infinite if none may."""
        left = [since + self.patience_s - now for _, since in self._owing.values()]
        return min((each for each in left if each > 0), default=float("inf"))
