"""As much OpenAPI as kubectl needs (pure).

Each resource has a PATCH operation with its GroupVersionKind and a ``fieldValidation``
parameter: that is how kubectl learns that the server checks fields itself, so that it need
not. No strategic merge patch is announced in it, so kubectl takes merge keys from its own
types, as it does for servers without OpenAPI v3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from embedded.apiserver.builtin.types import table
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json

_INFO: Final[Json] = {"title": "Kubernetes", "version": "v1.37.2"}
_SCALARS: Final[dict[str, Json]] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "num": {"type": "number"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string"},
    "any": {},
}


def root(kinds: Iterable[ResourceKind]) -> Json:
    """``/openapi/v3``: where the document of each group version is."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hash_of(kinds)}"}
            for path in sorted({_path(kind) for kind in kinds})
        }
    }


def hash_of(kinds: Iterable[ResourceKind]) -> str:
    """Changes whenever the documents may have changed."""
    import hashlib

    text = ",".join(sorted(f"{kind!r}" for kind in kinds))
    return hashlib.sha256(text.encode()).hexdigest()[:32].upper()


def _path(kind: ResourceKind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def document(kinds: Iterable[ResourceKind], path: str) -> Json | None:
    """``/openapi/v3/PATH``; nothing where there is no such group version."""
    served = [kind for kind in kinds if _path(kind) == path]
    if not served:
        return None
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {name: item for kind in served for name, item in _operations(kind, path).items()},
        "components": {"schemas": _schemas(served)},
    }


def _operations(kind: ResourceKind, path: str) -> dict[str, Json]:
    scope = "namespaces/{namespace}/" if kind.namespaced else ""
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    reference = {"$ref": f"#/components/schemas/{_schema_name(kind)}"}
    content = {"application/json": {"schema": reference}}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]

    def operation(action: str) -> Json:
        return {
            "operationId": f"{action}{kind.kind}",
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }

    return {
        f"/{path}/{scope}{kind.plural}": {"get": operation("list"), "post": operation("post")},
        f"/{path}/{scope}{kind.plural}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": {
                **operation("patch"),
                "requestBody": {
                    "content": {
                        "application/merge-patch+json": {"schema": {"type": "object"}},
                        "application/json-patch+json": {"schema": {"type": "object"}},
                    }
                },
            },
            "delete": operation("delete"),
        },
    }


def _schema_name(kind: ResourceKind) -> str:
    if kind.custom:
        reversed_group = ".".join(reversed(kind.group.split(".")))
        return f"{reversed_group}.{kind.version}.{kind.kind}"
    return f"io.k8s.api.{kind.type_name}"


def _schemas(kinds: list[ResourceKind]) -> Json:
    schemas: Json = {}
    for kind in kinds:
        gvk = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
        if kind.custom:
            body = dict(kind.json_schema) or {"type": "object"}
            schemas[_schema_name(kind)] = {**body, "x-kubernetes-group-version-kind": gvk}
        else:
            _add_type(kind.type_name, schemas)
            schemas[_schema_name(kind)]["x-kubernetes-group-version-kind"] = gvk
    return schemas


def _add_type(type_name: str, schemas: Json) -> None:
    waiting = [type_name]
    while waiting:
        name = waiting.pop()
        key = f"io.k8s.api.{name}"
        if key in schemas:
            continue
        fields = table()[name]
        schemas[key] = {
            "type": "object",
            "properties": {field: _property(declared) for field, declared in fields.items()},
        }
        waiting += [inner for d in fields.values() if (inner := d.strip("[]{}")) in table()]


def _property(declared: str) -> dict[str, Any]:
    if declared[0] == "[":
        return {"type": "array", "items": _property(declared[1:-1])}
    if declared[0] == "{":
        return {"type": "object", "additionalProperties": _property(declared[1:-1])}
    if declared in _SCALARS:
        return dict(_SCALARS[declared])
    return {"allOf": [{"$ref": f"#/components/schemas/io.k8s.api.{declared}"}], "default": {}}


def v2_document() -> Json:
    """``/openapi/v2``: present and empty; everything that is used comes from v3."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
