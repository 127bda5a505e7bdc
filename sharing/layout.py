"""Layouts: what one GPU is cut into, and which GPUs of a node get which.

A layout belongs to a GPU, not to a node. An ordered list of entries, each a selector and a
layout, says what the GPUs of a node become; the first entry that selects a GPU wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from sharing.errors import InputError, LayoutError, shown
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass, check_pool
from sharing.size import OneOf, Size, size_key
from sharing.timeslice import TimeSlice

_RANGE: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", re.ASCII)
PART_MODES: Final = frozenset({Mode.MPS, Mode.TIME_SLICING})
"""Modes whose shares are parts of a GPU, or of a MIG instance."""
_MOST_SHARES: Final = 48
"""Shares on one GPU under MPS; the server takes 48 clients (see sharing.size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLayout:
    """What one GPU is cut into.

    Raises:
        LayoutError: The sizes do not fit the mode, or are more than a whole GPU.
    """

    mode: Mode
    sizes: tuple[tuple[Size, int], ...] = ()
    """(size, how many), biggest first; empty for an exclusive GPU."""
    pool: str | None = None
    time_slice: TimeSlice | None = None
    """How long each turn lasts; as the driver has it if None."""
    cuts: tuple[tuple[MigProfile, GpuLayout], ...] = ()
    """What each MIG instance of a profile is cut into further, biggest profile first; instances of
    other profiles are shares as they are."""

    def __post_init__(self) -> None:
        merged: dict[Size, int] = {}
        for size, count in self.sizes:
            if count < 1:
                raise self._error(f"{count} shares of size {size}", "a count of at least 1")
            merged[size] = merged.get(size, 0) + count
        ordered = sorted(merged.items(), key=lambda item: size_key(item[0]), reverse=True)
        object.__setattr__(self, "sizes", tuple(ordered))
        if self.pool is not None:
            check_pool(self.pool)
        if self.time_slice is not None and self.mode is not Mode.TIME_SLICING:
            raise LayoutError(
                f"layout of mode {self.mode}",
                f"time slice {self.time_slice} means nothing, since nobody takes turns",
                fix="remove it, or use mode time-slicing",
                example="{gpus: rest, mode: time-slicing, sizes: {1of4: 4}, timeSlice: short}",
            )
        match self.mode:
            case Mode.EXCLUSIVE:
                self._check_exclusive()
            case Mode.MPS | Mode.TIME_SLICING:
                self._check_parts()
            case Mode.MIG:
                self._check_mig()
        self._check_cuts()

    def _check_exclusive(self) -> None:
        if self.sizes:
            raise self._error("an exclusive GPU has no sizes", "no sizes")

    def _check_parts(self) -> None:
        if not self.sizes or not all(isinstance(size, OneOf) for size, _ in self.sizes):
            raise self._error("its sizes are not parts of a GPU", "sizes like {1of2: 1, 1of4: 2}")
        whole = sum(
            (size.fraction * count for size, count in self.sizes if isinstance(size, OneOf)),
            Fraction(0),
        )
        if whole > 1:
            raise self._error(f"its sizes sum to {whole} of a GPU", "a sum of at most 1")
        if sum(count for _, count in self.sizes) > _MOST_SHARES:
            raise self._error("too many shares", f"at most {_MOST_SHARES} shares on one GPU")

    def _check_mig(self) -> None:
        for size, _ in self.sizes:
            if not isinstance(size, MigProfile):
                raise self._error(f"size {size} is no MIG profile", "sizes like {1g.10gb: 4}")
            if size.is_split:
                raise self._error(
                    f"MIG profile {size} splits its instance", "whole instances like 3g.40gb"
                )

    def _check_cuts(self) -> None:
        """What each instance is cut into is a layout of its own, of parts and nothing else."""
        ordered = sorted(self.cuts, key=lambda cut: size_key(cut[0]), reverse=True)
        object.__setattr__(self, "cuts", tuple(ordered))
        named = [profile for profile, _ in self.cuts]
        made = {size for size, _ in self.sizes}
        for profile, cut in self.cuts:
            if self.mode is not Mode.MIG or profile not in made or named.count(profile) > 1:
                raise _no_cut(
                    f"cuts MIG profile {profile}, which is not among its sizes"
                    if profile not in made
                    else f"cuts MIG profile {profile} twice"
                )
            if cut.mode not in PART_MODES:
                raise _no_cut(f"mode {cut.mode} cannot be cut from MIG instances")
            if cut.pool is not None or cut.time_slice is not None or cut.cuts:
                raise _no_cut("a cut has a mode and sizes, nothing else")

    def _error(self, wrong: str, expected: str) -> LayoutError:
        return LayoutError(
            f"layout of mode {self.mode}",
            wrong,
            expected=expected,
            example="{gpus: rest, mode: mps, sizes: {1of2: 1, 1of4: 2}}",
        )

    @property
    def shares(self) -> tuple[tuple[ShareClass, int], ...]:
        """The share classes that the layout yields, with how many of each; biggest first."""
        if self.mode is Mode.EXCLUSIVE:
            return ((ShareClass(mode=self.mode, pool=self.pool), 1),)
        return tuple(
            (share_class, count * number)
            for size, count in self.sizes
            for share_class, number in self.of_each(size)
        )

    def of_each(self, size: Size) -> Iterator[tuple[ShareClass, int]]:
        """The share classes that one unit of a size yields, with how many of each."""
        cut = None if isinstance(size, OneOf) else self.cut_of(size)
        if cut is None or isinstance(size, OneOf):
            yield ShareClass(mode=self.mode, size=size, pool=self.pool), 1
            return
        for part, number in cut.sizes:
            share = ShareClass(mode=cut.mode, size=part, pool=self.pool, cut_from=size)
            yield share, number

    def cut_of(self, profile: MigProfile) -> GpuLayout | None:
        """What an instance of a MIG profile is cut into; None where it is a share as it is."""
        return next((cut for cut_from, cut in self.cuts if cut_from == profile), None)

    def mps_of(self, profile: MigProfile) -> GpuLayout | None:
        """The same, where it needs an MPS daemon."""
        cut = self.cut_of(profile)
        return cut if cut is not None and cut.mode is Mode.MPS else None

    @property
    def mig_profiles(self) -> tuple[MigProfile, ...]:
        """The MIG profiles one by one, biggest first; empty for other modes."""
        return tuple(
            size for size, count in self.sizes for _ in range(count) if isinstance(size, MigProfile)
        )

    def __str__(self) -> str:
        cuts = {profile: f" ({cut})" for profile, cut in self.cuts}
        sizes = " ".join(
            f"{count}x {size}{'' if isinstance(size, OneOf) else cuts.get(size, '')}"
            for size, count in self.sizes
        )
        pool = f" for pool {self.pool}" if self.pool else ""
        turns = f" in {self.time_slice} turns" if self.time_slice else ""
        return f"{self.mode} {sizes}".strip() + turns + pool


def _no_cut(wrong: str) -> LayoutError:
    return LayoutError(
        "cut of MIG instances",
        wrong,
        expected="MIG profiles of the layout, each with mode mps or time-slicing and sizes",
        example="{mode: mig, sizes: {3g.40gb: 2}, cut: {3g.40gb: {mode: mps, sizes: {1of4: 4}}}}",
    )


EXCLUSIVE_LAYOUT: Final = GpuLayout(mode=Mode.EXCLUSIVE)
"""What a GPU of a managed node is when no entry selects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """What a selector may look at."""

    index: int
    uuid: str
    board: str
    """The catalogue's name, or NVML's product name for a board that it lacks."""


@dataclass(frozen=True, slots=True)
class GpuSelector:
    """Which GPUs of a node: ``0-1,4``, ``board:<name>``, ``uuid:<GPU-…>``, ``rest``, ``all``.

    Terms joined by commas select what any of them selects.

    Raises:
        InputError: The text does not follow the grammar.
    """

    text: str
    _terms: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        terms = tuple(term.strip() for term in self.text.split(","))
        for term in terms:
            if not self._is_term(term):
                raise InputError(
                    "gpus",
                    f"{shown(self.text)} selects no GPUs: {shown(term)} is not understood",
                    expected="indices, board:<name>, uuid:<GPU-…>, rest or all, joined by commas",
                    example="0-1,4",
                )
        object.__setattr__(self, "_terms", terms)

    @staticmethod
    def _is_term(term: str) -> bool:
        match = _RANGE.fullmatch(term)
        if match:
            return match[2] is None or int(match[1]) <= int(match[2])
        kind, colon, value = term.partition(":")
        return term in ("rest", "all") or bool(colon and value and kind in ("board", "uuid"))

    def selects(self, gpu: GpuIdentity) -> bool:
        """Whether any term selects a GPU that no earlier entry took."""
        return any(self._selects(term, gpu) for term in self._terms)

    @staticmethod
    def _selects(term: str, gpu: GpuIdentity) -> bool:
        match = _RANGE.fullmatch(term)
        if match:
            return int(match[1]) <= gpu.index <= int(match[2] or match[1])
        kind, _, value = term.partition(":")
        return term in ("rest", "all") or value == (gpu.board if kind == "board" else gpu.uuid)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEntry:
    """One line of a layout list: which GPUs, and what each of them becomes."""

    gpus: GpuSelector
    layout: GpuLayout


def assign(
    entries: Iterable[LayoutEntry], gpus: Sequence[GpuIdentity]
) -> tuple[tuple[GpuIdentity, GpuLayout], ...]:
    """What each GPU of a node becomes, in order of their indices; the first entry wins."""
    listed = tuple(entries)
    chosen = []
    for gpu in sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid)):
        layout = next((e.layout for e in listed if e.gpus.selects(gpu)), EXCLUSIVE_LAYOUT)
        chosen.append((gpu, layout))
    return tuple(chosen)
