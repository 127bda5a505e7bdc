"""What an unquoted word of YAML means: to us what it means to kubectl.

So ``yes`` is true, ``1e3`` is a number and ``2024-01-01`` is a text.
Source: sigs.k8s.io/yaml, goyaml.v2, ``resolve.go``.
"""

from __future__ import annotations

import re
from typing import Final

_BOOLEANS: Final = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE"), True),
    **dict.fromkeys(("on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE"), False),
    **dict.fromkeys(("off", "Off", "OFF"), False),
}
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_NO_JSON: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9][0-9_]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NUMERIC_START: Final = frozenset("+-.0123456789")
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1


def plain_scalar(text: str) -> str | int | float | bool | None:
    """What an unquoted YAML scalar means to kubectl."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in _NUMERIC_START:
        return text
    return _number(text)


def _number(text: str) -> str | int | float:
    if _INTEGER.fullmatch(text):
        integer = _integer(text.replace("_", ""))
        if integer is not None:
            return integer
    if _FLOAT.fullmatch(text):
        number = float(text)
        if abs(number) != float("inf"):
            return number
    return text


def _integer(text: str) -> int | None:
    """A 64-bit integer by Go's prefixes, where a leading 0 means octal; else None."""
    digits = text.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    try:
        value = int(digits, 8) if octal else int(digits, 0)
    except ValueError:
        return None
    value = -value if text[0] == "-" else value
    return value if fits_64_bits(value) else None


def is_no_json(text: str) -> bool:
    """Whether the word is infinity or not-a-number, which JSON cannot say."""
    return bool(_NO_JSON.fullmatch(text))


def fits_64_bits(value: int) -> bool:
    """Whether an integer is one that the API server's decoder takes."""
    return _SMALLEST <= value <= _LARGEST
