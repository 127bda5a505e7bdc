"""How layouts that cut MIG instances are written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from sharing.api.layout import LayoutSpec
from sharing.api.model import parse_model
from sharing.errors import InputError
from sharing.layout import GpuLayout
from sharing.mode import Mode
from tests.support.domain import cut_layouts

CUT: dict[str, Any] = {
    "mode": "mig",
    "sizes": {"3g.40gb": 2},
    "cut": {"3g.40gb": {"mode": "mps", "sizes": {"1of2": 1, "1of4": 2}}},
}


@given(cut_layouts())
def test_a_layout_with_cuts_survives_being_written_and_read(layout: GpuLayout) -> None:
    written = LayoutSpec.from_layout(layout).model_dump(mode="json", by_alias=True)

    assert parse_model(LayoutSpec, written, "layout").to_layout() == layout


def test_a_layout_without_cuts_is_written_without_the_word() -> None:
    written = LayoutSpec(mode=Mode.MIG, sizes={"3g.40gb": 2}).model_dump(mode="json", by_alias=True)
    assert written == {"mode": "mig", "sizes": {"3g.40gb": 2}, "pool": None, "timeSlice": None}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cut": {"1g.10gb": {"mode": "mps", "sizes": {"1of4": 4}}}}, "not among its sizes"),
        ({"cut": {"3g.40gb": {"mode": "mps", "sizes": {"1of4": 5}}}}, "sum to 5/4"),
        ({"cut": {"3g.40gb": {"mode": "mps", "sizes": {"1g.5gb": 1}}}}, "not parts of a GPU"),
        ({"cut": {"3g.40gb": {"mode": "mps", "sizes": {}}}}, "at least 1 item"),
        ({"cut": {"3g.40gb": {"mode": "mps"}}}, "sizes is missing"),
        ({"cut": {"3g.40gb": {"mode": "mig", "sizes": {"1of4": 4}}}}, "mode mig cannot be cut"),
        ({"cut": {"3g.40gb": {"mode": "mps", "sizes": {"1of4": 1}, "pool": "a"}}}, "unknown field"),
        ({"cut": {"1of4": {"mode": "mps", "sizes": {"1of4": 4}}}}, "'1of4'"),
        ({"mode": "mps", "sizes": {"1of4": 4}}, "not among its sizes"),
    ],
)
def test_a_cut_that_means_nothing_is_refused_by_its_field(
    change: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        parse_model(LayoutSpec, CUT | change, "layout")
