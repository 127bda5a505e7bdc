"""Asks: what one container asks for, out of its resources and the keys that apply to it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.names import FRACTION, MEMORY, MIG_PROFILE, MODE
from sharing.shareclass import ShareClass
from webhook.container import Container
from webhook.errors import RequestError
from webhook.keys import SIZE_KEYS, Asked, Written
from webhook.resources import ForeignAmount, GpuResources, NamedResource


class Form(StrEnum):
    """How a share is asked for."""

    WHOLE = "whole"
    """Plain ``nvidia.com/gpu: N``."""
    FRACTION = "fraction"
    MEMORY = "memory"
    MIG_PROFILE = "mig-profile"
    NAMED = "named"
    """A share resource by its name."""
    DEFAULT = "default"
    """A share of the default size, in another system's words: ``nvidia.com/gpu.shared``."""


class Want(NamedTuple):
    """What is asked for, apart from who asks: equal wants get equal shares."""

    form: Form
    number: int = 1
    """How many shares of one class."""
    mode: Mode | None = None
    """Asked for by ``gpu.sharing/mode``, or implied by a MIG profile."""
    fraction: Fraction | None = None
    memory_mib: int | None = None
    mig_profile: MigProfile | None = None
    named: ShareClass | None = None

    @property
    def by_default(self) -> bool:
        """Whether the size is the profile's to say."""
        return self.form in (Form.WHOLE, Form.DEFAULT)


class Ask(NamedTuple):
    """What one container asks for. A tuple, as all values that each review makes."""

    container: Container
    want: Want
    text: str
    """As its author wrote it."""
    source: NamedResource | ForeignAmount | Written
    """The field that asks."""
    resources: Mapping[str, str]
    """The GPU resources as the author wrote them, for the record."""
    mode_key: Written | None = None
    """The key that asks for the mode."""
    beside: ShareClass | None = None
    """A share resource that stands beside the ask and must turn out to be the same."""

    @property
    def where(self) -> str:
        """Path of the field that asks; only errors need it."""
        return self.source.where


class ForeignAsk(NamedTuple):
    """What one container asks for in another system's words."""

    want: Want
    text: str
    source: ForeignAmount | Written
    counted: bool
    """Whether ``nvidia.com/gpu`` is part of it, and no ask of its own."""


class Wording(NamedTuple):
    """All that one container's ask is written in."""

    container: Container
    resources: GpuResources
    own: Asked
    """Its own keys."""
    mode: Written | None
    """The pod's mode key."""
    shared: Written | None
    """The pod's size key, where it goes to this container."""
    foreign: ForeignAsk | None = None
    """What it asks for in another system's words."""


def ask_of(wording: Wording) -> Ask | None:
    """What one container asks for; None if nothing.

    Raises:
        RequestError: It asks for two things at once.
    """
    resources, own = wording.resources, wording.own
    shares, plain = resources.shares, resources.plain
    if len(shares) > 1:
        raise _two(wording.container, shares[1], str(shares[0]))
    size = own_size(own)
    if size is None and not shares and (plain is None or plain.amount >= 1):
        size = wording.shared
    if size is not None:
        return _sized(wording, size)
    if wording.foreign is not None:
        return _foreign(wording, wording.foreign)
    if plain is not None:
        return _plain(wording, plain)
    return _named(wording, shares[0]) if shares else None


def own_size(asked: Asked) -> Written | None:
    """The key among these that asks for a share; there is at most one."""
    return next((asked[key] for key in SIZE_KEYS if key in asked), None)


def _sized(wording: Wording, size: Written) -> Ask:
    container, plain = wording.container, wording.resources.plain
    short = size.key.rpartition("/")[2]
    if plain is not None and plain.amount < 1 and plain.amount != size.value:
        raise _two(container, plain, str(size))
    mode = wording.own.get(MODE) or wording.mode
    if short == MIG_PROFILE:
        # A container's own MIG profile outranks the pod's mode, not its own.
        binding = mode if size is wording.shared else wording.own.get(MODE)
        if binding is not None and binding.value is not Mode.MIG:
            raise _contradiction(container, binding, str(size))
    count = max(1, int(plain.amount)) if plain else 1
    want = Want(
        form=Form(short),
        number=count,
        mode=Mode.MIG if short == MIG_PROFILE else _value(mode),
        fraction=size.value if short == FRACTION else None,
        memory_mib=size.value if short == MEMORY else None,
        mig_profile=size.value if short == MIG_PROFILE else None,
    )
    return Ask(
        container=container,
        want=want,
        text=f"{size}" if count == 1 else f"{plain} with {size}",
        source=size,
        mode_key=None if short == MIG_PROFILE else mode,
        beside=_beside(wording.resources),
        resources=_texts(wording.resources),
    )


def _foreign(wording: Wording, foreign: ForeignAsk) -> Ask:
    plain = wording.resources.plain
    if plain is not None and not foreign.counted:
        raise _two(wording.container, plain, foreign.text)
    mode = wording.own.get(MODE) or wording.mode
    fixed = foreign.want.mode
    if mode is not None and fixed is not None and mode.value is not fixed:
        raise _contradiction(wording.container, mode, foreign.text)
    return Ask(
        container=wording.container,
        want=foreign.want if fixed else foreign.want._replace(mode=_value(mode)),
        text=foreign.text,
        source=foreign.source,
        mode_key=None if fixed else mode,
        beside=_beside(wording.resources),
        resources=_texts(wording.resources),
    )


def _plain(wording: Wording, plain: NamedResource) -> Ask:
    whole = plain.amount >= 1
    mode = wording.own.get(MODE) or wording.mode
    want = Want(
        form=Form.WHOLE if whole else Form.FRACTION,
        number=int(plain.amount) if whole else 1,
        mode=_value(mode),
        fraction=None if whole else plain.amount,
    )
    return Ask(
        container=wording.container,
        want=want,
        text=str(plain),
        source=plain,
        mode_key=mode,
        beside=_beside(wording.resources),
        resources=_texts(wording.resources),
    )


def _named(wording: Wording, share: NamedResource) -> Ask:
    mode = wording.own.get(MODE)
    if mode is not None and mode.value is not share.share_class.mode:
        raise _contradiction(wording.container, mode, str(share))
    want = Want(
        form=Form.NAMED,
        number=int(share.amount),
        mode=share.share_class.mode,
        named=share.share_class,
    )
    return Ask(
        container=wording.container,
        want=want,
        text=str(share),
        source=share,
        resources=_texts(wording.resources),
    )


def _value(mode: Written | None) -> Mode | None:
    return None if mode is None else Mode(mode.value)


def _beside(resources: GpuResources) -> ShareClass | None:
    shares = resources.shares
    return shares[0].share_class if shares else None


def _texts(resources: GpuResources) -> Mapping[str, str]:
    """Amounts by name, in order of names: the order of a map says nothing."""
    named = {name: found.text for name, found in resources.named.items()}
    if not resources.foreign and len(named) < 2:  # noqa: PLR2004  none or one
        return named
    named |= {name: found.text for name, found in resources.foreign.items()}
    return {name: named[name] for name in sorted(named)}


def _two(container: Container, second: NamedResource, first: str) -> RequestError:
    return RequestError(
        f"{container.label}: {second.where}",
        f"{second} stands beside {first}",
        expected="one share for a container",
        fix="keep the one that is meant",
        example=first,
    )


def _contradiction(container: Container, mode: Written, other: str) -> RequestError:
    return RequestError(
        f"{container.label}: {mode.where}",
        f"{mode} contradicts {other}",
        expected="a mode that fits the share",
        fix="remove one of them",
        example=other,
    )
