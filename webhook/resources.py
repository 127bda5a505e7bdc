"""The GPU resources that one container names.

Limits and requests are read as one: an extended resource must have the same amount in both, so
an amount in only one of them is meant for both (kubernetes#57170, HAMi#2532). Zero asks for
nothing (HAMi#2739).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from sharing.errors import InputError, ResourceNameError, shown
from sharing.names import GPU, MILLI_GPU
from sharing.quantity import parse_quantity
from sharing.shareclass import ShareClass, parse_resource_name
from webhook.container import Container, mapping
from webhook.errors import RequestError
from webhook.foreign import OURS_ALONE, Vocabulary
from webhook.nearmiss import Near, near_resource, of_another

_MOST_STRANGE: Final = 32
_MOST_NAMED: Final = 32
"""GPU resources that one container may name; each of them is read, and few are meant."""
_ORDINARY: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


class NamedResource(NamedTuple):
    """One GPU resource and how much of it."""

    name: str
    text: str
    """The amount as written."""
    amount: Fraction
    """Above 0; whole but for a plain ``nvidia.com/gpu``."""
    share_class: ShareClass
    field: str
    """Path of the container, or of what else names it."""
    place: str
    """``limits`` or ``requests``."""

    @property
    def where(self) -> str:
        """The field's path; only errors need it."""
        return _path(self.field, self.place, self.name)

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class ForeignAmount(NamedTuple):
    """How much of another system's resource a container names."""

    name: str
    text: str
    """The amount as written."""
    amount: Fraction
    """Whole, 0 or more."""
    field: str
    place: str

    @property
    def where(self) -> str:
        """The field's path; only errors need it."""
        return _path(self.field, self.place, self.name)

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class GpuResources(NamedTuple):
    """All GPU resources of one container."""

    named: Mapping[str, NamedResource] = {}
    """By name; amounts of zero left out."""
    counts: bool = False
    """Whether it names the accounting resource, which only we write."""
    foreign: Mapping[str, ForeignAmount] = {}
    """Other systems' resources by name, zeros included."""
    none: bool = False
    """Whether it asks for no GPU outright: ``nvidia.com/gpu: 0``."""
    near: tuple[Near, ...] = ()
    """Resources that are not read, and look as if their author meant one that is."""

    @property
    def plain(self) -> NamedResource | None:
        """``nvidia.com/gpu``, if it is asked for."""
        return self.named.get(GPU)

    @property
    def shares(self) -> list[NamedResource]:
        """Share resources that are asked for by name, in order of names."""
        return [self.named[name] for name in sorted(self.named) if name != GPU]


NO_RESOURCES: Final = GpuResources()


def is_gpu_key(key: object) -> bool:
    """Whether a resource name is one that we read or write."""
    return isinstance(key, str) and (
        key == GPU or key.startswith(("gpu.sharing/", "nvidia.com/mig-")) or ".gpu.sharing/" in key
    )


def shares_named(container: Container) -> Iterator[str]:
    """Names under our own prefix that a container asks for, whatever they mean."""
    resources = mapping(container.raw, "resources")
    for part in ("limits", "requests"):
        for key, amount in mapping(resources, part).items():
            if amount != "0" and is_gpu_key(key) and not key.startswith("nvidia.com/"):
                yield key


def _gpu_keys(
    container: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[list[str], tuple[Near, ...]]:
    """The GPU resource names in a container's limits and requests, each once; and near misses."""
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return [], ()
    found: dict[str, None] = {}
    others: dict[str, None] = {}
    for part in (resources.get("limits"), resources.get("requests")):
        if isinstance(part, dict):
            for key in part:
                if key not in _ORDINARY and key not in found:
                    is_read = is_gpu_key(key) or (vocabulary.systems and vocabulary.reads(key))
                    (found if is_read else others)[key] = None
    # A container names few resources; more are no slip of a person.
    near = (near_resource(key, vocabulary) for key in islice(others, _MOST_STRANGE))
    return [*found], tuple(one for one in near if one is not None)


def read_resources(container: Container, vocabulary: Vocabulary = OURS_ALONE) -> GpuResources:
    """What a container asks for by resource names.

    Args:
        container: The container.
        vocabulary: Other systems' words that are understood.

    Raises:
        RequestError: A name is malformed, or an amount is; or limits and requests differ.
    """
    keys, near = _gpu_keys(container.raw, vocabulary)
    if not keys:
        return GpuResources(near=near) if near else NO_RESOURCES
    if len(keys) > _MOST_NAMED:
        raise RequestError(
            f"{container.field}.resources",
            f"{len(keys)} GPU resources are named",
            expected="one",
            fix="keep the one that is meant",
            example="nvidia.com/gpu: 1",
        )
    resources = mapping(container.raw, "resources")
    limits, requests = mapping(resources, "limits"), mapping(resources, "requests")
    named, foreign, none = {}, {}, False
    for key in keys:
        if key == MILLI_GPU:
            continue
        place, holder = ("limits", limits) if key in limits else ("requests", requests)
        if holder is limits and key in requests and limits[key] != requests[key]:
            _check_same(key, limits[key], requests[key], container)
        if vocabulary.systems and vocabulary.reads(key):
            foreign[key] = read_foreign(key, holder[key], container.field, place)
            continue
        found = read_resource(key, holder[key], container.field, place)
        if found is not None:
            named[key] = found
        none = none or (found is None and key == GPU)
    return GpuResources(named, MILLI_GPU in keys, foreign, none, near)


def read_foreign(name: str, value: object, field: str, place: str) -> ForeignAmount:
    """One resource of another system.

    Args:
        name: The resource name.
        value: The amount as it stands in the pod.
        field: Path of the container, for errors.
        place: ``limits`` or ``requests``.

    Raises:
        RequestError: The amount is malformed.
    """
    where = _path(field, place, name)
    try:
        amount = amount_of(value)
    except InputError as error:
        raise _malformed(name, where, error) from error
    if amount < 0 or amount.denominator != 1:
        raise _uncountable(name, value, where)
    text = value if isinstance(value, str) else str(value)
    return ForeignAmount(name, text, amount, field, place)


def read_resource(name: str, value: object, field: str, place: str) -> NamedResource | None:
    """One GPU resource; None for an amount of zero.

    Args:
        name: The resource name.
        value: The amount as it stands in the pod.
        field: Path of the container, for errors.
        place: ``limits`` or ``requests``.

    Raises:
        RequestError: The name or the amount is malformed.
    """
    try:
        share_class = class_named(name)
        amount = amount_of(value)
    except InputError as error:
        raise _malformed(name, _path(field, place, name), error) from error
    if amount == 0 or share_class is None:
        return None
    if amount < 0 or (amount.denominator != 1 and (name != GPU or amount > 1)):
        raise _uncountable(name, value, _path(field, place, name))
    text = value if isinstance(value, str) else str(value)
    return NamedResource(
        name=name, text=text, amount=amount, share_class=share_class, field=field, place=place
    )


def _path(field: str, place: str, name: str) -> str:
    return f"{field}.resources.{place}[{name}]"


def _malformed(name: str, where: str, error: InputError) -> RequestError:
    is_name = isinstance(error, ResourceNameError)
    if is_name and (other := of_another(name)) is not None:
        return RequestError(where, other.wrong, example="nvidia.com/gpu: 1")
    return RequestError(
        where,
        error.wrong,
        expected=error.expected,
        fix="correct the name" if is_name else "correct it",
        example=f"{error.example}: 1" if is_name else _example(name),
    )


def _uncountable(name: str, value: object, where: str) -> RequestError:
    whole = "a whole number, or a fraction below 1" if name == GPU else "a whole number"
    negative = amount_of(value) < 0
    return RequestError(
        where,
        f"{shown(value)} is {'negative' if negative else 'not whole'}",
        expected="0 or more" if negative else whole,
        fix="" if negative else "ask for a part of one GPU by nvidia.com/gpu",
        example=_example(name),
    )


def _example(name: str) -> str:
    return "nvidia.com/gpu: 1, or nvidia.com/gpu: 250m" if name == GPU else f"{name}: 1"


@lru_cache(maxsize=1024)
def class_named(name: str) -> ShareClass | None:
    """As ``parse_resource_name``, remembered: few names exist and every review reads some."""
    return parse_resource_name(name)


def amount_of(value: object) -> Fraction:
    """A quantity as JSON and YAML deliver it; YAML's ``0.25`` is a float.

    Raises:
        InputError: It is no quantity.
    """
    if isinstance(value, str | int | float):
        return _parsed(value)
    return parse_quantity(value)


@lru_cache(maxsize=1024, typed=True)
def _parsed(value: str | float) -> Fraction:
    return parse_quantity(repr(value) if isinstance(value, float) else value)


def _check_same(key: str, limit: object, request: object, container: Container) -> None:
    where = _path(container.field, "requests", key)
    try:
        same = amount_of(limit) == amount_of(request)
    except InputError as error:
        raise _malformed(key, where, error) from error
    if not same:
        raise RequestError(
            where,
            f"{shown(request)} differs from limits, where it is {shown(limit)}",
            expected="the same amount in both, as for every extended resource",
            fix="leave it out of requests",
            example=f"limits: {{{key}: 1}}",
        )
