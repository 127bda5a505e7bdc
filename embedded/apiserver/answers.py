"""Puts results into the form that the client asked for, and into HTTP responses."""

from __future__ import annotations

from typing import Any, Final

import orjson
import yaml
from aiohttp import web

from embedded.apiserver import tables
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.negotiation import JSON, YAML, Answer, Shape
from embedded.apiserver.objects import Json, meta
from embedded.apiserver.status import StatusError

_MAX_WARNING: Final = 4096


def shaped(result: Json, kind: ResourceKind, answer: Answer, include: str = "") -> Json:
    """An object or list in the shape that the client asked for; a Status stays as it is."""
    if result.get("kind") == "Status":
        return result
    items = result["items"] if "items" in result and result["kind"] == kind.list_kind else None
    if answer.shape is Shape.OBJECT:
        return result if items is None or kind.custom else {**result, "items": _untyped(items)}
    if answer.shape is Shape.TABLE:
        more = {k: v for k, v in meta(result).items() if k in {"continue", "remainingItemCount"}}
        return tables.table(
            kind,
            items if items is not None else [result],
            revision=str(meta(result).get("resourceVersion", "")),
            more=more if items is not None else None,
            include=include or "Metadata",
        )
    if items is None:
        return tables.partial(result)
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta(result),
        "items": [tables.partial(item) for item in items],
    }


def _untyped(items: list[Json]) -> list[Json]:
    """Items of a list as Go's typed lists encode them: without kind and apiVersion."""
    return [
        {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
        for item in items
    ]


def respond(
    result: Any, *, code: int = 200, answer: Answer | None = None, warnings: list[str] | None = None
) -> web.Response:
    """The HTTP response that carries a result."""
    media = answer.media if answer is not None else JSON
    if media == YAML:
        raw = yaml.safe_dump(orjson.loads(orjson.dumps(result)), sort_keys=True).encode()
    else:
        raw = orjson.dumps(result) + b"\n"
    response = web.Response(body=raw, status=code, content_type=media)
    add_warnings(response, warnings or [])
    return response


def refuse(error: StatusError, warnings: list[str] | None = None) -> web.Response:
    """The HTTP response that carries a refusal."""
    response = respond(error.as_json(), code=error.code, warnings=warnings)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def add_warnings(response: web.StreamResponse, warnings: list[str]) -> None:
    """One ``Warning: 299`` header for each text (RFC 7234, as apiserver writes them)."""
    for text in warnings:
        shown = "".join(c if c.isprintable() else " " for c in text)[:_MAX_WARNING]
        # Header values travel as latin-1; what does not fit is sent as UTF-8 bytes, as Go does.
        quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
