"""Server-side apply (pure).

A manager's intent is merged into the object by the shape of its kind. Fields that another
manager owns and that would change are conflicts (409) unless forced; fields that the manager
applied before, left out now and owns alone are removed. Simplifications: see ``fieldowners``.
"""

from __future__ import annotations

from typing import Any

import orjson

from embedded.apiserver.calls import Call
from embedded.apiserver.fieldowners import (
    Owner,
    Owners,
    Path,
    entry_name,
    leaves,
    owners_of,
    set_entry,
    write_owners,
)
from embedded.apiserver.fieldshapes import Shape, shape_of
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, deep_copy
from embedded.apiserver.status import StatusError


def apply(
    old: Json | None, intent: Json, kind: ResourceKind, call: Call, *, subresource: str
) -> Json:
    """The object after an intent was applied, its managedFields written.

    Raises:
        StatusError: 409, other managers own fields that would change.
    """
    shape = shape_of(kind)
    live: Json = deep_copy(old) if old is not None else {}
    wanted = dict(leaves(intent, shape))
    present = dict(leaves(live, shape))
    me = Owner(call.manager, "Apply", subresource)
    owners = owners_of(old)
    taken = _conflicts(wanted, present, owners, me)
    if taken and not call.force:
        raise _conflict_error(taken)
    lost = {path for paths in taken.values() for path in paths}
    moved: Owners = {
        owner: paths if owner == me else paths - lost for owner, paths in owners.items()
    }
    left_out = moved.get(me, frozenset()) - wanted.keys()
    moved[me] = frozenset(wanted)
    others = frozenset().union(*(paths for owner, paths in moved.items() if owner != me))
    for path in _removals(left_out - others, others):
        _remove(live, path, shape)
    merged: Json = _merge(live, intent, shape)
    write_owners(merged, moved, kind, old)
    return merged


def _removals(paths: frozenset[Path], others: frozenset[Path]) -> list[Path]:
    """What to take out, entries of lists first: they go whole, with their defaults.

    An entry stays when somebody else owns something in it, and then it keeps its keys.
    """
    entries = [path for path in paths if path[-1] == "."]
    going = {p for p in entries if not any(o[: len(p) - 1] == p[:-1] for o in others)}
    rest = [path for path in paths if path[-1] != "." and not _is_key(path)]
    return sorted(going) + sorted(rest, key=lambda path: (-len(path), path))


def _is_key(path: Path) -> bool:
    """Whether a path is one of the keys that name the entry it stands in."""
    if len(path) < 2 or not path[-2].startswith("k:"):  # noqa: PLR2004 - entry and field
        return False
    return path[-1].removeprefix("f:") in orjson.loads(path[-2][2:])


def _conflicts(
    wanted: dict[Path, Any], present: dict[Path, Any], owners: Owners, me: Owner
) -> dict[Owner, list[Path]]:
    """Fields that would change although another manager owns them, by manager."""
    found: dict[Owner, list[Path]] = {}
    for path, value in wanted.items():
        if path[-1] == "." or (path in present and present[path] == value):
            continue
        for owner, paths in owners.items():
            if owner != me and path in paths:
                found.setdefault(owner, []).append(path)
    return found


def _conflict_error(taken: dict[Owner, list[Path]]) -> StatusError:
    causes = []
    for owner in sorted(taken, key=lambda o: (o.manager, o.operation)):
        told = f'conflict with "{owner.manager}"'
        if owner.operation == "Update":
            told += " using an update"
        causes += [
            {"reason": "FieldManagerConflict", "message": told, "field": _dotted(path)}
            for path in sorted(taken[owner])
        ]
    count = len(causes)
    listed = ", ".join(f"{c['message']}: {c['field']}" for c in causes[:10])
    return StatusError(
        409,
        "Conflict",
        f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {listed}",
        details={"causes": causes},
    )


def _dotted(path: Path) -> str:
    """A path as conflict messages write it: .spec.containers[name="c"].image."""
    text = ""
    for element in path:
        label, _, rest = element.partition(":")
        text += f".{rest}" if label == "f" else "" if element == "." else f"[{_keys(rest)}]"
    return text


def _keys(text: str) -> str:
    return text.strip("{}").replace('":', "=").replace('"', "", 1) if text.startswith("{") else text


def _merge(live: Any, intent: Any, shape: Shape) -> Any:
    if isinstance(intent, dict) and not shape.atomic:
        merged = dict(live) if isinstance(live, dict) else {}
        for key, value in intent.items():
            merged[key] = _merge(merged.get(key), value, shape.field(key))
        return merged
    if isinstance(intent, list) and shape.keys:
        return _merge_keyed(live if isinstance(live, list) else [], intent, shape)
    if isinstance(intent, list) and shape.is_set:
        present = list(live) if isinstance(live, list) else []
        return present + [item for item in intent if item not in present]
    return deep_copy(intent)


def _merge_keyed(live: list[Any], intent: list[Any], shape: Shape) -> list[Any]:
    merged = {entry_name(item, shape): item for item in live}
    for item in intent:
        name = entry_name(item, shape)
        merged[name] = _merge(merged.get(name), item, shape.item())
    return list(merged.values())


def _remove(obj: Any, path: Path, shape: Shape) -> None:
    """Take one owned leaf out of an object; what is empty then goes too."""
    head, *rest = path
    if head.startswith("f:") and isinstance(obj, dict):
        key = head[2:]
        if key not in obj:
            return
        if not rest:
            del obj[key]
            return
        _remove(obj[key], tuple(rest), shape.field(key))
        if obj[key] in ({}, []):
            del obj[key]
    elif isinstance(obj, list):
        for index, item in enumerate(obj):
            if head.startswith("k:") and entry_name(item, shape) == head:
                if rest == ["."]:
                    del obj[index]
                else:
                    _remove(item, tuple(rest), shape.item())
                return
            if head.startswith("v:") and set_entry(item) == head:
                del obj[index]
                return
