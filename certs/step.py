"""The steps that a rotation is made of, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from certs.bundle import Bundle
    from certs.secret import Stored
    from certs.sight import Configuration


class Reason(StrEnum):
    """Why a fresh pair is made."""

    MISSING = "missing"
    UNUSABLE = "unusable"
    """The current leaf is expired, not valid yet, untrusted, or lacks the name asked for."""
    NAMES = "names"
    KEY_TYPE = "key-type"
    ASKED = "asked"
    DUE = "due"


class Act(StrEnum):
    """What a step does: the closed set of logs, events and metrics."""

    MAKE = "make"
    TRUST = "trust"
    REPAIR = "repair"
    PROMOTE = "promote"
    FORGET = "forget"
    HEAL = "heal"
    WAIT = "wait"
    REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """Put a fresh pair beside what `onto` holds, and write the Secret."""

    ACTS: ClassVar[frozenset[Act]] = frozenset({Act.MAKE})

    onto: Stored
    reason: Reason
    why: str
    act: Act = Act.MAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write the Secret so."""

    ACTS: ClassVar[frozenset[Act]] = frozenset({Act.HEAL, Act.PROMOTE, Act.FORGET})

    act: Act
    stored: Stored
    why: str

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Give every entry of these configurations this bundle."""

    ACTS: ClassVar[frozenset[Act]] = frozenset({Act.TRUST, Act.REPAIR, Act.FORGET})

    act: Act
    bundle: Bundle
    configurations: tuple[Configuration, ...]
    why: str

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Come back after some time of this process, whatever the date says."""

    duration: timedelta
    why: str
    act: Act = Act.WAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing to do until a date, unless something changes."""

    until: datetime
    why: str
    act: Act = Act.REST


Step = Make | Write | Patch | Wait | Rest

WRITING: Final = (Make, Write, Patch)
"""The steps that change something; with their ``ACTS``, all that a crash may come between."""


def _check(step: Write | Patch) -> None:
    """Let no step exist that is not told in ``ACTS``: tests kill a replica at each of them.

    Raises:
        ValueError: It is not.
    """
    if step.act not in step.ACTS:
        raise ValueError(f"{type(step).__name__} does not {step.act}")
