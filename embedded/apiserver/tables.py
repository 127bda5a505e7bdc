"""Renders objects as the tables that kubectl prints (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, meta


def table(
    kind: ResourceKind,
    objects: Sequence[Json],
    *,
    revision: str = "",
    more: Json | None = None,
    include: str = "Metadata",
) -> Json:
    """A meta.k8s.io/v1 Table."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision, **(more or {})},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
        ],
        "rows": [{"cells": [meta(obj).get("name")], "object": partial(obj)} for obj in objects],
    }


def partial(obj: Json) -> Json:
    """The PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta(obj),
    }
