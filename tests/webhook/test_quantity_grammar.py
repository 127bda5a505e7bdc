"""Our reading of quantities against the grammar that the API machinery documents, rule by rule.

Source: kubernetes/apimachinery, ``pkg/api/resource/quantity.go``, the comment on ``Quantity``. The
reader below follows its productions one by one and shares nothing with ours.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from embedded.apiserver.quantities import amount, canonical
from sharing.errors import QuantityError
from sharing.quantity import parse_quantity

DIGITS = "0123456789"
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
CAP = 2**63 - 1


def digits(text: str) -> int:
    """How many digits a text begins with."""
    return len(text) - len(text.lstrip(DIGITS))


def number(text: str) -> int | None:
    """<digits> | <digits>.<digits> | <digits>. | .<digits>; how long the longest one is."""
    whole = digits(text)
    if text[whole : whole + 1] != ".":
        return whole or None
    part = digits(text[whole + 1 :])
    return whole + 1 + part if whole or part else None


def read(text: str) -> Fraction | None:
    """<quantity> ::= <signedNumber><suffix>; None for what is none."""
    sign = 1 if text[:1] in ("+", "-") else 0
    length = number(text[sign:])
    if length is None:
        return None
    suffix = text[sign + length :]
    value: Fraction = Fraction(Decimal(text[sign : sign + length]))
    value = -value if text[:1] == "-" else value
    if suffix in BINARY:
        return value * Fraction(1024) ** BINARY[suffix]
    if suffix in DECIMAL:
        return value * Fraction(10) ** DECIMAL[suffix]
    if suffix[:1] in ("e", "E"):
        rest = suffix[1:].removeprefix("+") if suffix[1:2] == "+" else suffix[1:]
        figures = rest.removeprefix("-")
        if figures and digits(figures) == len(figures) and len(figures) <= 3:
            return value * Fraction(10) ** int(rest)
    return None


PIECES = st.sampled_from(
    [*DIGITS, "00", "999", ".", "+", "-", "e", "E", "m", "k", "M", "Gi", "Ki", "i", "n", "u", " ",
     "_", "\u0661", "\uff11", "x", "\n", "e3", "E-2", "e+18"]
)  # fmt: skip
NEARLY = st.lists(PIECES, max_size=6).map("".join)
PROPER = st.builds(
    lambda sign, number, suffix: sign + number + suffix,
    st.sampled_from(["", "+", "-"]),
    st.from_regex(r"\A[0-9]{1,12}(\.[0-9]{0,9})?\Z|\A\.[0-9]{1,9}\Z").map(str.strip),
    st.sampled_from([*BINARY, *DECIMAL, "e0", "E3", "e-9", "e+6"]),
)


@settings(max_examples=400, deadline=None)
@given(NEARLY | PROPER)
def test_the_grammar_of_the_api_machinery_is_read_and_nothing_else(text: str) -> None:
    expected = read(text)
    try:
        found: Fraction | None = parse_quantity(text)
    except QuantityError:
        found = None
    if expected is not None and found is None:
        # Beyond what the API server keeps, we refuse instead of capping.
        exponent = text.lower().partition("e")[2]
        assert abs(expected) > CAP or abs(int(exponent or 0)) > 18, text
    else:
        assert found == expected, text


@settings(max_examples=200, deadline=None)
@given(PROPER)
def test_the_api_server_s_own_spelling_means_the_same(text: str) -> None:
    """A quantity arrives in canonical spelling: 3000 as 3k, 0.25 as 250m, 1024Mi as 1Gi."""
    value = amount(text)
    finest = 1 if text.endswith("i") else 10**9
    if abs(value) <= CAP and value * finest % 1 == 0:
        assert parse_quantity(canonical(text)) == value == parse_quantity(text)
