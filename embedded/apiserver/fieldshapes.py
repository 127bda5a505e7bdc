"""How server-side apply merges the parts of an object: by field, by key, as a set, as a whole.

For built-in kinds from the type table and ``builtin.lists``; for custom resources from the
schema's ``x-kubernetes-list-type``, ``-list-map-keys`` and ``-map-type`` (pure).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from embedded.apiserver.builtin.lists import apply_keys, is_atomic, is_set
from embedded.apiserver.builtin.types import table
from embedded.apiserver.kinds import ResourceKind


class Shape(Protocol):
    """The merge rules at one place of an object."""

    @property
    def atomic(self) -> bool:
        """Whether a mapping here is one value."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the list here; empty for a list without."""

    @property
    def is_set(self) -> bool:
        """Whether the list here is a set."""

    def field(self, name: str) -> Shape:
        """The rules of a field of the mapping here."""

    def item(self) -> Shape:
        """The rules of an entry of the list here."""


@dataclass(frozen=True, slots=True)
class TypedShape:
    """Rules from the type table: a declared type, and where it stands."""

    declared: str
    owner: str = ""
    name: str = ""

    @property
    def atomic(self) -> bool:
        """See ``Shape``."""
        return is_atomic(self.declared, self.owner, self.name)

    @property
    def keys(self) -> tuple[str, ...]:
        """See ``Shape``."""
        return apply_keys(self.owner, self.name) if self.declared.startswith("[") else ()

    @property
    def is_set(self) -> bool:
        """See ``Shape``."""
        return is_set(self.owner, self.name)

    def field(self, name: str) -> TypedShape:
        """See ``Shape``."""
        if self.declared.startswith("{"):
            return TypedShape(self.declared[1:-1])
        return TypedShape(table().get(self.declared, {}).get(name, "any"), self.declared, name)

    def item(self) -> TypedShape:
        """See ``Shape``."""
        return TypedShape(self.declared[1:-1])


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """Rules from a structural schema."""

    schema: Mapping[str, Any]

    @property
    def atomic(self) -> bool:
        """See ``Shape``."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def keys(self) -> tuple[str, ...]:
        """See ``Shape``."""
        if self.schema.get("x-kubernetes-list-type") != "map":
            return ()
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())

    @property
    def is_set(self) -> bool:
        """See ``Shape``."""
        return self.schema.get("x-kubernetes-list-type") == "set"

    def field(self, name: str) -> SchemaShape | TypedShape:
        """See ``Shape``."""
        known = self.schema.get("properties") or {}
        if name in known:
            return SchemaShape(known[name])
        rest = self.schema.get("additionalProperties")
        return SchemaShape(rest) if isinstance(rest, dict) else _ANY

    def item(self) -> SchemaShape:
        """See ``Shape``."""
        items = self.schema.get("items")
        return SchemaShape(items if isinstance(items, dict) else {})


@dataclass(frozen=True, slots=True)
class RootShape:
    """A custom resource: its schema, with metadata of the built-in type."""

    schema: SchemaShape
    atomic: bool = False
    keys: tuple[str, ...] = ()
    is_set: bool = False

    def field(self, name: str) -> Shape:
        """See ``Shape``."""
        return TypedShape("V1ObjectMeta") if name == "metadata" else self.schema.field(name)

    def item(self) -> Shape:
        """See ``Shape``."""
        return self.schema.item()


_ANY: Final = TypedShape("any")


def shape_of(kind: ResourceKind) -> Shape:
    """The rules of a kind's objects."""
    if kind.custom:
        return RootShape(SchemaShape(kind.json_schema))
    return TypedShape(kind.type_name)
