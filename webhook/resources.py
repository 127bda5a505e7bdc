"""The GPU resources that one container names.

Limits and requests are read as one: an extended resource must have the same amount in both, so
an amount in only one of them is meant for both (kubernetes#57170, HAMi#2532). Zero asks for
nothing (HAMi#2739).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from sharing.errors import InputError, ResourceNameError, shown
from sharing.names import GPU, MILLI_GPU
from sharing.quantity import parse_quantity
from sharing.shareclass import ShareClass, parse_resource_name
from webhook.container import Container, mapping
from webhook.errors import RequestError

_ORDINARY: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedResource:
    """One GPU resource and how much of it."""

    name: str
    text: str
    """The amount as written."""
    amount: Fraction
    """Above 0; whole but for a plain ``nvidia.com/gpu``."""
    share_class: ShareClass
    where: str
    """The field's path."""

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuResources:
    """All GPU resources of one container."""

    named: Mapping[str, NamedResource] = field(default_factory=dict)
    """By name; amounts of zero left out."""

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


def gpu_keys(container: Mapping[str, Any]) -> list[str]:
    """The GPU resource names in a container's limits and requests, each once, zeros included."""
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return []
    found: list[str] = []
    for part in (resources.get("limits"), resources.get("requests")):
        if isinstance(part, dict):
            for key in part:
                if key not in _ORDINARY and is_gpu_key(key) and key not in found:
                    found.append(key)
    return found


def read_resources(container: Container) -> GpuResources:
    """What a container asks for by resource names.

    Raises:
        RequestError: A name is malformed, or an amount is; or limits and requests differ.
    """
    keys = gpu_keys(container.raw)
    if not keys:
        return NO_RESOURCES
    resources = mapping(container.raw, "resources")
    limits, requests = mapping(resources, "limits"), mapping(resources, "requests")
    named = {}
    for key in keys:
        if key != MILLI_GPU:
            place = "limits" if key in limits else "requests"
            where = f"{container.field}.resources.{place}[{key}]"
            found = read_resource(key, (limits if key in limits else requests)[key], where)
            if key in limits and key in requests:
                _check_same(key, limits[key], requests[key], container)
            if found is not None:
                named[key] = found
    return GpuResources(named=named)


def read_resource(name: str, value: object, where: str) -> NamedResource | None:
    """One GPU resource; None for an amount of zero.

    Raises:
        RequestError: The name or the amount is malformed.
    """
    amount = _amount(name, value, where)
    try:
        share_class = class_named(name)
    except ResourceNameError as error:
        raise RequestError(
            where,
            error.wrong,
            expected=error.expected,
            fix="correct the name",
            example=error.example + ": 1",
        ) from error
    if amount == 0 or share_class is None:
        return None
    if amount.denominator != 1 and (name != GPU or amount > 1):
        whole = "a whole number" if name != GPU else "a whole number, or a fraction below 1"
        raise RequestError(
            where,
            f"{shown(value)} is not whole",
            expected=whole,
            fix="ask for a part of one GPU by nvidia.com/gpu",
            example="nvidia.com/gpu: 250m",
        )
    text = value if isinstance(value, str) else str(value)
    return NamedResource(name=name, text=text, amount=amount, share_class=share_class, where=where)


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


def _amount(name: str, value: object, where: str) -> Fraction:
    example = "nvidia.com/gpu: 1, or nvidia.com/gpu: 250m" if name == GPU else f"{name}: 1"
    try:
        amount = amount_of(value)
    except InputError as error:
        raise RequestError(
            where, error.wrong, expected=error.expected, fix="correct it", example=example
        ) from error
    if amount < 0:
        raise RequestError(
            where, f"{shown(value)} is negative", expected="0 or more", example=example
        )
    return amount


def _check_same(key: str, limit: object, request: object, container: Container) -> None:
    if limit == request or _amount(key, limit, container.field) == _amount(
        key, request, f"{container.field}.resources.requests[{key}]"
    ):
        return
    raise RequestError(
        f"{container.field}.resources.requests[{key}]",
        f"{shown(request)} differs from limits, where it is {shown(limit)}",
        expected="the same amount in both, as for every extended resource",
        fix="leave it out of requests",
        example=f"limits: {{{key}: 1}}",
    )
