"""What the programs of a campaign cost in processor time, by the kernel's count."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.certificates.campaign import Phase

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12
"""Fields of ``/proc/PID/stat`` after the command's name, see proc(5): utime and stime."""


def used(pids: Mapping[str, int]) -> Counter[str]:
    """Ticks of a processor that each program has used until now; 0 for one that is gone."""
    return Counter({name: _of(pid) for name, pid in pids.items()})


def _of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return int(fields[_USER]) + int(fields[_SYSTEM])


def per_review_ms(phases: Iterable[Phase]) -> dict[str, float]:
    """Milliseconds of a processor for each review, over phases without restarts (pure)."""
    whole = [phase for phase in phases if "away_s" not in phase.extra]
    reviews = max(sum(phase.reviews for phase in whole), 1)
    total: Counter[str] = Counter()
    for phase in whole:
        total.update(phase.ticks)
    return {
        name: round(1000 * ticks / _TICKS_S / reviews, 2) for name, ticks in sorted(total.items())
    }
