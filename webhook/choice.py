"""Choices: the smallest share class that serves one container's ask in one mode."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from sharing.api.profile import SharingProfile
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import OneOf, Size
from webhook.ask import Ask, Form
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
            if self._allows(candidate.share_class.size)
        )

    def _allows(self, size: Size | None) -> bool:
        profile = self.profile
        if isinstance(size, OneOf):
            return profile.sizes is None or size in profile.sizes
        if isinstance(size, MigProfile):
            return profile.mig_profiles is None or size in profile.mig_profiles
        return True


def pick(ask: Ask, mode: Mode, field: Field) -> Candidate | None:
    """The smallest class that serves an ask; None if there is none."""
    if ask.named is not None:
        offers = field.offers
        one = assumed(ask.named) if offers is None else offers.by_class.get(ask.named)
    elif is_elsewhere(ask, field.profile):
        return assumed(ShareClass(mode=Mode.EXCLUSIVE, pool=field.profile.spec.pool))
    else:
        one = _smallest(ask, mode, field)
    if one is None or ask.count == 1 or one.share_class.mode is Mode.EXCLUSIVE:
        return one
    size = _multiple(one.share_class.size, ask.count)
    if size is None or one.share_class.cut_from is not None:
        return None
    return next((c for c in field.candidates(mode) if c.share_class.size == size), None)


def is_elsewhere(ask: Ask, profile: SharingProfile) -> bool:
    """Whether whole GPUs are asked for and given, which nodes that we do not serve may have too."""
    return keeps_whole(ask, profile) or (ask.form is Form.WHOLE and ask.count > 1)


def _smallest(ask: Ask, mode: Mode, field: Field) -> Candidate | None:
    profile, known = field.profile, field.candidates(mode)
    mig_profile = ask.mig_profile
    if ask.form is Form.WHOLE and mode is Mode.MIG:
        mig_profile = profile.default_mig_profile
    if mig_profile is not None:
        return next((c for c in known if c.share_class.size == mig_profile), None)
    memory_mib = memory_of(ask, profile)
    if memory_mib is not None:
        return next((c for c in known if (c.memory_mib or 0) >= memory_mib), None)
    fraction = fraction_of(ask, profile) or Fraction(1)
    return next((c for c in known if c.part >= fraction), None)


def memory_of(ask: Ask, profile: SharingProfile) -> int | None:
    """The memory, in MiB, that an ask is for, by itself or by the profile's default."""
    return profile.default_memory_mib if ask.form is Form.WHOLE else ask.memory_mib


def fraction_of(ask: Ask, profile: SharingProfile) -> Fraction | None:
    """The part of a GPU that an ask is for, by itself or by the profile's default."""
    if ask.form is Form.WHOLE and profile.default_memory_mib is None:
        return profile.default_size.fraction
    return ask.fraction


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
