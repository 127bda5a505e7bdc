"""Whether the driver and an MPS daemon name the same clients (pure).

Who uses a GPU through MPS is told twice: the driver lists such processes as a kind of their own,
and the daemon lists its clients. Where the two lists agree, the daemon's limits hold for everybody
who is counted. A client that only the driver knows is served by another daemon, or by a server
that lost its daemon, and no limit of ours holds for it. One that only the daemon knows has no
context on the GPU yet, or the daemon tells what is not so.

The lists are read one after the other, so one that comes or goes in between is in one of them
only: a difference counts once it has lasted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Known(StrEnum):
    """Whose list alone names a client."""

    DRIVER = "driver"
    DAEMON = "daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLists:
    """The clients of one daemon, by process id."""

    device: str
    """UUID of its GPU or MIG device."""
    driver: frozenset[int]
    daemon: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Disputed:
    """One process that one list names and the other does not."""

    device: str
    pid: int
    known: Known
    since: float
    """When it was first seen, in seconds of a clock that does not jump."""
    lasting: bool = False
    """Whether it counts."""


def disputed(
    before: Iterable[Disputed],
    lists: Iterable[ClientLists],
    *,
    now: float,
    lasting_s: float,
) -> tuple[Disputed, ...]:
    """Who is disputed after both were asked.

    A device whose daemon did not answer is left out of the lists, and nothing is said of it.

    Args:
        before: Who was.
        lists: What both said just now.
        now: In the clock of ``Disputed.since``.
        lasting_s: For how long a difference must have been seen.
    """
    since = {(one.device, one.pid, one.known): one.since for one in before}
    found = []
    for each in lists:
        for known, pids in _apart(each).items():
            for pid in pids:
                first = min(since.get((each.device, pid, known), now), now)
                found.append(
                    Disputed(
                        device=each.device,
                        pid=pid,
                        known=known,
                        since=first,
                        lasting=now - first >= lasting_s,
                    )
                )
    return tuple(sorted(found))


def _apart(lists: ClientLists) -> Mapping[Known, Collection[int]]:
    return {
        Known.DRIVER: lists.driver - lists.daemon,
        Known.DAEMON: lists.daemon - lists.driver,
    }
