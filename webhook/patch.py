"""JSON Patch operations (RFC 6902), made by hand.

Never a diff of two pods: a diff costs milliseconds, and loses what its model does not know.
Parents that a pod lacks are created by one ``add`` of the whole value, existing members one by
one, so that nothing of the pod's author is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Verb(StrEnum):
    """What an operation does; ``copy``, ``move`` and ``test`` are not used."""

    ADD = "add"
    REPLACE = "replace"
    REMOVE = "remove"


class PatchOperation(NamedTuple):
    """One operation on a JSON document."""

    op: Verb
    path: str
    """A JSON pointer (RFC 6901), escaped."""
    value: Any = None
    """Ignored by ``remove``."""

    def to_json(self) -> dict[str, Any]:
        """The operation as a member of a JSON Patch document."""
        if self.op is Verb.REMOVE:
            return {"op": "remove", "path": self.path}
        return {"op": self.op.value, "path": self.path, "value": self.value}


def escape(key: str) -> str:
    """A key as a token of a JSON pointer: ``~`` becomes ``~0``, then ``/`` becomes ``~1``.

    Source: RFC 6901, section 3.
    """
    return key.replace("~", "~0").replace("/", "~1")


def add(path: str, value: Any) -> PatchOperation:
    """Add a member that is absent, or insert into a list."""
    return PatchOperation(Verb.ADD, path, value)


def replace(path: str, value: Any) -> PatchOperation:
    """Replace a member that exists."""
    return PatchOperation(Verb.REPLACE, path, value)


def remove(path: str) -> PatchOperation:
    """Remove a member that exists."""
    return PatchOperation(Verb.REMOVE, path)


def set_members(
    holder: str, current: object, members: Mapping[str, Any]
) -> Iterable[PatchOperation]:
    """Give a map these members, keeping its others; nothing for members that it has already.

    Args:
        holder: Pointer to the map, escaped.
        current: The map as it is now; None where it is absent or null.
        members: What it shall hold, in the order in which to write it.
    """
    if not members:
        return
    if not isinstance(current, dict):
        # An absent map and a null one are both created by one add.
        yield add(holder, dict(members))
        return
    for key, value in members.items():
        if key not in current:
            yield add(f"{holder}/{escape(key)}", value)
        elif current[key] != value:
            yield replace(f"{holder}/{escape(key)}", value)


def remove_members(
    holder: str, current: Mapping[str, Any], keys: Iterable[str]
) -> Iterable[PatchOperation]:
    """Take members out of a map that has them."""
    for key in keys:
        if key in current:
            yield remove(f"{holder}/{escape(key)}")
