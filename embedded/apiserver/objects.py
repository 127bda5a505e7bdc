"""Raw Kubernetes objects and the few questions everybody asks them.

Objects in the store are never changed in place; whoever wants another object copies first.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


def deep_copy(value: Any) -> Any:
    """A copy of JSON data; several times faster than copy.deepcopy, which looks for cycles."""
    if isinstance(value, dict):
        return {key: deep_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [deep_copy(item) for item in value]
    return value


def is_deeper(value: Any, levels: int) -> bool:
    """Whether JSON data is nested beyond a number of levels; never recurses itself."""
    level = [value]
    for _ in range(levels):
        level = [
            item
            for outer in level
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


def meta(obj: Json) -> Json:
    """The object's metadata; an empty mapping where there is none."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def own_meta(obj: Json) -> Json:
    """The object's metadata for writing; made where there is none."""
    found = obj.get("metadata")
    if not isinstance(found, dict):
        found = obj["metadata"] = {}
    return found


def name_of(obj: Json) -> str:
    """``metadata.name``, or nothing."""
    return str(meta(obj).get("name") or "")


def namespace_of(obj: Json) -> str:
    """``metadata.namespace``, or nothing."""
    return str(meta(obj).get("namespace") or "")


def labels_of(obj: Json | None) -> dict[str, str]:
    """``metadata.labels``; empty for no object."""
    return (meta(obj).get("labels") or {}) if obj is not None else {}


def revision_of(obj: Json) -> int:
    """``metadata.resourceVersion`` as a number; 0 where there is none."""
    text = str(meta(obj).get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


def section(obj: Json | None, *path: str) -> Json:
    """The mapping at a path, empty where anything on the way is missing."""
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def entries(obj: Json | None, *path: str) -> list[Json]:
    """The list of mappings at a path, empty where anything on the way is missing."""
    holder = section(obj, *path[:-1])
    found = holder.get(path[-1])
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def timestamp(at: datetime | None = None) -> str:
    """A moment as metav1.Time writes it: UTC, whole seconds."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime | None:
    """The moment that an RFC 3339 text names; nothing for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
