"""Choices: the smallest share class that serves one container's ask in one mode."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from sharing.api.profile import SharingProfile
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.quantity import format_mib
from sharing.shareclass import ShareClass
from sharing.size import OneOf, Size, size_key
from webhook.ask import Form, Want
from webhook.offers import Candidate, Offers, assumed, possible
from webhook.permission import keeps_whole


class Field(NamedTuple):
    """What a choice is made from."""

    profile: SharingProfile
    offers: Offers | None
    """None: whatever the profile allows, whether nodes have it or not."""

    def candidates(self, mode: Mode) -> tuple[Candidate, ...]:
        """The classes of one mode that the profile allows, smallest first."""
        if self.offers is None:
            return possible(self.profile, mode)
        return tuple(
            candidate
            for candidate in self.offers.of(mode, self.profile.spec.pool)
            if self._allows(candidate.share_class)
        )

    def _allows(self, share_class: ShareClass) -> bool:
        profile, size, instance = self.profile, share_class.size, share_class.instance
        if isinstance(size, OneOf) and profile.sizes is not None and size not in profile.sizes:
            return False
        migs = profile.mig_profiles
        return instance is None or migs is None or instance in migs


class Solved(NamedTuple):
    """The share that serves a want, with what follows from it."""

    share: Candidate
    number: int
    """Above 1 for whole GPUs only."""
    milli: int
    """Worth of all of it in thousandths of a GPU."""
    least_memory_mib: int | None
    """Only nodes whose shares of the class have this much are eligible."""
    reason: str


@lru_cache(maxsize=512)
def solve(want: Want, mode: Mode, field: Field) -> Solved | None:
    """The smallest class that serves a want in a mode; None if there is none.

    Remembered: a cluster's pods ask for the same few things.
    """
    share = pick(want, mode, field)
    return None if share is None else solved(want, share, mode, field)


@lru_cache(maxsize=512)
def options(want: Want, mode: Mode, field: Field) -> tuple[Solved, ...]:
    """All classes that serve a want in a mode, smallest first."""
    smallest = solve(want, mode, field)
    if smallest is None:
        return ()
    if want.named is not None or want.number > 1 or is_elsewhere(want, field.profile):
        return (smallest,)
    return tuple(solved(want, c, mode, field) for c in _suitable(want, mode, field))


def solved(want: Want, share: Candidate, mode: Mode, field: Field) -> Solved:
    """A class as the answer to a want."""
    profile = field.profile
    whole = share.share_class.mode is Mode.EXCLUSIVE
    number = want.number if whole else 1
    by_name = mode is Mode.MIG and want.by_default and profile.default_mig_profile
    memory_mib = memory_of(want, profile)
    if memory_mib is not None and (by_name or gives_whole(want, profile)):
        memory_mib = None
    return Solved(
        share=share,
        number=number,
        milli=share.milli * number,
        least_memory_mib=memory_mib if whole or memory_mib is None else memory_mib * want.number,
        reason=_because(want, share, mode, profile) + _why_not_before(want, mode, field),
    )


def _why_not_before(want: Want, mode: Mode, field: Field) -> str:
    """Why it is not the mode that the profile prefers."""
    profile = field.profile
    first = profile.modes[0]
    if want.mode is not None or mode is first or mode not in profile.modes:
        return ""
    if gives_whole(want, profile):
        return ""
    if field.offers is None:
        return f"; only nodes can tell about {first}"
    return f"; no ready node serves it as {first}"


def _because(want: Want, share: Candidate, mode: Mode, profile: SharingProfile) -> str:
    if want.named is not None or want.mig_profile is not None:
        return "asked for by name" if want.number == 1 else f"{want.number} shares as one"
    if mode is Mode.EXCLUSIVE and want.form is Form.WHOLE:
        return f"whole GPU by profile {profile.name}"
    if _mig_of(want, mode, profile) is not None:
        return f"default of profile {profile.name}"
    times = f"{want.number} times " if want.number > 1 else ""
    memory_mib = memory_of(want, profile)
    if memory_mib is not None:
        also = f" and {want.fraction} of a GPU" if want.fraction else ""
        return f"smallest that has {times}{format_mib(memory_mib)}{also}"
    fraction = fraction_of(want, profile) or Fraction(1)
    exact = share.part == fraction * want.number
    if want.by_default:
        named = f"default {profile.default_size} of profile {profile.name}"
        return named if exact else f"{named}, rounded up"
    size, cut_from = share.share_class.size, share.share_class.cut_from
    larger = "a whole one" if size is None else f"{size} of {cut_from}" if cut_from else size
    rounded = "" if exact else f", rounded up to {larger}"
    return f"{times}{fraction} of a GPU{rounded}"


def pick(want: Want, mode: Mode, field: Field) -> Candidate | None:
    """The smallest class that serves an ask; None if there is none."""
    if is_elsewhere(want, field.profile):
        return assumed(ShareClass(mode=Mode.EXCLUSIVE))
    if gives_whole(want, field.profile):
        return next(iter(field.candidates(Mode.EXCLUSIVE)), None)
    if want.number > 1 and mode is not Mode.EXCLUSIVE:
        return _as_one(want, mode, field)
    if want.named is not None:
        offers = field.offers
        return assumed(want.named) if offers is None else offers.by_class.get(want.named)
    return next(iter(_suitable(want, mode, field)), None)


def gives_whole(want: Want, profile: SharingProfile) -> bool:
    """Whether whole GPUs are asked for and given, whatever the profile's size."""
    return keeps_whole(want, profile) or (want.form is Form.WHOLE and want.number > 1)


def is_elsewhere(want: Want, profile: SharingProfile) -> bool:
    """Whether nodes that we do not serve may have what is asked for; a pool's GPUs are ours."""
    return profile.spec.pool is None and gives_whole(want, profile)


def _as_one(want: Want, mode: Mode, field: Field) -> Candidate | None:
    """The smallest share that is N times as large as one that would serve the want once.

    Nobody needs to offer that one: two quarters are a half, where there are only halves too.
    """
    cut_from = None if want.named is None else want.named.cut_from
    listed = [c for c in field.candidates(mode) if c.share_class.cut_from == cut_from]
    known = {c.share_class.size: c for c in listed}
    fixed = _mig_of(want, mode, field.profile) if want.named is None else want.named.size
    sizes = {*known, *(c.share_class.size for c in possible(field.profile, mode))}
    units = sorted((size for size in sizes if size is not None), key=size_key)
    for unit in units if fixed is None else [fixed]:
        one = known.get(_multiple(unit, want.number))
        if one is not None and (fixed is not None or _has(one, want, field.profile)):
            return one
    return None


def _has(one: Candidate, want: Want, profile: SharingProfile) -> bool:
    """Whether a share has N times what is wanted."""
    memory_mib, part = memory_of(want, profile) or 0, fraction_of(want, profile) or 0
    enough = (one.memory_mib or 0) >= memory_mib * want.number
    return enough and one.part >= part * want.number


def _mig_of(want: Want, mode: Mode, profile: SharingProfile) -> MigProfile | None:
    """The MIG profile that an ask is for, by itself or by the profile's default."""
    by_default = want.by_default and mode is Mode.MIG
    return profile.default_mig_profile if by_default else want.mig_profile


def _suitable(want: Want, mode: Mode, field: Field) -> tuple[Candidate, ...]:
    """The classes that are large enough, smallest first."""
    profile, known = field.profile, field.candidates(mode)
    mig_profile = _mig_of(want, mode, profile)
    if mig_profile is not None:
        return tuple(c for c in known if c.share_class.size == mig_profile)
    memory_mib = memory_of(want, profile)
    if memory_mib is not None:
        part = want.fraction or 0
        return tuple(c for c in known if (c.memory_mib or 0) >= memory_mib and c.part >= part)
    fraction = fraction_of(want, profile) or Fraction(1)
    return tuple(c for c in known if c.part >= fraction)


def memory_of(want: Want, profile: SharingProfile) -> int | None:
    """The memory, in MiB, that an ask is for, by itself or by the profile's default."""
    return profile.default_memory_mib if want.by_default else want.memory_mib


def fraction_of(want: Want, profile: SharingProfile) -> Fraction | None:
    """The part of a GPU that an ask is for, by itself or by the profile's default."""
    if want.by_default and profile.default_memory_mib is None:
        return profile.default_size.fraction
    return want.fraction


_MOST_SLICES = 9
"""MIG profiles are spelled with one digit."""


def _multiple(size: Size | None, count: int) -> Size | None:
    """The size that is N times as large, if it can exist."""
    if isinstance(size, OneOf):
        return OneOf(size.parts // count) if size.parts % count == 0 else None
    if isinstance(size, MigProfile) and size.gpu_slices * count <= _MOST_SLICES:
        return MigProfile(
            gpu_slices=size.gpu_slices * count,
            memory_gb=size.memory_gb * count,
            attributes=size.attributes,
        )
    return None
