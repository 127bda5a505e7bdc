"""From a request's body to an object of its kind: decoding, pruning, defaults, strictness."""

from __future__ import annotations

import json
from typing import Any, Final

from embedded.apiserver import defaults, schema
from embedded.apiserver.builtin.types import DecodeError, Decoding, decode
from embedded.apiserver.calls import Call
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, deep_copy, is_deeper
from embedded.apiserver.status import bad_request

_SHOWN_CHARACTERS: Final = 30
MAX_LEVELS: Final = 100  # far beyond any real object, far below what recursion bears


def to_object(body: Any, kind: ResourceKind, call: Call) -> Json:
    """The object that a body holds, defaulted, sharing nothing with the body.

    Raises:
        StatusError: 400, the body is no object of this kind.
    """
    checked = _of_kind(body, kind)
    seen = Decoding()
    obj = _decode_custom(checked, kind, seen) if kind.custom else _decode(checked, kind, seen)
    report_unknown(seen.unknown, call)
    return obj


def to_intent(body: Any, kind: ResourceKind, call: Call) -> Json:
    """What a body says and nothing more: decoded, but without defaults; for server-side apply.

    Raises:
        StatusError: 400, the body is no object of this kind.
    """
    checked = _of_kind(body, kind)
    seen = Decoding()
    if kind.custom:
        obj = _decode_custom(checked, kind, seen, defaulted=False)
    else:
        obj = _decode(checked, kind, seen, defaulted=False)
    report_unknown(seen.unknown, call)
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


def report_unknown(unknown: list[str], call: Call) -> None:
    """Do with unknown fields what ``fieldValidation`` says.

    Raises:
        StatusError: 400 under Strict.
    """
    texts = [f'unknown field "{path}"' for path in unknown]
    if texts and call.field_validation == "Strict":
        raise bad_request("strict decoding error: " + ", ".join(texts[:20]))
    if call.field_validation == "Warn":
        for text in texts[:20]:
            call.warn(text)


def _of_kind(body: Any, kind: ResourceKind) -> Json:
    """The body with apiVersion and kind, which a client may leave out of a built-in kind's.

    Seen on Kubernetes 1.37: bodies of custom resources are refused without them.

    Raises:
        StatusError: 400, the body is something else.
    """
    if not isinstance(body, dict):
        raise bad_request(
            f"the body of the request is no {kind.kind}: it must be a mapping with "
            f'"apiVersion": "{kind.api_version}", "kind": "{kind.kind}"'
        )
    if is_deeper(body, MAX_LEVELS):
        raise bad_request(f"the object is nested deeper than {MAX_LEVELS} levels")
    if kind.custom and not body.get("kind"):
        text = json.dumps(body, separators=(",", ":"))
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"Object 'Kind' is missing in '{text}' ({text[:_SHOWN_CHARACTERS]} ...)"
        )
    version = body.get("apiVersion") or ("" if kind.custom else kind.api_version)
    name = body.get("kind") or kind.kind
    if version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if name != kind.kind:
        raise bad_request(
            f'{name} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"expected kind {kind.kind}"
        )
    return {**body, "apiVersion": version, "kind": name}


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
