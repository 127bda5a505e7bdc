"""How a benchmark tells its figures: a table for people, one flat object for programs.

Every benchmark is ``python -m benchmarks.NAME [--quick] [--json FILE]``. A figure is a number with
a key; the spread of a figure stands beside it under the same key with ``_median``, ``_min``,
``_max``, ``_n``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

Value = float | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a key stands for, and the most that is wanted of it, if anything is."""

    text: str
    most: float | None = None

    def verdict(self, value: object) -> str:
        """Whether the value is as wanted; empty where nothing is wanted."""
        if self.most is None or not isinstance(value, int | float):
            return ""
        return f"≤ {self.most:g}: {'yes' if value <= self.most else 'NO'}"


def spread(key: str, values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Median, least, most and number of measurements, as flat figures.

    Raises:
        statistics.StatisticsError: Nothing was measured.
    """
    return {
        f"{key}_median": round(statistics.median(values), digits),
        f"{key}_min": round(min(values), digits),
        f"{key}_max": round(max(values), digits),
        f"{key}_n": len(values),
    }


def tell(figures: Mapping[str, Value], meanings: Mapping[str, Meaning], file: Path | None) -> None:
    """Print figures in their order as a table, and write them to a file if one is named.

    Args:
        figures: By key; nothing nested.
        meanings: Of the keys that need words or have a target; others stand for themselves.
        file: Where the JSON object goes.
    """
    Console().print(table(figures, meanings))
    if file is not None:
        file.write_text(json.dumps(dict(figures), indent=2) + "\n", "utf-8")


def table(figures: Mapping[str, Value], meanings: Mapping[str, Meaning]) -> Table:
    """The figures as rows."""
    rows = Table(box=None, pad_edge=False)
    rows.add_column("figure", no_wrap=True)
    rows.add_column("value", justify="right", no_wrap=True)
    for title in ("wanted", "what it is"):
        rows.add_column(title)
    for key, value in figures.items():
        meaning = meanings.get(key, Meaning(text=""))
        rows.add_row(key, f"{value}", meaning.verdict(value), meaning.text)
    return rows
