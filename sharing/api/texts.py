"""Field types of the custom resources: texts that the domain's parsers have checked."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

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


_PART_PATTERN: Final = "^1of([1-9]|[1-3][0-9]|4[0-8])$"
_MIG_PATTERN: Final = r"^[1-9]g\.[1-9][0-9]{0,3}gb(\+me\.all|\+me|\+gfx|-me)?$"
_POOL_PATTERN: Final = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_QUANTITY_PATTERN: Final = (
    r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"
)

PartText = Annotated[
    str,
    AfterValidator(_part),
    WithJsonSchema({"type": "string", "maxLength": 5, "pattern": _PART_PATTERN}),
]
"""``1ofN`` of a GPU."""
MigText = Annotated[
    str,
    AfterValidator(_mig),
    WithJsonSchema({"type": "string", "maxLength": 16, "pattern": _MIG_PATTERN}),
]
"""A MIG profile that has a resource name."""
MemoryQuantity = Annotated[
    str | int,
    BeforeValidator(_memory),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A positive Kubernetes quantity of bytes."""
PoolText = Annotated[
    str,
    AfterValidator(check_pool),
    WithJsonSchema({"type": "string", "maxLength": 63, "pattern": _POOL_PATTERN}),
]
"""A pool of GPUs."""
