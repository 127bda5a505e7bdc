"""Equal JSON is one value, and nothing that only looks equal."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from sharing.api.profile import parse_profile
from sharing.api.sameness import Same
from sharing.errors import InputError


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def test_profiles_of_one_spec_share_it_and_keep_their_names() -> None:
    one = parse_profile(manifest("one", mode="mps", nodeSelector={"a": "1", "b": "2"}))
    other = parse_profile(manifest("other", nodeSelector={"b": "2", "a": "1"}, mode="mps"))

    assert (one.name, other.name) == ("one", "other")
    assert one is not other
    assert one.spec is other.spec
    assert one.node_selector is other.node_selector


def test_profiles_that_differ_share_nothing_that_differs() -> None:
    one = parse_profile(manifest("one", mode="mps", allowedSizes=["1of2", "1of4"]))
    other = parse_profile(manifest("one", mode="mps", allowedSizes=["1of2"]))

    assert one.spec != other.spec
    assert one.sizes != other.sizes


def test_a_refused_spec_is_refused_each_time_under_its_own_name() -> None:
    for name in ("one", "other"):
        with pytest.raises(InputError, match=f"SharingProfile '?{name}"):
            parse_profile(manifest(name, mode="nothing"))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), ("1", 1), (None, ""), ([], {}), ([1, 2], [2, 1]), ({"a": 1}, {"b": 1})],
)
def test_what_differs_is_made_apart(one: Any, other: Any) -> None:
    same = Same[str](most=10)

    assert [same.of(one, lambda: "one"), same.of(other, lambda: "other")] == ["one", "other"]


def test_what_is_no_json_is_not_remembered() -> None:
    same = Same[int](most=10)
    made = iter(range(10))
    day = dt.date(2026, 1, 1)

    found = [same.of(raw, lambda: next(made)) for raw in (day, day, {1: 2}, {1: 2})]

    assert found == [0, 1, 2, 3]
    assert len(same) == 0


def test_the_oldest_are_forgotten_first() -> None:
    same = Same[int](most=3)
    for number in range(5):
        same.of(number, lambda number=number: number)  # type: ignore[misc]

    assert len(same) == 3
    assert same.of(4, lambda: -1) == 4
    assert same.of(0, lambda: -1) == -1
