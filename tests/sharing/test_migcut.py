"""MIG instances that are cut further: what may be cut, into what, and what each share is."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given

from sharing.catalogue import load
from sharing.errors import LayoutError
from sharing.layout import GpuLayout
from sharing.migcut import check_cuts, most_clients
from sharing.migprofile import MigProfile
from sharing.mode import Isolation, Mode
from sharing.share import PlacedInstance, instance_named, place_of, shares_of, worth_milli
from sharing.shareclass import ShareClass
from sharing.size import OneOf, Size
from sharing.timeslice import TimeSlice
from tests.support.domain import cut_layouts

UUID = "GPU-00000000-0000-0000-0000-000000000001"
SMALL, LARGE = MigProfile.parse("1g.10gb"), MigProfile.parse("3g.40gb")
H100 = load().board("H100-80GB")
HALVES = GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 2),))
QUARTERS = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(2), 1), (OneOf(4), 2)))
LAYOUT = GpuLayout(
    mode=Mode.MIG, sizes=((SMALL, 2), (LARGE, 1)), cuts=((SMALL, QUARTERS), (LARGE, HALVES))
)


def instances(layout: GpuLayout) -> list[PlacedInstance]:
    """One after the other: where they may lie is another matter."""
    return [
        PlacedInstance(profile=profile, start=start, memory_mib=1000 * profile.memory_gb + 7)
        for start, profile in enumerate(layout.mig_profiles)
    ]


def test_the_shares_of_a_cut_instance_are_named_by_it_and_have_its_memory() -> None:
    placed = [
        PlacedInstance(profile=SMALL, start=0, memory_mib=9984),
        PlacedInstance(profile=SMALL, start=1, memory_mib=9984),
        PlacedInstance(profile=LARGE, start=4, memory_mib=40448),
    ]

    shares = shares_of(LAYOUT, gpu_uuid=UUID, memory_mib=81559, instances=placed)

    listed = [(s.share_class.resource_name, s.device_id, s.memory_mib) for s in shares]
    assert listed[:5] == [
        ("gpu.sharing/mig-3g.40gb.mps-1of2", f"{UUID}::3g.40gb-4::0", 20224),
        ("gpu.sharing/mig-3g.40gb.mps-1of2", f"{UUID}::3g.40gb-4::1", 20224),
        ("gpu.sharing/mig-1g.10gb.timeslice-1of2", f"{UUID}::1g.10gb-0::0", 4992),
        ("gpu.sharing/mig-1g.10gb.timeslice-1of4", f"{UUID}::1g.10gb-0::1", 2496),
        ("gpu.sharing/mig-1g.10gb.timeslice-1of4", f"{UUID}::1g.10gb-0::2", 2496),
    ]
    assert [s.place for s in shares[5:]] == [f"{UUID}::1g.10gb-1"] * 3
    assert {s.start for s in shares[5:]} == {1}
    assert shares[0].share_class.isolation is Isolation.LIMITS


def test_an_instance_that_the_driver_lacks_yields_nothing() -> None:
    assert shares_of(LAYOUT, gpu_uuid=UUID, memory_mib=81559) == ()


@given(cut_layouts())
def test_shares_of_an_instance_never_sum_to_more_and_their_ids_say_where_they_lie(
    layout: GpuLayout,
) -> None:
    there = instances(layout)

    shares = shares_of(layout, gpu_uuid=UUID, memory_mib=81559, instances=there)

    assert Counter(s.share_class for s in shares) == Counter(dict(layout.shares))
    ids = [share.device_id for share in shares]
    assert len(ids) == len(set(ids))
    for share in shares:
        assert place_of(share.place) == share.place
        assert share.device_id.startswith(share.place)
        assert instance_named(share.device_id) == (share.share_class.instance, share.start)
    for one in there:
        inside = [s for s in shares if instance_named(s.device_id) == (one.profile, one.start)]
        assert inside
        assert sum(s.memory_mib for s in inside) <= one.memory_mib
        sizes = [s.share_class.size for s in inside]
        parts = [size.fraction for size in sizes if isinstance(size, OneOf)]
        assert sum(parts, Fraction(0)) <= 1


def test_the_longest_id_is_as_short_as_others_need_it() -> None:
    profile = MigProfile.parse("1g.24gb+me.all")
    cut = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(48), 48),))
    layout = GpuLayout(mode=Mode.MIG, sizes=((profile, 1),), cuts=((profile, cut),))
    there = [PlacedInstance(profile=profile, start=11, memory_mib=24192)]

    last = shares_of(layout, gpu_uuid=UUID, memory_mib=97887, instances=there)[-1]

    assert last.device_id == f"{UUID}::1g.24gb.me.all-11::47"
    assert len(last.device_id) <= 63


@pytest.mark.parametrize(
    ("device_id", "place"),
    [
        (UUID, UUID),
        (f"{UUID}::3", UUID),
        (f"{UUID}::1g.10gb-2", f"{UUID}::1g.10gb-2"),
        (f"{UUID}::1g.10gb-2::7", f"{UUID}::1g.10gb-2"),
        (f"{UUID}::1g.24gb-me-3::7", f"{UUID}::1g.24gb-me-3"),
        (f"{UUID}::nonsense-2::7", UUID),
        (f"{UUID}::1g.10gb-x", UUID),
    ],
)
def test_a_place_is_read_from_a_device_id(device_id: str, place: str) -> None:
    assert place_of(device_id) == place


@pytest.mark.parametrize(
    ("mode", "sizes", "cuts", "wrong"),
    [
        (Mode.MIG, ((LARGE, 1),), ((SMALL, HALVES),), "cuts MIG profile 1g.10gb, which is not"),
        (Mode.MIG, ((SMALL, 1),), ((SMALL, HALVES), (SMALL, QUARTERS)), "1g.10gb twice"),
        (Mode.MPS, ((OneOf(2), 1),), ((SMALL, HALVES),), "which is not among its sizes"),
        (
            Mode.MIG,
            ((LARGE, 1),),
            ((LARGE, GpuLayout(mode=Mode.MIG, sizes=((SMALL, 1),))),),
            "mode mig cannot be cut from MIG instances",
        ),
        (
            Mode.MIG,
            ((LARGE, 1),),
            ((LARGE, GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 1),), pool="team-a")),),
            "a mode and sizes, nothing else",
        ),
        (
            Mode.MIG,
            ((LARGE, 1),),
            (
                (
                    LARGE,
                    GpuLayout(
                        mode=Mode.TIME_SLICING,
                        sizes=((OneOf(2), 1),),
                        time_slice=TimeSlice.SHORT,
                    ),
                ),
            ),
            "a mode and sizes, nothing else",
        ),
    ],
)
def test_a_cut_that_means_nothing_is_refused(
    mode: Mode,
    sizes: tuple[tuple[Size, int], ...],
    cuts: tuple[tuple[MigProfile, GpuLayout], ...],
    wrong: str,
) -> None:
    with pytest.raises(LayoutError, match=wrong):
        GpuLayout(mode=mode, sizes=sizes, cuts=cuts)


def test_a_layout_says_its_cuts_in_one_line() -> None:
    assert str(LAYOUT) == ("mig 1x 3g.40gb (mps 2x 1of2) 2x 1g.10gb (time-slicing 1x 1of2 2x 1of4)")


@pytest.mark.parametrize(
    ("board", "profile", "most"),
    [
        ("H100-80GB", "1g.10gb", 6),
        ("H100-80GB", "2g.20gb", 13),
        ("H100-80GB", "3g.40gb", 20),
        ("H100-80GB", "7g.80gb", 48),
        ("A30-24GB", "1g.6gb", 12),
    ],
)
def test_an_instance_takes_fewer_clients_than_a_gpu(board: str, profile: str, most: int) -> None:
    model, mig = load().board(board), MigProfile.parse(profile)
    assert most_clients(model, mig) == most

    def cut_into(count: int, mode: Mode) -> GpuLayout:
        cut = GpuLayout(mode=mode, sizes=((OneOf(48), count),))
        return GpuLayout(mode=Mode.MIG, sizes=((mig, 1),), cuts=((mig, cut),))

    check_cuts(model, cut_into(most, Mode.MPS))
    check_cuts(model, cut_into(48, Mode.TIME_SLICING))
    if most < 48:
        with pytest.raises(LayoutError, match=f"at most {most}, the MPS clients"):
            check_cuts(model, cut_into(most + 1, Mode.MPS))


def test_a_part_of_an_instance_is_worth_its_part_of_the_larger_share() -> None:
    def worth(parts: int, memory_mib: int) -> int:
        share_class = ShareClass(mode=Mode.MPS, size=OneOf(parts), cut_from=LARGE)
        return worth_milli(
            share_class,
            memory_mib=memory_mib,
            gpu_memory_mib=H100.memory_mib,
            compute_share=(3, 7),
        )

    assert worth(1, 40448) == 496
    assert worth(2, 20224) == 248
    assert worth(48, 842) == 11
