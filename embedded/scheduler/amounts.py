"""Resource lists as whole numbers, in the units that kube-scheduler counts in.

CPU is counted in millicores, everything else in its own unit; fractions are rounded up
(apimachinery ``Quantity.MilliValue`` and ``Quantity.Value``).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final, TypeAlias

from sharing.quantity import parse_quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"

Amounts: TypeAlias = Mapping[str, int]
"""Whole amounts by resource name."""


def amounts_of(listed: object) -> dict[str, int]:
    """The amounts of a resource list as it stands in a manifest; nothing for null.

    Raises:
        QuantityError: If a value is no quantity.
    """
    if not isinstance(listed, Mapping):
        return {}
    return {str(name): _amount(str(name), value) for name, value in listed.items()}


def _amount(name: str, value: Any) -> int:
    number = parse_quantity(value)
    return ceil(number * 1000) if name == CPU else ceil(number)


def added(*lists: Amounts) -> dict[str, int]:
    """The sum, resource by resource."""
    total: dict[str, int] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def widest(*lists: Amounts) -> dict[str, int]:
    """The largest amount of each resource."""
    most: dict[str, int] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            most[name] = max(most.get(name, 0), amount)
    return most


def difference(left: Amounts, right: Amounts) -> dict[str, int]:
    """``left`` without ``right``, resource by resource."""
    return {name: left.get(name, 0) - right.get(name, 0) for name in {**left, **right}}
