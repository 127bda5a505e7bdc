"""How large a share is: ``1ofN`` of what is cut, or a MIG profile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering
from typing import Final

from sharing.errors import SizeError, shown
from sharing.migprofile import MigProfile

MOST_PARTS: Final = 48
"""An MPS server takes 48 clients since Volta.

Source: NVIDIA MPS documentation, "Limitations", client limit.
"""
MILLI_PER_GPU: Final = 1000

_ONE_OF: Final = re.compile(r"1of([1-9][0-9]?)", re.ASCII)


@total_ordering
@dataclass(frozen=True, slots=True)
class OneOf:
    """One of ``parts`` equal parts. Ordered by largeness: 1of4 < 1of2."""

    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.parts <= MOST_PARTS:
            raise SizeError(
                "size",
                f"'1of{self.parts}' is out of range",
                expected=f"1of1 to 1of{MOST_PARTS}",
                example="1of4",
            )

    @property
    def fraction(self) -> Fraction:
        """The part as an exact fraction."""
        return Fraction(1, self.parts)

    def __str__(self) -> str:
        return f"1of{self.parts}"

    def __lt__(self, other: OneOf) -> bool:
        return self.parts > other.parts


Size = OneOf | MigProfile


def parse_size(text: object) -> Size:
    """The size that a text names: ``1of4`` or ``1g.10gb``.

    Raises:
        SizeError: The text names none.
    """
    if isinstance(text, str):
        match = _ONE_OF.fullmatch(text)
        if match:
            return OneOf(int(match[1]))
        if "g." in text:
            return MigProfile.parse(text)
    raise SizeError(
        "size",
        f"{shown(text)} is no size",
        expected="'1ofN' of a GPU or a MIG profile",
        example="1of4 or 1g.10gb",
    )


def size_key(size: Size) -> tuple[int, Fraction, MigProfile]:
    """A total order over both kinds of size, smallest first; parts before MIG profiles."""
    if isinstance(size, OneOf):
        return (0, size.fraction, _SMALLEST)
    return (1, Fraction(0), size)


_SMALLEST: Final = MigProfile(gpu_slices=1, memory_gb=1)


def parts_for(fraction: Fraction) -> OneOf:
    """The smallest ``1ofN`` that is at least a fraction.

    Raises:
        SizeError: The fraction is not above 0 and at most 1.
    """
    if not 0 < fraction <= 1:
        raise SizeError(
            "fraction",
            f"{fraction} of a GPU cannot be shared out",
            expected="more than 0 and at most 1",
            example="0.25",
        )
    return OneOf(min(MOST_PARTS, int(1 / fraction)))
