"""From a request's body to an object of its kind: decoding, pruning, defaults, strictness."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from embedded.apiserver import defaults, schema
from embedded.apiserver.builtin.types import DecodeError, Decoding, decode
from embedded.apiserver.calls import Call
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, deep_copy, is_deeper, meta
from embedded.apiserver.status import (
    StatusError,
    bad_request,
    invalid,
    invalid_patch,
    invalid_value,
    unrecognized,
)

_SHOWN_CHARACTERS: Final = 30
_MOST_TOLD: Final = 20
_ROOT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
MAX_LEVELS: Final = 100  # far beyond any real object, far below what recursion bears


def to_object(body: Any, kind: ResourceKind, call: Call) -> Json:
    """The object that a body holds, defaulted, sharing nothing with the body.

    Raises:
        StatusError: 400, the body is no object of this kind.
    """
    checked = _of_kind(body, kind, call)
    seen = Decoding()
    obj = _decode_custom(checked, kind, seen) if kind.custom else _decode(checked, kind, seen)
    report_unknown(seen.unknown, call, _handled(kind))
    return obj


def to_patched(patched: Any, kind: ResourceKind, call: Call) -> Json:
    """The object that a patch made.

    Raises:
        StatusError: 422, it is no object of this kind any more.
    """
    if kind.custom or not isinstance(patched, dict):
        return to_object(patched, kind, call)
    named, version = patched.get("kind"), patched.get("apiVersion")
    if named not in {None, kind.kind} and version == kind.api_version:
        why = f"converting (v1.{named}) to (core.{kind.kind}): unknown conversion"
        raise invalid_patch(patched, why)
    seen = Decoding()
    try:
        decode(patched, kind.type_name, seen)
    except DecodeError as error:
        raise invalid_patch(patched, str(error)) from error
    if seen.unknown and call.field_validation == "Strict":
        told = ", ".join(f'unknown field "{path}"' for path in seen.unknown[:_MOST_TOLD])
        raise invalid_patch(patched, f"strict decoding error: {told}")
    return to_object(patched, kind, call)


def to_intent(body: Any, kind: ResourceKind, call: Call) -> Json:
    """What a body says and nothing more: decoded, but without defaults; for server-side apply.

    Raises:
        StatusError: 400, the body is no object of this kind.
    """
    checked = _of_kind(body, kind, call)
    seen = Decoding()
    if kind.custom:
        obj = _decode_custom(checked, kind, seen, defaulted=False)
    else:
        obj = _decode(checked, kind, seen, defaulted=False)
    if seen.unknown:
        place = f"{meta(obj).get('namespace', '')}/{meta(obj).get('name', '')}"
        gvk = f"{kind.group}/{kind.version}, Kind={kind.kind}"
        told = ", ".join(f".{path}: field not declared in schema" for path in seen.unknown)
        raise StatusError(500, "", f"failed to create typed patch object ({place}; {gvk}): {told}")
    return obj


def to_typed(body: Any, type_name: str, kind_name: str, call: Call) -> Json:
    """A body of a built-in type that is no resource of its own (Binding, Eviction, Scale).

    Raises:
        StatusError: 400, the body is not of this type.
    """
    if not isinstance(body, dict):
        raise bad_request(f"the body of the request is not a {kind_name}: it must be a mapping")
    seen = Decoding()
    try:
        obj: Json = decode(body, type_name, seen)
    except DecodeError as error:
        raise bad_request(f"the body cannot be handled as a {kind_name}: {error}") from error
    report_unknown(seen.unknown, call)
    return obj


def _handled(kind: ResourceKind, name: str = "", version: str = "") -> str:
    """How refusals of a body begin."""
    named, of = name or kind.kind, version or kind.version
    return f'{named} in version "{of}" cannot be handled as a {kind.kind}: '


def report_unknown(unknown: list[str], call: Call, prefix: str = "") -> None:
    """Do with unknown fields what ``fieldValidation`` says.

    Raises:
        StatusError: 400 under Strict.
    """
    texts = [f'unknown field "{path}"' for path in unknown]
    if texts and call.field_validation == "Strict":
        raise bad_request(f"{prefix}strict decoding error: " + ", ".join(texts[:_MOST_TOLD]))
    if call.field_validation == "Warn":
        for text in texts[:_MOST_TOLD]:
            call.warn(text)


def _of_kind(body: Any, kind: ResourceKind, call: Call) -> Json:
    """The body with apiVersion and kind, which a client may leave out of a built-in kind's.

    Seen on Kubernetes 1.37: bodies of custom resources are refused without them.

    Raises:
        StatusError: 400, the body is something else.
    """
    if body is None and not kind.custom:
        body = {}
    if not isinstance(body, dict):
        raise unrecognized(kind.kind, f"json: cannot unmarshal {type(body).__name__}")
    if is_deeper(body, MAX_LEVELS):
        raise bad_request(f"the object is nested deeper than {MAX_LEVELS} levels")
    if kind.custom and not body.get("kind"):
        text = json.dumps(body, separators=(",", ":"))
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ..."
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"Object 'Kind' is missing in '{text}' ({shown})"
        )
    version = str(body.get("apiVersion") or ("" if kind.custom else kind.api_version))
    name = str(body.get("kind") or kind.kind)
    if version != kind.api_version:
        raise _wrong_version(body, version, kind, call)
    if name != kind.kind:
        raise _wrong_kind(body, name, kind)
    return {**body, "apiVersion": version, "kind": name}


def _wrong_version(body: Json, version: str, kind: ResourceKind, call: Call) -> StatusError:
    if not kind.custom:
        _, _, last = version.rpartition("/")
        return bad_request(
            f'{_handled(kind, version=last)}no kind "{kind.kind}" is registered for version '
            f'"{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    report_unknown([key for key in body if key not in _ROOT_FIELDS], call)
    return bad_request(
        f"the API version in the data ({version}) does not match the expected API version "
        f"({kind.api_version})"
    )


def _wrong_kind(body: Json, name: str, kind: ResourceKind) -> StatusError:
    if kind.custom:
        named = replace(kind, kind=name)
        metadata = body.get("metadata")
        own = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
        return invalid(named, own, [invalid_value("kind", name, f"must be {kind.kind}")])
    return bad_request(
        f"{_handled(kind, name)}converting (v1.{name}) to (core.{kind.kind}): unknown conversion"
    )


def _decode(body: Json, kind: ResourceKind, seen: Decoding, *, defaulted: bool = True) -> Json:
    try:
        obj: Json = decode(body, kind.type_name, seen)
    except DecodeError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error
    obj.setdefault("metadata", {})
    if defaulted:
        defaults.fill(obj)
    return obj


def _decode_custom(
    body: Json, kind: ResourceKind, seen: Decoding, *, defaulted: bool = True
) -> Json:
    rest = {key: value for key, value in body.items() if key != "metadata"}
    metadata_seen = Decoding()
    try:
        metadata = decode(body.get("metadata") or {}, "V1ObjectMeta", metadata_seen)
    except DecodeError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error
    seen.unknown += [f"metadata.{path}" for path in metadata_seen.unknown]
    obj: Json = deep_copy(rest)
    schema.prune_root(obj, kind.json_schema, seen.unknown)
    if defaulted:
        schema.fill_defaults(obj, kind.json_schema)
    obj["metadata"] = metadata
    return obj
