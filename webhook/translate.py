"""Translation: another system's request, read as an ask of ours.

What it means is kept as far as shares can: amounts become the smallest share that has them, cores
count as a part of the GPU, several devices become one share that is as large as all of them. What
cannot be kept is said, key by key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharing.api.choices import System
from sharing.errors import InputError, shown
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.names import GPU
from sharing.quantity import MIB
from webhook.ask import Ask, ForeignAsk, Form, Want
from webhook.container import Container, mapping
from webhook.errors import RequestError
from webhook.foreign import DROPPED_ANNOTATIONS, WORDS, Vocabulary, Words
from webhook.kai import asked_in_annotations, lost_in_annotations, wrong_value
from webhook.resources import ForeignAmount, GpuResources

_OWN_UNIT: Final = re.compile(r".*([KMGTPE]i|[MGTPE])", re.ASCII)
"""An amount of bytes. A ``k`` is none: so the API server writes thousands, 16k for 16000."""
_HUNDRED: Final = 100
_DROPPED: Final = frozenset(name for words in WORDS.values() for name in words.dropped)


class Lost(NamedTuple):
    """Something that is not carried over."""

    key: str
    instead: str


Wanted = Sequence[tuple[Container, GpuResources, bool]]
"""Containers, what they name, and whether an earlier pass of ours explains it."""


def asked_elsewhere(
    wanted: Wanted, annotations: Mapping[str, Any], vocabulary: Vocabulary
) -> dict[str, ForeignAsk]:
    """What containers ask for in other systems' words, by path.

    Args:
        wanted: Each container with its resources, and whether an earlier pass of ours explains it.
        annotations: The pod's.
        vocabulary: The words.

    Raises:
        RequestError: A value means nothing, or a container asks for two things.
    """
    if not vocabulary.systems:
        return {}
    by_name = {}
    if System.KAI in vocabulary.systems:
        bare = (c.name for c, found, was in wanted if was and not (found.named or found.foreign))
        containers = [container for container, _, _ in wanted]
        by_name = asked_in_annotations(annotations, containers, next(bare, ""))
    foreign = {}
    for container, resources, _ in wanted:
        try:
            asks = _in_resources(resources, vocabulary)
        except RequestError as error:
            raise error.about(container.label) from error
        if container.name in by_name:
            asks.append(by_name[container.name])
        if len(asks) > 1:
            raise RequestError(
                f"{container.label}: {asks[1].source.where}",
                f"{asks[1].text} stands beside {asks[0].text}",
                expected="one share for a container",
                fix="keep the one that is meant",
                example=asks[0].text,
            )
        if asks:
            foreign[container.path] = asks[0]
    return foreign


def lost_of(
    pod: Mapping[str, Any],
    wanted: Wanted,
    asks: Iterable[Ask],
    foreign: Mapping[str, ForeignAsk],
    *,
    vocabulary: Vocabulary,
) -> tuple[Lost, ...]:
    """What of other systems' words is not carried over, each key once."""
    if not vocabulary.systems:
        return ()
    lost = _lost_keys(pod, [resources for _, resources, _ in wanted], vocabulary.systems)
    named = {container.path: resources.foreign for container, resources, _ in wanted}
    for ask in asks:
        other = foreign.get(ask.container.path)
        if other is None:
            left = named[ask.container.path].values()
            instead = f"{ask.text} says the size"
            lost += [Lost(str(o), instead) for o in left if o.amount and o.name not in _DROPPED]
        elif ask.source is not other.source:
            lost.append(Lost(str(other.source), f"{ask.text} says the size"))
        elif ask.want.number > 1:
            lost.append(
                Lost(f"a count of {ask.want.number}", "a container gets one share as large")
            )
    return tuple(lost)


def _in_resources(resources: GpuResources, vocabulary: Vocabulary) -> list[ForeignAsk]:
    """What a container asks for by other systems' resources; more than one is too much.

    Raises:
        RequestError: An amount is out of range.
    """
    asks = []
    for name, amount in resources.foreign.items():
        sized = vocabulary.slice(name)
        if sized is not None and amount.amount:
            if sized.mig:
                want = _mig(amount, sized.mig)
            else:
                want = Want(form=Form.MEMORY, memory_mib=sized.memory_mib)
            asks.append(_ask(want, int(amount.amount), [amount], counted=False))
    for system in vocabulary.systems:
        found = _by_words(resources, WORDS[system], system)
        if found is not None:
            asks.append(found)
    return asks


def _by_words(resources: GpuResources, words: Words, system: System) -> ForeignAsk | None:
    amounts = resources.foreign
    memory, percent = amounts.get(words.memory), amounts.get(words.percent)
    cores, count = amounts.get(words.cores), amounts.get(words.devices)
    plain = resources.plain if words.devices == GPU else None
    if words.devices == GPU and (
        resources.none if plain is None else plain.amount.denominator != 1
    ):
        return None
    sizes = [one for one in (memory, percent, cores) if one is not None and one.amount]
    counted = count is not None and count.amount > 0
    if (count is not None and not counted) or not (sizes or counted):
        return None
    number = int(count.amount) if count else int(plain.amount) if plain else 1
    for one in (percent, cores):
        if one is not None and one.amount > _HUNDRED:
            raise _too_much(one)
    parts = [one.amount / _HUNDRED for one in (percent, cores) if one is not None and one.amount]
    if memory is not None and memory.amount:
        want = Want(form=Form.MEMORY, memory_mib=_mib(memory, words.memory_unit))
        want = want._replace(fraction=max(parts) if parts else None)
    elif parts:
        want = Want(form=Form.FRACTION, fraction=max(parts))
    else:
        shared = system is System.NVIDIA_SHARED
        want = Want(form=Form.DEFAULT if shared else Form.WHOLE)
    written = [one for one in (count, *sizes) if one is not None]
    found = _ask(want, number, written, counted=plain is not None)
    return found if plain is None else found._replace(text=f"{plain} with {found.text}")


def _ask(want: Want, number: int, written: Sequence[ForeignAmount], *, counted: bool) -> ForeignAsk:
    return ForeignAsk(
        want=want._replace(number=number),
        text=" with ".join(map(str, written)),
        source=written[-1],
        counted=counted,
    )


def _mib(amount: ForeignAmount, unit: int) -> int:
    """Memory in MiB: a bare number counts units, ``16Gi`` and ``10G`` say their own."""
    bytes_each = 1 if _OWN_UNIT.fullmatch(amount.text) else unit
    return -(-int(amount.amount) * bytes_each // MIB)


def _mig(amount: ForeignAmount, token: str) -> Want:
    try:
        profile = MigProfile.from_token(token)
    except InputError as error:
        raise wrong_value(amount.where, error.wrong, error.expected, "1g.10gb") from error
    return Want(form=Form.MIG_PROFILE, mode=Mode.MIG, mig_profile=profile)


def _lost_keys(
    pod: Mapping[str, Any], resources: Iterable[GpuResources], systems: Iterable[System]
) -> list[Lost]:
    metadata = mapping(pod, "metadata")
    annotations, labels = mapping(metadata, "annotations"), mapping(metadata, "labels")
    lost = []
    for system in systems:
        dropped = DROPPED_ANNOTATIONS.get(system, {})
        lost += [Lost(key, instead) for key, instead in dropped.items() if key in annotations]
        if system is System.KAI:
            lost += [Lost(*pair) for pair in lost_in_annotations(annotations, labels)]
    named = {name for one in resources for name in one.foreign if name in _DROPPED}
    return lost + [Lost(name, "shares have no priorities") for name in sorted(named)]


def _too_much(amount: ForeignAmount) -> RequestError:
    return wrong_value(
        amount.where,
        f"{shown(amount.text)} is more than 100 hundredths of a GPU",
        "0 to 100",
        f"{amount.name}: 50",
    )
