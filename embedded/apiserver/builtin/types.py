"""Decodes objects of the built-in kinds as the API server's Go types would.

Go decoding drops ``null`` and fields that a type does not have, refuses values of a wrong
JSON type, and brings quantities into canonical form. The result shares nothing with the
input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from embedded.apiserver.quantities import canonical
from sharing.errors import QuantityError

_GO_NAMES: Final = {
    "str": "string",
    "int": "int32",
    "num": "float64",
    "bool": "bool",
    "time": "Time",
    "quantity": "Quantity",
}
_INT64: Final = 2**63
_ZERO: Final = {"str": "", "quantity": "0"}
"""What ``null`` becomes as a value of a map."""
_INDEX: Final = re.compile(r"\[\d+\]")


class DecodeError(ValueError):
    """A value has another JSON type than its field."""


@dataclass(slots=True)
class Decoding:
    """What one decoding met."""

    unknown: list[str] = field(default_factory=list)


@lru_cache(maxsize=1)
def table() -> Mapping[str, Mapping[str, str]]:
    """Type name → field → declared type."""
    text = resources.files("embedded.apiserver.builtin").joinpath("types.json").read_text()
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return loaded


def decode(obj: Any, type_name: str, seen: Decoding) -> Any:
    """The object as its type holds it.

    Args:
        obj: JSON data.
        type_name: A row of the type table.
        seen: Collects the paths of unknown fields.

    Raises:
        DecodeError: A value has the wrong JSON type, or is no quantity.
    """
    return _value(obj, type_name, "", type_name, seen)


def _value(  # noqa: PLR0917 - a recursion over a value and its declaration
    value: Any, declared: str, path: str, owner: str, seen: Decoding
) -> Any:
    if declared == "any":
        return _plain(value)
    if declared[0] == "[":
        return _list(value, declared[1:-1], path, owner, seen)
    if declared[0] == "{":
        return _map(value, declared[1:-1], path, owner, seen)
    fields = table().get(declared)
    if fields is None:
        return _scalar(value, declared, path, owner)
    if not isinstance(value, dict):
        raise _mismatch(value, path, owner, declared.removeprefix("V1"))
    kept: dict[str, Any] = {}
    for key, item in value.items():
        inner = f"{path}.{key}" if path else key
        wanted = fields.get(key)
        if wanted is None:
            seen.unknown.append(inner)
        elif item is not None and not (item == {} and wanted[0] == "{"):  # Go's omitempty
            kept[key] = _value(item, wanted, inner, declared, seen)
    return kept


def _list(  # noqa: PLR0917 - as _value
    value: Any, declared: str, path: str, owner: str, seen: Decoding
) -> list[Any]:
    if not isinstance(value, list):
        raise _mismatch(value, path, owner, "[]" + _go_name(declared))
    return [
        _value(item, declared, f"{path}[{index}]", owner, seen)
        for index, item in enumerate(value)
        if item is not None or declared == "any"
    ]


def _map(  # noqa: PLR0917 - as _value
    value: Any, declared: str, path: str, owner: str, seen: Decoding
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mismatch(value, path, owner, _go_name(f"{{{declared}}}"))
    return {
        key: _value(_ZERO[declared] if item is None else item, declared, path, owner, seen)
        for key, item in value.items()
        if item is not None or declared in _ZERO
    }


def _scalar(value: Any, declared: str, path: str, owner: str) -> Any:
    if declared == "quantity":
        return _quantity(value, path, owner)
    fits = {
        "str": isinstance(value, str),
        "time": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool) and abs(value) < _INT64,
        "num": isinstance(value, (int, float)) and not isinstance(value, bool),
    }[declared]
    if not fits:
        raise _mismatch(value, path, owner, _go_name(declared))
    return value


def _quantity(value: Any, path: str, owner: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _mismatch(value, path, owner, "Quantity")
    try:
        return canonical(value if isinstance(value, str) else json.dumps(value))
    except QuantityError as error:
        raise DecodeError(error.wrong) from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _go_name(declared: str) -> str:
    if declared[0] == "[":
        return "[]" + _go_name(declared[1:-1])
    if declared == "{quantity}":
        return "v1.ResourceList"
    if declared[0] == "{":
        return "map[string]" + _go_name(declared[1:-1])
    return _GO_NAMES.get(declared, declared.removeprefix("V1"))


def _mismatch(value: Any, path: str, owner: str, wanted: str) -> DecodeError:
    kinds = {dict: "object", list: "array", str: "string", bool: "bool"}
    seen = kinds.get(type(value), "number")
    return DecodeError(
        f"json: cannot unmarshal {seen} into Go struct field "
        f"{owner.removeprefix('V1')}.{_INDEX.sub('', path)} of type {wanted}"
    )
