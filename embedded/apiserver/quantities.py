"""Quantities in the canonical spelling that the API server stores and sends.

apimachinery ``pkg/api/resource``: "1500m" stays, "1.5" becomes "1500m", "8000" becomes "8k",
"1024Mi" becomes "1Gi". Programs that compare texts are surprised by it, so this server
surprises them too.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sharing.errors import QuantityError, shown

_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_GRAMMAR: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3}|)"
)
_MAX_CHARACTERS: Final = 64
_NANO: Final = 10**9
_THOUSAND: Final = 1000
_KIBI: Final = 1024

GRAMMAR_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def _split(text: str) -> tuple[Fraction, str]:
    """The exact value and the suffix.

    Raises:
        QuantityError: The text is no quantity.
    """
    match = _GRAMMAR.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None:
        raise QuantityError(shown(text), GRAMMAR_TEXT)
    number, suffix = Fraction(match["number"]), match["suffix"]
    if suffix in _BINARY[1:]:
        return number * _KIBI ** _BINARY.index(suffix), suffix
    if suffix in _DECIMAL:
        return number * Fraction(_THOUSAND) ** (_DECIMAL.index(suffix) - 3), suffix
    return number * Fraction(10) ** int(suffix[1:]), "e"


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """The exact value of a quantity.

    Raises:
        QuantityError: The text is no quantity.
    """
    return _split(text)[0]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The quantity as the API server spells it.

    Raises:
        QuantityError: The text is no quantity.
    """
    value, suffix = _split(text)
    if suffix.endswith("i") and abs(value) >= _KIBI:
        return _spell_binary(value)
    return _spell_decimal(value, exponent=suffix == "e")


def spelled(value: Fraction) -> str:
    """A computed amount in canonical decimal spelling."""
    return _spell_decimal(value, exponent=False)


def _ceil(value: Fraction) -> int:
    """Rounded away from zero, as a quantity loses precision upstream."""
    whole = -((-abs(value)) // 1)
    return whole if value >= 0 else -whole


def _spell_binary(value: Fraction) -> str:
    whole, power = _ceil(value), 0
    while whole % _KIBI == 0 and power < len(_BINARY) - 1:
        whole, power = whole // _KIBI, power + 1
    return f"{whole}{_BINARY[power]}"


def _spell_decimal(value: Fraction, *, exponent: bool) -> str:
    nanos = _ceil(value * _NANO)
    if nanos == 0:
        return "0"
    power = 0
    while nanos % _THOUSAND == 0 and power < len(_DECIMAL) - 1:
        nanos, power = nanos // _THOUSAND, power + 1
    if not exponent:
        return f"{nanos}{_DECIMAL[power]}"
    return f"{nanos}e{3 * (power - 3)}" if power != 3 else str(nanos)  # noqa: PLR2004 - 10^0
