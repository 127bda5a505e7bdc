"""Structural schemas of custom resources: pruning and defaulting (pure; changes its argument).

Rules: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
(sections on pruning, defaulting and nullable). Validation is in ``schemarules``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from embedded.apiserver.objects import Json, deep_copy

Schema = Mapping[str, Any]

_ROOT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"


def prune_root(obj: Json, schema: Schema, unknown: list[str]) -> None:
    """Remove what the schema does not name; the root's own fields always stay."""
    kept = {key: obj.pop(key) for key in _ROOT_FIELDS & obj.keys()}
    _prune(obj, schema, "", unknown)
    rest = dict(obj)
    obj.clear()
    obj.update(kept | rest)


def _prune(value: Any, schema: Schema, path: str, unknown: list[str]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _prune(item, schema.get("items") or {}, f"{path}[{index}]", unknown)
    elif isinstance(value, dict):
        _prune_mapping(value, schema, path, unknown)


def _prune_mapping(value: Json, schema: Schema, path: str, unknown: list[str]) -> None:
    known = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    for key in list(value):
        inner = f"{path}.{key}" if path else key
        if key in known:
            _prune(value[key], known[key], inner, unknown)
        elif isinstance(rest, dict):
            _prune(value[key], rest, inner, unknown)
        elif rest is True or schema.get(PRESERVE):
            continue
        elif not (schema.get(EMBEDDED) and key in _ROOT_FIELDS):
            del value[key]
            unknown.append(inner)


def fill_defaults(value: Any, schema: Schema) -> None:
    """Add the schema's defaults; null where null is not allowed counts as absent."""
    if isinstance(value, list):
        for item in value:
            fill_defaults(item, schema.get("items") or {})
        return
    if not isinstance(value, dict):
        return
    rest = schema.get("additionalProperties")
    known = schema.get("properties") or {}
    for key, inner in known.items():
        if key in value and value[key] is None and not inner.get("nullable"):
            del value[key]
        if key not in value and "default" in inner:
            value[key] = deep_copy(inner["default"])
        if key in value:
            fill_defaults(value[key], inner)
    if isinstance(rest, dict):
        for key in value.keys() - known.keys():
            fill_defaults(value[key], rest)
