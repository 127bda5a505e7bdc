"""Kubernetes quantities: a strict reading, exact numbers.

Grammar (Kubernetes API reference, "Quantity"): an optional sign, decimal digits with at most one
point, and one suffix out of ``n u m k M G T P E``, ``Ki Mi Gi Ti Pi Ei`` or an exponent such as
``e3``. Numbers are exact fractions; nothing here is a float.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from sharing.errors import QuantityError, shown

MIB: Final = 2**20

_FORM: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_SCALE: Final[dict[str | None, Fraction]] = {
    None: Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate("kMGTPE")},
    **{letter + "i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")},
}
_LONGEST: Final = 64
_LARGEST: Final = 2**63 - 1
"""The API machinery caps quantities here. Source: apimachinery ``resource.Quantity``."""
_LARGEST_EXPONENT: Final = 18


def parse_quantity(value: object) -> Fraction:
    """The exact number that a quantity stands for.

    Accepts what JSON and YAML deliver: a text, or an int (never a bool, never a float).

    Raises:
        QuantityError: The value does not follow the grammar or exceeds 2⁶³-1.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        number = Fraction(value)
    else:
        number = _parse_text(value)
    if abs(number) > _LARGEST:
        raise _error(value, "is out of range")
    return number


def _parse_text(value: object) -> Fraction:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise _error(value, "is no quantity")
    match = _FORM.fullmatch(value)
    if match is None:
        raise _error(value, "does not follow the grammar of quantities")
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > _LARGEST_EXPONENT:
        raise _error(value, "is out of range")
    scale = Fraction(10) ** exponent if exponent else _SCALE[match["suffix"]]
    return Fraction(match["number"].rstrip(".")) * scale


def bytes_of(value: object) -> int:
    """A positive amount of memory in bytes, fractions of a byte rounded up.

    Raises:
        QuantityError: The value is no quantity, or is not above 0.
    """
    number = parse_quantity(value)
    if number <= 0:
        raise _error(value, "is no amount of memory", example="10Gi")
    return -int(-number // 1)


def mib_of(value: object) -> int:
    """A positive amount of memory in MiB, rounded up.

    Raises:
        QuantityError: As ``bytes_of``.
    """
    return -(-bytes_of(value) // MIB)


def format_mib(mib: int) -> str:
    """An amount of memory as people write it: ``10Gi``, ``9984Mi``."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 and mib else f"{mib}Mi"


def _error(value: object, wrong: str, *, example: str = "250m, 2 or 10Gi") -> QuantityError:
    return QuantityError(
        "quantity",
        f"{shown(value)} {wrong}",
        expected="a number with an optional suffix (m, k, M, G, Ki, Mi, Gi, …)",
        example=example,
    )
