"""Who owns which field: ``metadata.managedFields`` (pure).

The form is that of structured-merge-diff: ``f:`` for fields, ``k:`` for entries of lists with
keys, ``v:`` for entries of sets. Simplified: ownership is kept of leaves (and of the entries
of keyed lists), atomic values are leaves, and there is one version of each kind, so nothing
is converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from embedded.apiserver.fieldshapes import Shape, shape_of
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, meta, own_meta, timestamp

Path = tuple[str, ...]  # elements as managedFields writes them: "f:spec", 'k:{"name":"c"}', …

_SELF: Final = "."
# Fields that nobody owns: the server's, or what names the object.
_UNOWNED: Final = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{field}")
            for field in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "selfLink",
                "managedFields",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            )
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """How an object is written, for the bookkeeping of owners.

    Attributes:
        manager: The field manager.
        applied: Server-side apply has done the bookkeeping already.
        whole: The client sent the whole object, to replace what is there.
    """

    manager: str
    applied: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """One line of managedFields: a manager doing one operation on one subresource."""

    manager: str
    operation: str
    subresource: str = ""


Owners = dict[Owner, frozenset[Path]]


def leaves(value: Any, shape: Shape, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Path and value of each leaf of an object."""
    if isinstance(value, dict) and not shape.atomic and (value or not at):
        for key, item in value.items():
            if (*at, f"f:{key}") not in _UNOWNED:
                yield from leaves(item, shape.field(key), (*at, f"f:{key}"))
    elif isinstance(value, list) and shape.keys:
        for item in value:
            inner = (*at, entry_name(item, shape))
            yield (*inner, _SELF), None
            yield from leaves(item, shape.item(), inner)
    elif isinstance(value, list) and shape.is_set:
        for item in value:
            yield (*at, set_entry(item)), item
    else:
        yield at, value


def entry_name(item: Any, shape: Shape) -> str:
    """The path element of an entry of a keyed list."""
    keys = {key: item.get(key) for key in shape.keys if isinstance(item, dict) and key in item}
    return "k:" + _text(keys)


def set_entry(item: Any) -> str:
    """The path element of an entry of a set."""
    return "v:" + _text(item)


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def owners_of(obj: Json | None) -> Owners:
    """The owners that an object's managedFields name."""
    found: Owners = {}
    for entry in meta(obj or {}).get("managedFields") or ():
        owner = Owner(
            str(entry.get("manager")),
            str(entry.get("operation")),
            str(entry.get("subresource") or ""),
        )
        found[owner] = frozenset(_read(entry.get("fieldsV1") or {}, ()))
    return found


def _read(fields: Json, at: Path) -> Iterator[Path]:
    if not fields and at:
        yield at
    for key, inner in fields.items():
        if key == _SELF:
            yield (*at, _SELF)
        elif isinstance(inner, dict):
            yield from _read(inner, (*at, key))


def _written(paths: Iterable[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    return tree


def write_owners(obj: Json, owners: Owners, kind: ResourceKind, before: Json | None) -> None:
    """Put owners into an object's managedFields; lines that did not change keep their time."""
    times = {
        (e.get("manager"), e.get("operation"), e.get("subresource") or ""): e
        for e in meta(before or {}).get("managedFields") or ()
    }
    lines = []
    for owner in sorted(owners, key=lambda o: (o.operation, o.manager, o.subresource)):
        if not owners[owner]:
            continue
        fields = _written(owners[owner])
        old = times.get((owner.manager, owner.operation, owner.subresource))
        if old is not None and old.get("fieldsV1") == fields:
            lines.append(old)
            continue
        line: Json = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": kind.api_version,
            "time": timestamp(),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if owner.subresource:
            line["subresource"] = owner.subresource
        lines.append(line)
    if lines:
        own_meta(obj)["managedFields"] = lines
    else:
        own_meta(obj).pop("managedFields", None)


def record_write(
    new: Json, old: Json | None, kind: ResourceKind, write: Write, *, subresource: str = ""
) -> None:
    """Give the fields that a write changed to its manager."""
    if write.applied:
        return
    # What the client sends is the base: it may correct the bookkeeping, or reset it with [].
    base = old if meta(new).get("managedFields") is None else new
    shape = shape_of(kind)
    after = dict(leaves(new, shape))
    before = dict(leaves(old, shape)) if old is not None else {}
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = before.keys() - after.keys()
    owners = owners_of(base)
    me = Owner(write.manager, "Update", subresource)
    moved: Owners = {
        owner: paths - gone - (changed if owner != me else frozenset())
        for owner, paths in owners.items()
    }
    moved[me] = frozenset((moved.get(me, frozenset()) | changed) - gone)
    write_owners(new, moved, kind, base)
