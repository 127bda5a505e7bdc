"""Where MIG instances lie on one GPU: what fits, what is best, and why something does not fit.

The rules are the hardware's: instances take intervals of the board's grid at legal starts only,
their compute slices add up to at most the board's, each profile has a most, and media engines
exist once. Slice counts alone decide nothing: 3g at 0 leaves no place for 4g although 4 slices are
free, since 4g starts at 0 only.

A GPU has few enough states (19 maximal layouts and 298 states for the plain profiles of a
seven-slice board) to search all of them, so nothing here is a heuristic.

Source of the rules: NVIDIA MIG User Guide, "Partitioning"; the counts agree with its figure of
valid combinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sharing.board import Board, Placement
from sharing.errors import LayoutError
from sharing.migprofile import MigProfile
from sharing.migrefusal import ONE_MEDIA, sizes_text, why_not


class Placed(NamedTuple):
    """A MIG instance and where it lies; made, or to be made."""

    profile: MigProfile
    placement: Placement


def place(
    board: Board,
    wanted: Iterable[MigProfile],
    *,
    held: Iterable[Placed] = (),
    idle: Iterable[Placed] = (),
) -> tuple[Placed, ...]:
    """The complete layout of a GPU, biggest instance first, which is the order to create them in.

    Of all layouts that fit, the one is taken that keeps most of ``idle`` where it is, then the
    one that keeps most open for later, then the one with the highest starts.

    Args:
        board: The GPU's model, from the catalogue or the driver.
        wanted: All instances that the GPU shall have, in any order.
        held: Instances in use. They stay where they are and serve ``wanted`` where they suit;
            those that nobody wants stay nevertheless and are part of the answer.
        idle: Instances that exist and are not in use; kept where that is possible.

    Raises:
        LayoutError: It does not fit; the error gives the reason and the nearest that would.
    """
    fixed = tuple(sorted(held, key=_by_place))
    missing = Counter(wanted)
    for profile in sorted(missing):
        board.mig_profile(profile)
    missing -= Counter(placed.profile for placed in fixed)
    most = {offered.profile: offered.max_instances for offered in board.mig}
    table = _table(board, None, fixed)
    found: list[int] = []
    if all(count <= most[profile] for profile, count in missing.items()):
        found = list(_completions(table, sorted(missing.elements(), key=_bigness)))
    if not found:
        raise _refusal(board, missing, fixed, table)
    reused = sum(1 << table.index[placed] for placed in set(idle) if placed in table.index)
    best = min(
        found,
        key=lambda layout: (
            -(layout & reused).bit_count(),
            -table.openness(layout),
            [-option.placed.placement.start for option in table.chosen(layout)],
        ),
    )
    made = (option.placed for option in table.chosen(best))
    return tuple(sorted((*fixed, *made), key=_by_place))


def best_placement(
    board: Board,
    profile: MigProfile,
    occupied: Iterable[Placed],
    *,
    demand: Mapping[MigProfile, int] | None = None,
) -> Placement:
    """Where one more instance disturbs later wishes least.

    Of its legal places the one is taken after which most can still come: the weights of what each
    possible layout adds, summed up over all of them; then the highest.

    Args:
        board: The GPU's model.
        profile: What is to be placed.
        occupied: The instances that are there.
        demand: How much each MIG profile is wanted; by its compute slices if None.

    Raises:
        LayoutError: There is no place for it.
    """
    before = tuple(sorted(occupied, key=_by_place))
    if demand is not None and (places := legal_placements(board, profile, before)):
        table = _table(board, None, before)
        return max(places, key=lambda at: (_wanted_after(table, Placed(profile, at), demand), at))
    wanted = [*(placed.profile for placed in before), profile]
    offered = {known.profile for known in board.mig}
    layout = place(board, [each for each in wanted if each in offered], held=before)
    added = Counter(layout) - Counter(before)
    return next(iter(added)).placement


def legal_placements(
    board: Board, profile: MigProfile, occupied: Iterable[Placed]
) -> tuple[Placement, ...]:
    """Every place where one more instance could be created now, lowest start first.

    Raises:
        LayoutError: The board does not offer the MIG profile.
    """
    board.mig_profile(profile)
    table = _table(board, None, tuple(sorted(occupied, key=_by_place)))
    return tuple(
        option.placed.placement
        for option in table.options
        if option.placed.profile == profile and _joins(option, table.start, table)
    )


def states(
    board: Board, profiles: Iterable[MigProfile] | None = None
) -> tuple[tuple[Placed, ...], ...]:
    """Every valid layout of a GPU with its places, the empty one first.

    Args:
        board: The GPU's model.
        profiles: The MIG profiles to use; all that the board offers if None.
    """
    table = _table(board, _chosen(profiles), ())
    return tuple(table.layout(state) for state in table.states)


def maximal_layouts(
    board: Board,
    profiles: Iterable[MigProfile] | None = None,
    *,
    containing: Iterable[Placed] = (),
) -> tuple[tuple[Placed, ...], ...]:
    """The layouts that take no further instance, among those that contain given ones."""
    table = _table(board, _chosen(profiles), ())
    given = set(containing)
    layouts = (table.layout(state) for state in table.states if table.is_maximal(state))
    return tuple(layout for layout in layouts if given <= set(layout))


# The search: an option is one profile at one place, a state is a set of options as bits.


@dataclass(frozen=True, slots=True)
class _Option:
    bit: int
    placed: Placed
    units: int
    """Grid units as bits."""
    most: int


@dataclass(frozen=True, slots=True)
class _Partial:
    """What is taken so far."""

    units: int
    slices: int
    counts: tuple[tuple[MigProfile, int], ...]
    suffixes: frozenset[str]

    def with_instance(self, placed: Placed, units: int) -> _Partial:
        counts = Counter(dict(self.counts))
        counts[placed.profile] += 1
        return _Partial(
            self.units | units,
            self.slices + placed.profile.gpu_slices,
            tuple(sorted(counts.items())),
            self.suffixes | {placed.profile.attributes},
        )


@dataclass(frozen=True)
class _Table:
    """Everything that a board can become, given instances that stay."""

    options: tuple[_Option, ...]
    index: dict[Placed, int]
    start: _Partial
    compute_slices: int
    states: tuple[int, ...]
    weights: tuple[int, ...]

    def chosen(self, state: int) -> list[_Option]:
        return [option for option in self.options if state & option.bit]

    def layout(self, state: int) -> tuple[Placed, ...]:
        return tuple(option.placed for option in self.chosen(state))

    def openness(self, layout: int) -> int:
        """How much can still come: compute slices summed over all states that contain it."""
        pairs = zip(self.states, self.weights, strict=True)
        return sum(weight for state, weight in pairs if state & layout == layout)

    def is_maximal(self, state: int) -> bool:
        partial = self.partial(state)
        return not any(_joins(option, partial, self) for option in self.options)

    def partial(self, state: int) -> _Partial:
        partial = self.start
        for option in self.chosen(state):
            partial = partial.with_instance(option.placed, option.units)
        return partial


def _joins(option: _Option, partial: _Partial, table: _Table) -> bool:
    """Whether an instance can be created beside those that are there: all rules of the grid."""
    profile = option.placed.profile
    return (
        not option.units & partial.units
        and partial.slices + profile.gpu_slices <= table.compute_slices
        and dict(partial.counts).get(profile, 0) < option.most
        and _media_agree(profile.attributes, partial.suffixes)
    )


def _media_agree(suffix: str, others: frozenset[str]) -> bool:
    """Media engines exist once; beside an instance with all of them only ``-me`` ones fit."""
    if suffix in ONE_MEDIA and others & ONE_MEDIA:
        return False
    if suffix == "+me.all" and others - {"-me"}:
        return False
    return suffix == "-me" or "+me.all" not in others


@lru_cache(maxsize=256)
def _table(
    board: Board, profiles: frozenset[MigProfile] | None, fixed: tuple[Placed, ...]
) -> _Table:
    offered = [known for known in board.mig if profiles is None or known.profile in profiles]
    places = [(Placed(known.profile, at), known) for known in offered for at in known.placements]
    places.sort(key=lambda pair: _by_place(pair[0]))
    options = tuple(
        _Option(1 << number, placed, _units(placed.placement), known.max_instances)
        for number, (placed, known) in enumerate(places)
    )
    start = _Partial(0, 0, (), frozenset())
    for placed in fixed:
        start = start.with_instance(placed, _units(placed.placement))
    index = {option.placed: number for number, option in enumerate(options)}
    empty = _Table(options, index, start, board.mig_compute_slices, (), ())
    found = sorted(_extensions(empty, 0, start, 0), key=lambda pair: (pair[0].bit_count(), pair))
    reached, weights = tuple(state for state, _ in found), tuple(weight for _, weight in found)
    return _Table(options, index, start, board.mig_compute_slices, reached, weights)


def _extensions(
    table: _Table, first: int, partial: _Partial, state: int
) -> Iterator[tuple[int, int]]:
    yield state, partial.slices
    for number in range(first, len(table.options)):
        option = table.options[number]
        if _joins(option, partial, table):
            grown = partial.with_instance(option.placed, option.units)
            yield from _extensions(table, number + 1, grown, state | option.bit)


def _completions(table: _Table, missing: Sequence[MigProfile]) -> Iterator[int]:
    """Every way to add all missing instances; equal ones in one order only."""
    wanted = Counter(missing)
    for state in table.states:
        if state.bit_count() == len(missing) and wanted == _profiles(table, state):
            yield state


def _wanted_after(table: _Table, placed: Placed, demand: Mapping[MigProfile, int]) -> int:
    """How much of what is wanted can still come beside an instance."""
    bit = table.options[table.index[placed]].bit
    return sum(
        demand.get(option.placed.profile, 0)
        for state in table.states
        if state & bit
        for option in table.chosen(state & ~bit)
    )


def _profiles(table: _Table, state: int) -> Counter[MigProfile]:
    return Counter(option.placed.profile for option in table.chosen(state))


def _refusal(
    board: Board, missing: Counter[MigProfile], fixed: tuple[Placed, ...], table: _Table
) -> LayoutError:
    kept = Counter(placed.profile for placed in fixed)
    total = missing + kept
    nearest = max(
        (state for state in table.states if _profiles(table, state) <= missing),
        key=lambda state: (
            sum(option.placed.profile.gpu_slices for option in table.chosen(state)),
            state.bit_count(),
            -state,
        ),
    )
    fitting = kept + _profiles(table, nearest)
    return LayoutError(
        f"board {board.name}",
        f"cannot hold {sizes_text(total)}: {why_not(board, total, fixed)}",
        fix="take fewer or smaller MIG profiles" if fitting else "wait until instances are free",
        example=sizes_text(fitting) if fitting else "",
    )


def _units(placement: Placement) -> int:
    return ((1 << placement.size) - 1) << placement.start


def _bigness(profile: MigProfile) -> tuple[int, int, str]:
    return (-profile.gpu_slices, -profile.memory_gb, profile.attributes)


def _by_place(placed: Placed) -> tuple[int, tuple[int, int, str], int]:
    return (-placed.placement.size, _bigness(placed.profile), placed.placement.start)


def _chosen(profiles: Iterable[MigProfile] | None) -> frozenset[MigProfile] | None:
    return None if profiles is None else frozenset(profiles)
