"""Rounds: servers measured in turns, so that what disturbs one disturbs all of them.

A round goes through the servers and back, A B C D D C B A. Ratios are taken within a round; the
median over rounds is the figure, the lowest and the highest are its spread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.webhook.machine import Times

_MOST_STOLEN: Final = 0.10
_FEWEST_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A median and its spread."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """The figure of at least one value."""
        listed = list(values)
        return cls(median=statistics.median(listed), low=min(listed), high=max(listed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What was measured: one number for each server and round."""

    values: tuple[dict[str, float], ...]
    discarded: int = 0
    """Rounds that lost more than a tenth of the time to other virtual machines."""

    def figure(self, name: str) -> Figure:
        """One server's own number."""
        return Figure.of(round_[name] for round_ in self.values)

    def ratio(self, name: str, other: str) -> Figure:
        """One server's number divided by another's, round by round."""
        return Figure.of(round_[name] / round_[other] for round_ in self.values)


def turns(names: Sequence[str]) -> list[str]:
    """One round's order: there and back."""
    return [*names, *reversed(names)]


def measure_rounds(names: Sequence[str], measure: Callable[[str], float], *, rounds: int) -> Rounds:
    """Measure servers in turns.

    Args:
        names: The servers.
        measure: Measures one of them, once.
        rounds: How many rounds; each measures every server twice and keeps the mean.
    """
    values: list[dict[str, float]] = []
    disturbed: list[dict[str, float]] = []
    for _ in range(rounds):
        before = Times.now()
        found: dict[str, list[float]] = {name: [] for name in names}
        for name in turns(names):
            found[name].append(measure(name))
        stolen = Times.now().stolen_since(before)
        means = {name: statistics.fmean(numbers) for name, numbers in found.items()}
        (disturbed if stolen > _MOST_STOLEN else values).append(means)
    if len(values) < min(rounds, _FEWEST_ROUNDS):
        # A machine that is always robbed: all rounds are alike, so all of them count.
        return Rounds(values=(*values, *disturbed))
    return Rounds(values=tuple(values), discarded=len(disturbed))
