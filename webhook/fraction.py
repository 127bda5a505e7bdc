"""Fractions as tenants write them: ``0.25``, ``1/4``, ``25%``."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sharing.errors import InputError, shown

_NUMBER: Final = r"[0-9]{1,6}(?:\.[0-9]{1,12})?|\.[0-9]{1,12}"
_FORM: Final = re.compile(
    rf"(?P<number>{_NUMBER})(?P<percent>%)?|(?P<over>[0-9]{{1,6}})/(?P<under>[0-9]{{1,6}})",
    re.ASCII,
)
_EXPECTED: Final = "more than 0 and at most 1, as '0.25', '1/4' or '25%'"


@lru_cache(maxsize=1024)
def parse_fraction(text: str) -> Fraction:
    """The exact part of a GPU that a text stands for.

    Raises:
        InputError: The text follows none of the three forms, or is not above 0 and at most 1.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise _error(text, "is no fraction")
    if match["over"]:
        if int(match["under"]) == 0:
            raise _error(text, "divides by zero")
        fraction = Fraction(int(match["over"]), int(match["under"]))
    else:
        fraction = Fraction(match["number"]) / (100 if match["percent"] else 1)
    if not 0 < fraction <= 1:
        raise _error(text, "is out of range")
    return fraction


def _error(text: str, wrong: str) -> InputError:
    return InputError("fraction", f"{shown(text)} {wrong}", expected=_EXPECTED, example='"0.25"')
