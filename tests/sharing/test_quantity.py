"""Quantities: the API machinery's grammar, exact."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.errors import QuantityError
from sharing.quantity import bytes_of, format_mib, mib_of, parse_quantity

SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("1", 1), ("250m", Fraction(1, 4)), ("1500m", Fraction(3, 2)), ("8Gi", 8 * 2**30),
     ("1k", 1000), ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("1Ei", 2**60),
     (".5", Fraction(1, 2)),
     ("5.", 5), ("+1", 1), ("-1", -1), ("1e-3", Fraction(1, 1000)), ("100n", Fraction(1, 10**7))],
)  # fmt: skip
def test_the_forms_of_the_api_reference_are_read(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1GB", "1gi", "1KI", "1K", "Gi", ".", "1..2", "1e", "1e1.5", "0x10", "1_000",
     "1,5", "NaN", "inf", "\u0661", "1\n", "1e30", "1e99999999999", "9" * 65, "9223372036854775808",
     None, True, 1.5, [], {}, b"1"],
)  # fmt: skip
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(QuantityError, match=r"quantity: .*for example: 250m"):
        parse_quantity(text)


@given(st.integers(0, 10**6), st.sampled_from(sorted(SUFFIXES)))
def test_a_whole_number_with_a_suffix_is_exact(number: int, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == number * SUFFIXES[suffix]


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_an_int_stands_for_itself(number: int) -> None:
    assert parse_quantity(number) == parse_quantity(str(number)) == number


@given(st.text(max_size=80) | st.integers() | st.floats() | st.none())
def test_no_value_ever_ends_in_another_error(value: object) -> None:
    try:
        found: object = parse_quantity(value)
    except QuantityError as error:
        found = str(error)
    assert isinstance(found, Fraction) or (isinstance(found, str) and len(found) < 400)


@pytest.mark.parametrize(("text", "mib"), [("16Gi", 16384), ("1", 1), ("1Mi", 1), ("1.5Mi", 2)])
def test_memory_is_rounded_up_to_whole_mib(text: str, mib: int) -> None:
    """A pod that asked for 16Gi was once given 0 (HAMi#2718)."""
    assert mib_of(text) == mib


@pytest.mark.parametrize("text", ["0", "-1Gi", "-0"])
def test_no_memory_is_no_amount(text: str) -> None:
    with pytest.raises(QuantityError, match="is no amount of memory"):
        bytes_of(text)


def test_memory_is_printed_as_people_write_it() -> None:
    assert [format_mib(10240), format_mib(9984), format_mib(0)] == ["10Gi", "9984Mi", "0Mi"]
