"""Permissions: what a profile lets a container ask for, before any node is looked at."""

from __future__ import annotations

from sharing.api.choices import MultiGpu, WholeGpu
from sharing.api.profile import SharingProfile
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import OneOf
from webhook import explain
from webhook.ask import Ask, Form, Want


def permitted_modes(ask: Ask, profile: SharingProfile) -> tuple[Mode, ...]:
    """The modes in which an ask may be served, in order of preference.

    Raises:
        PolicyError: The profile forbids the mode, size, MIG profile, pool or amount.
    """
    most_mib, asked_mib = profile.most_memory_mib, (ask.want.memory_mib or 0) * ask.want.number
    if most_mib is not None and asked_mib > most_mib:
        raise explain.too_much_memory(ask, most_mib, profile)
    if ask.want.mode is not None:
        _check_mode(ask, ask.want.mode, profile)
    if ask.want.named is not None:
        _check_named(ask, ask.want.named, profile)
    if ask.want.mig_profile is not None:
        _check_mig(ask, ask.want.mig_profile, profile)
    if ask.want.form is Form.WHOLE:
        return _modes_for_whole(ask, profile)
    return profile.modes if ask.want.mode is None else (ask.want.mode,)


def _modes_for_whole(ask: Ask, profile: SharingProfile) -> tuple[Mode, ...]:
    if ask.want.mode not in (None, Mode.EXCLUSIVE):
        if ask.want.number > 1:
            raise explain.many_gpus_denied(ask, profile)
        return (ask.want.mode,)
    if profile.spec.whole_gpu is WholeGpu.DENY and ask.want.mode is None:
        raise explain.whole_gpus_denied(ask, profile)
    if ask.want.number > 1:
        if profile.multi_gpu is MultiGpu.DENY:
            raise explain.many_gpus_denied(ask, profile)
        return (Mode.EXCLUSIVE,)
    if keeps_whole(ask.want, profile) or ask.want.mode is not None:
        return (Mode.EXCLUSIVE,)
    return profile.modes


def keeps_whole(want: Want, profile: SharingProfile) -> bool:
    """Whether a plain request stays what it is."""
    plain = want.form is Form.WHOLE and want.mode is None
    return plain and profile.spec.whole_gpu is WholeGpu.KEEP


def _check_mode(ask: Ask, mode: Mode, profile: SharingProfile) -> None:
    keeps = profile.spec.whole_gpu is WholeGpu.KEEP and mode is Mode.EXCLUSIVE
    if mode not in profile.permitted_modes and not keeps:
        raise explain.mode_denied(ask, mode, profile)
    if mode.isolation.rank < profile.spec.min_isolation.rank:
        raise explain.isolation_denied(ask, mode, profile)


def _check_named(ask: Ask, named: ShareClass, profile: SharingProfile) -> None:
    if named.pool != profile.spec.pool:
        raise explain.pool_denied(ask, named, profile)
    sizes = profile.sizes
    if isinstance(named.size, OneOf) and sizes is not None and named.size not in sizes:
        raise explain.size_denied(ask, sizes, "allowedSizes", profile)
    for mig in (named.size, named.cut_from):
        if isinstance(mig, MigProfile):
            _check_mig(ask, mig, profile)


def _check_mig(ask: Ask, mig_profile: MigProfile, profile: SharingProfile) -> None:
    if profile.mig_profiles is not None and mig_profile not in profile.mig_profiles:
        raise explain.size_denied(ask, sorted(profile.mig_profiles), "migProfiles", profile)
