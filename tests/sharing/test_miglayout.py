"""Every layout of one GPU: the counts that hardware has, the best one, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharing import catalogue
from sharing.board import Board, Placement
from sharing.errors import LayoutError
from sharing.miglayout import (
    Placed,
    best_placement,
    legal_placements,
    maximal_layouts,
    place,
    states,
)
from sharing.migprofile import MigProfile

BOARDS = [board for board in catalogue.load().boards if board.mig]


def kind_of(board: Board) -> tuple[object, ...]:
    """What decides about places; names and memory do not."""
    return tuple(
        (each.enum, each.profile.gpu_slices, each.placements, each.max_instances)
        for each in board.mig
    )


KINDS = list({kind_of(board): board for board in reversed(BOARDS)}.values())
SEVEN = [board for board in BOARDS if board.mig_compute_slices == 7]
PLAIN_ENUMS = {0, 1, 2, 3, 4}
DOUBLE_MEMORY_ENUM = 9
ONE_MEDIA_ENUM = 7


def board_called(name: str) -> Board:
    return catalogue.load().board(name)


def profiles(*names: str) -> list[MigProfile]:
    return [MigProfile.parse(name) for name in names]


def at(name: str, start: int, size: int) -> Placed:
    return Placed(MigProfile.parse(name), Placement(start, size))


def by_enum(board: Board, enums: set[int]) -> list[MigProfile]:
    return [offered.profile for offered in board.mig if offered.enum in enums]


def multisets(layouts: Iterable[tuple[Placed, ...]]) -> set[tuple[MigProfile, ...]]:
    return {tuple(sorted(placed.profile for placed in layout)) for layout in layouts}


def shown(layout: Iterable[Placed]) -> str:
    return " ".join(f"{placed.profile}@{placed.placement.start}" for placed in layout)


@pytest.mark.parametrize("board", SEVEN, ids=lambda board: board.name)
@pytest.mark.parametrize(
    ("enums", "maximal", "maximal_sets", "valid"),
    [
        (PLAIN_ENUMS, 19, 14, 298),
        (PLAIN_ENUMS | {DOUBLE_MEMORY_ENUM}, 78, 38, 723),
        (PLAIN_ENUMS | {DOUBLE_MEMORY_ENUM, ONE_MEDIA_ENUM}, 239, 64, 2319),
    ],
    ids=["plain", "with double memory", "with media engines"],
)
def test_seven_slice_boards_have_the_published_combinations(
    board: Board, enums: set[int], maximal: int, maximal_sets: int, valid: int
) -> None:
    chosen = by_enum(board, enums)
    layouts = maximal_layouts(board, chosen)
    assert (len(layouts), len(multisets(layouts))) == (maximal, maximal_sets)
    assert len(states(board, chosen)) == valid


def test_plain_profiles_of_seven_slices_make_38_multisets() -> None:
    board = board_called("A100-40GB")
    assert len(multisets(states(board, by_enum(board, PLAIN_ENUMS)))) == 38


@pytest.mark.parametrize("name", ["A30-24GB", "RTX-PRO-6000-96GB"])
def test_four_slice_boards_have_5_maximal_layouts_and_26_states(name: str) -> None:
    board = board_called(name)
    plain = by_enum(board, PLAIN_ENUMS)
    assert len(maximal_layouts(board, plain)) == 5
    assert len(multisets(maximal_layouts(board, plain))) == 4
    assert len(states(board, plain)) == 26


def test_a30_with_both_media_profiles_has_17_maximal_layouts_and_76_states() -> None:
    board = board_called("A30-24GB")
    assert len(maximal_layouts(board)) == 17
    assert len(multisets(maximal_layouts(board))) == 8
    assert len(states(board)) == 76


@pytest.mark.parametrize("board", KINDS, ids=lambda board: board.name)
def test_every_multiset_that_fits_is_placed_biggest_first(board: Board) -> None:
    for wanted in multisets(states(board)):
        layout = place(board, wanted)
        assert tuple(sorted(placed.profile for placed in layout)) == wanted
        sizes = [placed.placement.size for placed in layout]
        assert sizes == sorted(sizes, reverse=True)
        for index, placed in enumerate(layout):
            assert placed.placement in board.mig_profile(placed.profile).placements
            assert not any(placed.placement.overlaps(other.placement) for other in layout[:index])


@pytest.mark.parametrize(
    ("wanted", "layout"),
    [
        (("4g.20gb", "3g.20gb"), "4g.20gb@0 3g.20gb@4"),
        (("3g.20gb",), "3g.20gb@4"),
        (("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"), "3g.20gb@4 2g.10gb@2 1g.5gb@0 1g.5gb@1"),
        (("3g.20gb", "2g.10gb", "2g.10gb"), "3g.20gb@4 2g.10gb@0 2g.10gb@2"),
        (
            ("3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"),
            "3g.20gb@4 1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3",
        ),
        (("7g.40gb",), "7g.40gb@0"),
        ((), ""),
    ],
)
def test_the_layout_is_the_one_that_greedy_placement_misses(
    wanted: tuple[str, ...], layout: str
) -> None:
    board = board_called("A100-40GB")
    for order in set(permutations(wanted)):
        assert shown(place(board, profiles(*order))) == layout


def test_a_grid_of_twelve_units_is_no_special_case() -> None:
    board = board_called("RTX-PRO-6000-96GB")
    layout = place(board, profiles("1g.24gb", "1g.24gb", "2g.48gb"))
    assert shown(layout) == "2g.48gb@6 1g.24gb@0 1g.24gb@3"


def test_instances_in_use_stay_and_serve_what_is_wanted() -> None:
    board = board_called("H100-80GB")
    held = [at("1g.10gb", 5, 1)]
    layout = place(board, profiles("1g.10gb", "1g.10gb", "4g.40gb"), held=held)
    assert held[0] in layout
    assert Counter(str(placed.profile) for placed in layout) == {"1g.10gb": 2, "4g.40gb": 1}


def test_an_instance_in_use_that_nobody_wants_is_part_of_the_answer() -> None:
    board = board_called("H100-80GB")
    layout = place(board, profiles("3g.40gb"), held=[at("1g.10gb", 6, 1)])
    assert shown(layout) == "3g.40gb@0 1g.10gb@6"


def test_an_instance_in_use_that_the_board_does_not_know_keeps_its_place() -> None:
    board = board_called("H100-80GB")
    foreign = at("1g.12gb", 0, 1)
    layout = place(board, profiles("3g.40gb"), held=[foreign])
    assert foreign in layout
    with pytest.raises(LayoutError, match=r"in use: 1g\.12gb at 0"):
        place(board, profiles("4g.40gb"), held=[foreign])


def test_idle_instances_stay_where_they_are_if_that_is_possible() -> None:
    board = board_called("H100-80GB")
    idle = [at("1g.10gb", 0, 1), at("2g.20gb", 4, 2)]
    layout = place(board, profiles("1g.10gb", "2g.20gb", "2g.20gb"), idle=idle)
    assert set(idle) <= set(layout)
    moved = place(board, profiles("4g.40gb", "1g.10gb"), idle=idle)
    assert shown(moved).startswith("4g.40gb@0 ")


@pytest.mark.parametrize(
    ("name", "wanted", "reason", "nearest"),
    [
        ("A100-40GB", ["2g.10gb"] * 4, "takes 3 of 2g.10gb at most", "{2g.10gb: 3}"),
        ("A100-40GB", ["4g.20gb", "2g.10gb", "2g.10gb"], "8 compute slices, the board has 7", ""),
        ("A100-40GB", ["3g.20gb", "3g.20gb", "1g.5gb"], "9 of 8 units", "{3g.20gb: 2}"),
        ("A100-40GB", ["1g.5gb+me"] * 2, "takes 1 of", "{1g.5gb+me: 1}"),
        ("A30-24GB", ["1g.6gb+me", "2g.12gb+me"], "media engines go to one", "{2g.12gb+me: 1}"),
        ("RTX-PRO-6000-96GB", ["1g.24gb+me.all", "1g.24gb"], "only '-me' profiles fit", ""),
    ],
)
def test_a_refusal_gives_the_reason_and_the_nearest_layout(
    name: str, wanted: list[str], reason: str, nearest: str
) -> None:
    with pytest.raises(LayoutError) as caught:
        place(board_called(name), profiles(*wanted))
    assert reason in str(caught.value)
    assert nearest in caught.value.example
    assert caught.value.example


def test_a_refusal_names_what_is_in_the_way() -> None:
    """Project-HAMi/HAMi#948: a layout that one old slice blocked failed without a reason."""
    with pytest.raises(LayoutError, match=r"do not suit; in use: 3g\.20gb at 0"):
        place(
            board_called("A100-40GB"),
            profiles("4g.20gb", "3g.20gb"),
            held=[at("3g.20gb", 0, 4)],
        )


def test_a_profile_that_the_board_lacks_is_refused_by_name() -> None:
    with pytest.raises(LayoutError, match=r"does not offer MIG profile '1g\.99gb'"):
        place(board_called("A100-40GB"), profiles("1g.99gb"))


def test_legal_places_are_those_that_are_free_now() -> None:
    board = board_called("A100-40GB")
    three = at("3g.20gb", 0, 4)
    assert legal_placements(board, MigProfile.parse("4g.20gb"), [three]) == ()
    free = legal_placements(board, MigProfile.parse("1g.5gb"), [three])
    assert [placement.start for placement in free] == [4, 5, 6]


def test_one_more_instance_keeps_the_big_ones_possible() -> None:
    board = board_called("B200-180GB")
    occupied: list[Placed] = []
    for name in ("1g.23gb", "1g.23gb", "2g.45gb", "3g.90gb"):
        profile = MigProfile.parse(name)
        occupied.append(Placed(profile, best_placement(board, profile, occupied)))
    with pytest.raises(LayoutError):
        best_placement(board, MigProfile.parse("1g.23gb"), occupied)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Board, list[MigProfile], list[Placed], list[Placed]]:
    board = draw(st.sampled_from(BOARDS))
    layout = draw(st.sampled_from(states(board)))
    kinds = draw(st.lists(st.sampled_from(["held", "idle", "new"]), min_size=8, max_size=8))
    pairs = list(zip(layout, kinds, strict=False))
    wanted = draw(st.permutations([placed.profile for placed in layout]))
    held = [placed for placed, kind in pairs if kind == "held"]
    return board, wanted, held, [placed for placed, kind in pairs if kind == "idle"]


@given(history=histories())
@settings(max_examples=100, deadline=None)
def test_what_is_held_never_moves_and_all_that_fits_is_found(
    history: tuple[Board, list[MigProfile], list[Placed], list[Placed]],
) -> None:
    board, wanted, held, idle = history
    layout = place(board, wanted, held=held, idle=idle)
    assert set(held) | set(idle) <= set(layout)
    assert sorted(placed.profile for placed in layout) == sorted(wanted)
    assert layout == place(board, sorted(wanted), held=held[::-1], idle=idle[::-1])


@pytest.mark.parametrize(
    ("wanted", "start"),
    [
        ({}, 6),  # nothing is wanted: the highest place
        ({"4g.20gb": 1}, 5),  # slot 6 with 7 is left for a double-memory 1g beside it
        ({"3g.20gb": 1}, 3),
        ({"7g.40gb": 1}, 6),
    ],
)
def test_one_more_instance_goes_where_what_is_wanted_can_still_come(
    wanted: dict[str, int], start: int
) -> None:
    board = board_called("A100-40GB")
    demand = {MigProfile.parse(name): weight for name, weight in wanted.items()}
    assert best_placement(board, profiles("1g.5gb")[0], [], demand=demand).start == start


@given(board=st.sampled_from(KINDS), data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_best_place_leaves_most_of_the_future_open(board: Board, data: st.DataObject) -> None:
    every = states(board)
    occupied = data.draw(st.sampled_from(states(board, by_enum(board, PLAIN_ENUMS))))
    profile = data.draw(st.sampled_from(by_enum(board, PLAIN_ENUMS)))
    places = legal_placements(board, profile, occupied)
    if not places:
        return
    demand = {each: each.gpu_slices for each in by_enum(board, PLAIN_ENUMS)}

    def future(at: Placement) -> int:
        given_ = {*occupied, Placed(profile, at)}
        return sum(
            demand.get(placed.profile, 0)
            for state in every
            if given_ <= set(state)
            for placed in set(state) - given_
        )

    best = best_placement(board, profile, occupied, demand=demand)
    assert future(best) == max(map(future, places))
    assert best == max(at for at in places if future(at) == future(best))


@given(board=st.sampled_from(KINDS), data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_nearest_layout_of_a_refusal_fits(board: Board, data: st.DataObject) -> None:
    offered = [each.profile for each in board.mig]
    wanted = data.draw(st.lists(st.sampled_from(offered), min_size=1, max_size=9))
    try:
        place(board, wanted)
    except LayoutError as refused:
        parts = refused.example.strip("{}").split(", ")
        nearest = [
            MigProfile.parse(name)
            for name, _, count in (part.partition(": ") for part in parts)
            for _ in range(int(count))
        ]
        assert nearest
        assert place(board, nearest)
        assert Counter(nearest) <= Counter(wanted)
