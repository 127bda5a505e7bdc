"""Layouts: what a GPU may be cut into, which GPU gets which, and what that yields."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.errors import InputError, LayoutError
from sharing.layout import (
    EXCLUSIVE_LAYOUT,
    GpuIdentity,
    GpuLayout,
    GpuSelector,
    LayoutEntry,
    assign,
)
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.share import PlacedInstance, shares_of, worth_milli
from sharing.shareclass import ShareClass
from sharing.size import OneOf
from tests.support.domain import part_layouts

UUID = "GPU-00000000-0000-0000-0000-000000000001"
SMALL, LARGE = MigProfile.parse("1g.10gb"), MigProfile.parse("3g.40gb")


@pytest.mark.parametrize(
    ("mode", "sizes", "wrong"),
    [
        (Mode.EXCLUSIVE, ((OneOf(2), 1),), "an exclusive GPU has no sizes"),
        (Mode.MPS, (), "not parts of a GPU"),
        (Mode.MPS, ((SMALL, 1),), "not parts of a GPU"),
        (Mode.MPS, ((OneOf(2), 3),), "sum to 3/2 of a GPU"),
        (Mode.TIME_SLICING, ((OneOf(4), 0),), "0 shares of size 1of4"),
        (Mode.MIG, ((OneOf(4), 1),), "size 1of4 is no MIG profile"),
        (Mode.MIG, ((MigProfile.parse("1c.3g.40gb"), 1),), "splits its instance"),
    ],
)
def test_a_layout_that_no_gpu_can_have_is_refused(mode: Mode, sizes: tuple, wrong: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(LayoutError, match=wrong):
        GpuLayout(mode=mode, sizes=sizes)


@given(part_layouts())
def test_parts_never_sum_to_more_than_their_gpu(layout: GpuLayout) -> None:
    shares = shares_of(layout, gpu_uuid=UUID, memory_mib=81559)

    assert sum(share.memory_mib for share in shares) <= 81559
    assert sum(
        (s.share_class.size.fraction for s in shares if isinstance(s.share_class.size, OneOf)),
        Fraction(0),
    ) <= 1  # fmt: skip


@given(part_layouts())
def test_device_ids_are_distinct_and_short(layout: GpuLayout) -> None:
    ids = [share.device_id for share in shares_of(layout, gpu_uuid=UUID, memory_mib=81559)]

    assert len(ids) == len(set(ids)) == sum(count for _, count in layout.sizes)
    assert all(len(device_id) <= 63 for device_id in ids)


@given(part_layouts(), st.randoms())
def test_a_layout_does_not_depend_on_the_order_of_its_sizes(
    layout: GpuLayout, shuffle: random.Random
) -> None:
    sizes = [(size, 1) for size, count in layout.sizes for _ in range(count)]
    shuffle.shuffle(sizes)

    assert GpuLayout(mode=layout.mode, sizes=tuple(sizes), pool=layout.pool) == layout


def test_mig_shares_are_what_the_driver_shows_and_the_layout_names() -> None:
    layout = GpuLayout(mode=Mode.MIG, sizes=((SMALL, 2), (LARGE, 1)), pool="team-a")
    instances = [
        PlacedInstance(profile=SMALL, start=start, memory_mib=9984) for start in (2, 0, 1)
    ] + [PlacedInstance(profile=LARGE, start=4, memory_mib=40448)]

    shares = shares_of(layout, gpu_uuid=UUID, memory_mib=81559, instances=instances)

    assert [share.device_id for share in shares] == [
        f"{UUID}::3g.40gb-4", f"{UUID}::1g.10gb-0", f"{UUID}::1g.10gb-1",
    ]  # fmt: skip
    assert {share.share_class.pool for share in shares} == {"team-a"}


def test_a_mig_share_that_the_driver_lacks_is_not_offered() -> None:
    layout = GpuLayout(mode=Mode.MIG, sizes=((SMALL, 2),))

    assert shares_of(layout, gpu_uuid=UUID, memory_mib=81559) == ()


def gpus(count: int) -> list[GpuIdentity]:
    return [
        GpuIdentity(index=i, uuid=f"GPU-{i}", board="L4-24GB" if i == 3 else "H100-80GB")
        for i in range(count)
    ]


def entry(selector: str, parts: int) -> LayoutEntry:
    layout = GpuLayout(mode=Mode.MPS, sizes=((OneOf(parts), 1),))
    return LayoutEntry(gpus=GpuSelector(selector), layout=layout)


def test_the_first_entry_that_selects_a_gpu_wins_and_the_rest_stays_whole() -> None:
    entries = [entry("0-1", 2), entry("1,uuid:GPU-2", 4), entry("board:L4-24GB", 8)]

    chosen = [layout for _, layout in assign(entries, gpus(5))]

    assert [layout.sizes for layout in chosen] == [
        ((OneOf(2), 1),), ((OneOf(2), 1),), ((OneOf(4), 1),), ((OneOf(8), 1),), (),
    ]  # fmt: skip
    assert chosen[4] == EXCLUSIVE_LAYOUT


@given(st.permutations(gpus(5)))
def test_assignment_does_not_depend_on_the_order_of_the_gpus(order: list[GpuIdentity]) -> None:
    entries = [entry("0", 2), entry("rest", 4)]

    assert assign(entries, order) == assign(entries, gpus(5))


@pytest.mark.parametrize("text", ["", "x", "1-0", "board:", "uuid", "0,,1", "-1", "0-", "rest,x"])
def test_a_selector_that_selects_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"gpus: .*for example: 0-1,4"):
        GpuSelector(text)


@pytest.mark.parametrize(
    ("share_class", "memory_mib", "compute", "milli"),
    [
        (ShareClass(mode=Mode.EXCLUSIVE), 81559, (0, 1), 1000),
        (ShareClass(mode=Mode.MPS, size=OneOf(3)), 27186, (0, 1), 334),
        (ShareClass(mode=Mode.MIG, size=SMALL), 9984, (1, 7), 143),
        (ShareClass(mode=Mode.MIG, size=LARGE), 40448, (3, 7), 496),
        (ShareClass(mode=Mode.MIG, size=MigProfile.parse("7g.80gb")), 81152, (7, 7), 1000),
    ],
)
def test_worth_is_the_larger_of_memory_and_compute_rounded_up(
    share_class: ShareClass, memory_mib: int, compute: tuple[int, int], milli: int
) -> None:
    worth = worth_milli(
        share_class, memory_mib=memory_mib, gpu_memory_mib=81559, compute_share=compute
    )

    assert worth == milli
