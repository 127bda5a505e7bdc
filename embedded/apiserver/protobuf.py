"""Reads bodies in Kubernetes' protobuf form into JSON data (pure).

Only kubectl's typed clients send it. Field numbers come from ``builtin/wire.json``; what the
table does not name is skipped, as protobuf has it. Zero values of structs that JSON leaves
out when empty are left out here too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from struct import unpack
from typing import Any, Final

import orjson

from embedded.apiserver.objects import Json
from embedded.apiserver.status import bad_request

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ONE_BYTE: Final = 7
_MAX_SHIFT: Final = 63
_SIGNED: Final = 1 << 63

Field = tuple[int, int, Any]  # number, wire type, raw value


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Mapping[str, list[str]]]:
    text = resources.files("embedded.apiserver.builtin").joinpath("wire.json").read_text()
    loaded: dict[str, dict[str, list[str]]] = json.loads(text)
    return loaded


def read(raw: bytes) -> Json:
    """The object that a body holds.

    Raises:
        StatusError: 400, it is no protobuf or of a kind that has no table.
    """
    try:
        return _read(raw)
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise bad_request(f"couldn't get object from the protobuf body: {error}") from error


def _read(raw: bytes) -> Json:
    if not raw.startswith(_MAGIC):
        raise ValueError("it does not begin with the magic of Kubernetes")
    version = kind = ""
    body = b""
    for number, _, value in _fields(raw[len(_MAGIC) :]):
        if number == 1:
            names = {n: v.decode() for n, _, v in _fields(value)}
            version, kind = names.get(1, ""), names.get(2, "")
        elif number == 2:  # noqa: PLR2004 - runtime.Unknown.raw
            body = value
    group, _, short = version.rpartition("/")
    message = f"api.{group.partition('.')[0] or 'core'}.{short}.{kind}"
    if kind == "DeleteOptions":
        message = "apimachinery.pkg.apis.meta.v1.DeleteOptions"
    if message not in _table():
        raise ValueError(f"no kind {kind!r} in version {version!r} is known; send JSON")
    return {"apiVersion": version, "kind": kind, **_message(body, message, 0)}


def _fields(raw: bytes) -> Iterator[Field]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(raw, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire, -1)
        if size < 0 or at + size > len(raw):
            raise ValueError("a field is cut short or of an unknown form")
        yield number, wire, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 1 << _ONE_BYTE:
            return value, at
        shift += _ONE_BYTE
        if shift > _MAX_SHIFT:
            raise ValueError("a number is too long")


def _message(raw: bytes, name: str, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    rows = _table().get(name, {})
    found: Json = {}
    for number, _, value in _fields(raw):
        row = rows.get(str(number))
        if row is not None:
            _put(found, row[0], row[1], value, depth)
    return {key: value for key, value in found.items() if value is not None}


def _put(  # noqa: PLR0917 - a recursion over fields
    found: Json, key: str, kind: str, value: Any, depth: int
) -> None:
    mark, inner = (kind[0], kind[1:]) if kind[0] in "[{^" else ("", kind)
    if mark == "^":
        found.update(_message(value, inner, depth + 1))
    elif mark == "[":
        found.setdefault(key, []).append(_value(value, inner, depth))
    elif mark == "{":
        pair = {number: item for number, _, item in _fields(value)}
        entry = _value(pair.get(2, b""), inner, depth)
        found.setdefault(key, {})[pair.get(1, b"").decode()] = entry
    else:
        decoded = _value(value, inner, depth)
        if decoded != "":
            found[key] = decoded


def _value(value: Any, kind: str, depth: int) -> Any:
    if kind == "n":
        return value - (1 << 64) if value >= _SIGNED else value
    if kind == "b":
        return bool(value)
    if kind == "d":
        return unpack("<d", value)[0]
    if kind == "s":
        return value.decode()
    if kind == "y":
        return base64.b64encode(value).decode()
    if kind in _SPECIAL:
        return _SPECIAL[kind]({number: item for number, _, item in _fields(value)})
    return _message(value, kind, depth + 1)


def _time(fields: Mapping[int, Any]) -> str | None:
    if 1 not in fields:
        return None
    return datetime.fromtimestamp(fields[1], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _int_or_string(fields: Mapping[int, Any]) -> int | str:
    if fields.get(1):
        return bytes(fields.get(3, b"")).decode()
    return int(fields.get(2, 0))


_SPECIAL: Final[Mapping[str, Callable[[Mapping[int, Any]], Any]]] = {
    "time": _time,
    "quantity": lambda fields: bytes(fields.get(1, b"0")).decode() or "0",
    "intstr": _int_or_string,
    "json": lambda fields: orjson.loads(bytes(fields.get(1, b"{}")) or b"{}"),
}
