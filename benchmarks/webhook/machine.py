"""The machine that measures: which core serves, which one asks, and how quiet it is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STEAL: Final = 7
"""Index of stolen time in a line of /proc/stat. Source: proc_stat(5)."""
_IDLE: Final = (3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """One core for the server that is measured, another for its client where there is one."""

    server: int
    client: int

    @classmethod
    def choose(cls) -> Cores:
        """The first and the last core that we may use."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(server=usable[0], client=usable[-1])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Processes that are started here run on one core, from their first instruction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Times:
    """What all cores have done since the machine started, in clock ticks."""

    stolen: int
    idle: int
    total: int

    @classmethod
    def now(cls) -> Times:
        """By /proc/stat."""
        line = Path("/proc/stat").read_text("ascii").splitlines()[0]
        ticks = [int(text) for text in line.split()[1:9]]
        return cls(ticks[_STEAL], sum(ticks[index] for index in _IDLE), sum(ticks))

    def stolen_since(self, before: Times) -> float:
        """The part of the time, 0 to 1, that went to other virtual machines."""
        return (self.stolen - before.stolen) / max(1, self.total - before.total)

    def idle_since(self, before: Times) -> float:
        """The part of the time, 0 to 1, that nobody wanted."""
        return (self.idle - before.idle) / max(1, self.total - before.total)


def quietness(duration_s: float = 0.5) -> float:
    """The part of all cores, 0 to 1, that is idle while we do nothing."""
    before = Times.now()
    time.sleep(duration_s)
    return Times.now().idle_since(before)


def resident_mb(pid: int) -> float:
    """A process's resident memory in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
