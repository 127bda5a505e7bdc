"""Sizes, MIG profiles, share classes: one spelling each, and back."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.errors import InputError, ResourceNameError, SizeError
from sharing.migprofile import MigProfile
from sharing.mode import Isolation, Mode, parse_mode
from sharing.shareclass import ShareClass, parse_resource_name
from sharing.size import OneOf, parse_size, parts_for
from tests.support.domain import mig_profiles, parts, share_classes


@given(mig_profiles)
def test_a_mig_profile_reads_back_what_it_prints(profile: MigProfile) -> None:
    assert MigProfile.parse(str(profile)) == profile
    assert MigProfile.from_token(profile.resource_token) == profile


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("1g.10gb", "1g.10gb"),
        ("1g.10gb+me", "1g.10gb.me"),
        ("1g.24gb+me.all", "1g.24gb.me.all"),
        ("1g.24gb+gfx", "1g.24gb.gfx"),
        ("1g.24gb-me", "1g.24gb-me"),
    ],
)
def test_a_mig_profile_is_spelled_as_nvidia_spells_it(text: str, token: str) -> None:
    assert MigProfile.parse(text).resource_token == token


@pytest.mark.parametrize(
    "text",
    ["", "1g", "10gb", "0g.10gb", "1g.0gb", "1g.10GB", "4c.3g.40gb", "1g.10gb+xx", " 1g.10gb",
     "1g.10gb\n", "1g.10gb.me", "\u0661g.10gb", None, 1, b"1g.10gb", "1g.99999gb"],
)  # fmt: skip
def test_a_mig_profile_refuses_what_is_none(text: object) -> None:
    with pytest.raises(SizeError, match=r"MIG profile: .*for example: 1g\.10gb"):
        MigProfile.parse(text)


def test_a_split_mig_profile_has_no_share_class() -> None:
    split = MigProfile.parse("1c.3g.40gb")

    assert str(split) == "1c.3g.40gb"
    with pytest.raises(SizeError, match="splits its instance"):
        ShareClass(mode=Mode.MIG, size=split)


@given(parts)
def test_a_part_reads_back_what_it_prints(size: OneOf) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    "text", ["1of0", "1of49", "1of04", "2of4", "1OF4", "1of", "of4", "", None, 4, "0.25", "1of 4"]
)
def test_a_size_refuses_what_is_none(text: object) -> None:
    with pytest.raises(SizeError):
        parse_size(text)


def test_a_larger_part_is_greater() -> None:
    assert OneOf(2) > OneOf(4)
    assert sorted([OneOf(2), OneOf(8), OneOf(4)]) == [OneOf(8), OneOf(4), OneOf(2)]


@given(st.fractions(min_value=0, max_value=1).filter(lambda f: f > 0))
def test_a_fraction_gets_a_part_that_is_never_smaller(fraction: Fraction) -> None:
    size = parts_for(fraction)

    assert size.fraction >= fraction or size.parts == 48


@given(share_classes())
def test_a_resource_name_reads_back_as_its_class(share_class: ShareClass) -> None:
    assert parse_resource_name(share_class.resource_name) == share_class


@given(share_classes(), share_classes())
def test_two_classes_never_share_a_resource_name(one: ShareClass, other: ShareClass) -> None:
    assert (one == other) == (one.resource_name == other.resource_name)
    assert (one == other) == (one.sort_key == other.sort_key)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia.com/gpu", ShareClass(mode=Mode.EXCLUSIVE)),
        ("nvidia.com/mig-1g.10gb", ShareClass(mode=Mode.MIG, size=parse_size("1g.10gb"))),
        ("gpu.sharing/mps-1of4", ShareClass(mode=Mode.MPS, size=OneOf(4))),
        ("gpu.sharing/timeslice-1of4", ShareClass(mode=Mode.TIME_SLICING, size=OneOf(4))),
        ("team-a.gpu.sharing/mps-1of4", ShareClass(mode=Mode.MPS, size=OneOf(4), pool="team-a")),
        (
            "gpu.sharing/mig-1g.10gb.timeslice-1of2",
            ShareClass(mode=Mode.TIME_SLICING, size=OneOf(2), cut_from=MigProfile.parse("1g.10gb")),
        ),
    ],
)
def test_the_names_of_the_design_are_understood(name: str, expected: ShareClass) -> None:
    assert parse_resource_name(name) == expected
    assert expected.resource_name == name


@pytest.mark.parametrize(
    "name",
    ["cpu", "memory", "amd.com/gpu", "nvidia.com/gpu.shared", "gpu.sharing/milli-gpu",
     "notgpu.sharing/mps-1of4", "gpu.sharing.example.com/x", "nvidia.com/gpux", ""],
)  # fmt: skip
def test_names_that_are_not_ours_are_left_alone(name: str) -> None:
    assert parse_resource_name(name) is None


@pytest.mark.parametrize(
    "name",
    ["gpu.sharing/", "gpu.sharing/mps", "gpu.sharing/mps-1of0", "gpu.sharing/mps-1of64",
     "gpu.sharing/gpu", "gpu.sharing/mig-1g.10gb", "gpu.sharing/MPS-1of4",
     "nvidia.com/mig-", "nvidia.com/mig-1c.3g.40gb", "nvidia.com/mig-foo",
     "requests.gpu.sharing/mps-1of4", "a_b.gpu.sharing/mps-1of4", ".gpu.sharing/mps-1of4"],
)  # fmt: skip
def test_a_malformed_name_under_our_prefix_is_refused_with_the_right_forms(name: str) -> None:
    with pytest.raises(ResourceNameError, match=r"resource .*gpu\.sharing/mps-1of4"):
        parse_resource_name(name)


@given(st.text())
def test_any_text_is_a_class_or_none_or_a_clear_error(name: str) -> None:
    try:
        found = parse_resource_name(name)
    except ResourceNameError:
        return
    assert found is None or found.resource_name == name


def test_modes_say_how_well_they_isolate() -> None:
    grades = [mode.isolation for mode in (Mode.TIME_SLICING, Mode.MPS, Mode.MIG, Mode.EXCLUSIVE)]

    assert grades == sorted(Isolation, key=lambda grade: grade.rank)


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="'mpss' is no mode; expected one of exclusive"):
        parse_mode("mpss")
