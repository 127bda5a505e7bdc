"""Kubernetes objects inside documents: Lists are opened, and each object knows its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sharing.documents.reading import Document
from sharing.errors import InputError, shown

_EXAMPLE: Final = "apiVersion: v1, kind: Pod, metadata: {name: train}"
_MOST_NESTED_LISTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeObject:
    """One object of a manifest."""

    where: str
    """File, document, and index within a List."""
    api_version: str
    kind: str
    name: str
    """May be empty; ``generateName`` stands in with its dash."""
    namespace: str
    """Empty where the manifest names none."""
    value: dict[str, Any]
    source: str = ""
    """The file, as the reader named it."""
    line: int = 0
    """Where it starts in the file, from 1; 0 where that is unknown."""

    @property
    def subject(self) -> str:
        """How messages call it."""
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.where}: {self.kind} {path}".rstrip()


def objects_of(documents: Iterable[Document]) -> Iterator[KubeObject]:
    """All objects, in order.

    Raises:
        InputError: A document is no Kubernetes object; the error says where.
    """
    for document in documents:
        yield from _objects(document, document.value, document.where, (document.line,))


def _objects(
    document: Document, value: Any, where: str, lines: tuple[int, ...]
) -> Iterator[KubeObject]:
    """Objects of a value; lines are those of the Lists around it, and its own."""
    if not isinstance(value, dict):
        raise InputError(
            where, f"{shown(value)} is no Kubernetes object", expected="a mapping", example=_EXAMPLE
        )
    kind, api_version = _text(value, "kind", where), _text(value, "apiVersion", where)
    if kind.endswith("List") and "items" in value:
        items = value["items"] or []
        if not isinstance(items, list) or len(lines) > _MOST_NESTED_LISTS:
            raise InputError(where, f"items of {kind} are {shown(items)}", expected="a list")
        for index, item in enumerate(items):
            known = document.item_lines if len(lines) == 1 else ()
            line = known[index] if index < len(known) else lines[-1]
            yield from _objects(document, item, f"{where}, items[{index}]", (*lines, line))
        return
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InputError(where, f"metadata is {shown(metadata)}", expected="a mapping")
    holder: Mapping[str, Any] = metadata or {}
    yield KubeObject(
        where=where,
        api_version=api_version,
        kind=kind,
        name=_optional(holder, "name", where) or _optional(holder, "generateName", where),
        namespace=_optional(holder, "namespace", where),
        value=value,
        source=document.source,
        line=lines[-1],
    )


def _text(value: Mapping[str, Any], key: str, where: str) -> str:
    found = value.get(key)
    if isinstance(found, str) and found:
        return found
    said = f"{key} is {shown(found)}" if key in value else f"it has no {key}"
    raise InputError(
        where, said, expected="a Kubernetes object with apiVersion and kind", example=_EXAMPLE
    )


def _optional(metadata: Mapping[str, Any], key: str, where: str) -> str:
    found = metadata.get(key)
    if found is None:
        return ""
    if isinstance(found, str):
        return found
    raise InputError(
        where, f"metadata.{key} is {shown(found)}", expected="a text", fix="put it in quotes"
    )
