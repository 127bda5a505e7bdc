"""Field types of the custom resources: texts that the domain's parsers have checked."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from sharing.errors import InputError, shown
from sharing.layout import PART_MODES
from sharing.migprofile import MigProfile
from sharing.mode import Mode
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


def _cut_mode(mode: Mode) -> Mode:
    if mode not in PART_MODES:
        raise InputError(
            "mode of a cut",
            f"mode {mode} cannot be cut from MIG instances",
            expected="mps or time-slicing",
            example="cut: {3g.40gb: {mode: mps, sizes: {1of4: 4}}}",
        )
    return mode


def _label_key(text: str) -> str:
    if not _LABEL_KEY.fullmatch(text) or len(text.rpartition("/")[0]) > _LONGEST_NAME:
        raise InputError(
            "label key",
            f"{shown(text)} is no key of a label",
            expected="a name of at most 63 letters, digits, -, _ and ., after a domain and / or "
            "without",
            example="example.com/pool",
        )
    return text


def _label_value(text: str) -> str:
    if not _LABEL_VALUE.fullmatch(text):
        raise InputError(
            "label value",
            f"{shown(text)} is no value of a label",
            expected="at most 63 letters, digits, -, _ and ., a letter or digit at both ends",
            example="inference",
        )
    return text


def _object_name(text: str) -> str:
    if not _OBJECT_NAME.fullmatch(text) or len(text) > _LONGEST_NAME:
        raise InputError(
            "name",
            f"{shown(text)} is no name of an object",
            expected="small letters, digits, - and ., a letter or digit at both ends",
            example="nvidia",
        )
    return text


_LONGEST_NAME: Final = 253
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_OBJECT_NAME: Final = re.compile(_SUBDOMAIN, re.ASCII)
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY: Final = re.compile(f"({_SUBDOMAIN}/)?{_QUALIFIED}", re.ASCII)
_LABEL_VALUE: Final = re.compile(f"({_QUALIFIED})?", re.ASCII)
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
CutMode = Annotated[
    Mode,
    AfterValidator(_cut_mode),
    WithJsonSchema({"type": "string", "enum": [mode.value for mode in Mode if mode in PART_MODES]}),
]
"""How MIG instances can be cut further."""
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
LabelKey = Annotated[str, AfterValidator(_label_key)]
"""A label's key."""
LabelValue = Annotated[
    str,
    AfterValidator(_label_value),
    WithJsonSchema({"type": "string", "maxLength": 63, "pattern": f"^({_QUALIFIED})?$"}),
]
"""A label's value, empty ones included."""
ObjectName = Annotated[
    str,
    AfterValidator(_object_name),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME, "pattern": f"^{_SUBDOMAIN}$"}
    ),
]
"""The name of a Kubernetes object."""
