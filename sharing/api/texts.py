"""Field types of the custom resources: texts that the domain's parsers have checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from sharing.errors import InputError, shown
from sharing.migprofile import MigProfile
from sharing.quantity import mib_of
from sharing.shareclass import check_pool
from sharing.size import parse_size


def _part(text: str) -> str:
    if isinstance(parse_size(text), MigProfile):
        raise InputError(
            "size",
            f"{shown(text)} is a MIG profile",
            expected="1ofN; MIG profiles go into migProfile and migProfiles",
            example="1of4",
        )
    return text


def _mig(text: str) -> str:
    if MigProfile.parse(text).is_split:
        raise InputError(
            "MIG profile",
            f"{shown(text)} splits its instance",
            expected="a MIG profile whose compute instance takes the whole GPU instance",
            example="3g.40gb",
        )
    return text


def _memory(value: object) -> object:
    mib_of(value)
    return value


PartText = Annotated[str, AfterValidator(_part)]
"""``1ofN`` of a GPU."""
MigText = Annotated[str, AfterValidator(_mig)]
"""A MIG profile that has a resource name."""
MemoryQuantity = Annotated[str | int, BeforeValidator(_memory)]
"""A positive Kubernetes quantity of bytes."""
PoolText = Annotated[str, AfterValidator(check_pool)]
