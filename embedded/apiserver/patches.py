"""The patches that a client may send, applied to JSON data (pure).

JSON patch (RFC 6902), JSON merge patch (RFC 7386) and the strategic merge patch of
apimachinery's ``strategicpatch``; server-side apply has a module of its own.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import jsonpatch
import jsonpointer

from embedded.apiserver.builtin.lists import is_set, patch_key
from embedded.apiserver.builtin.types import table
from embedded.apiserver.objects import Json, deep_copy
from embedded.apiserver.status import StatusError, bad_request, unprocessable

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

_MAX_OPERATIONS: Final = 10_000


def apply_json_patch(obj: Json, operations: Any) -> Any:
    """RFC 6902.

    Raises:
        StatusError: 400 for what is no patch, 422 for one that does not fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {go_kind(operations)} into Go value of "
            "type []handlers.jsonPatchOp"
        )
    if len(operations) > _MAX_OPERATIONS:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, "
            f"got {len(operations)}",
        )
    try:
        return _JsonPatch(operations).apply(deep_copy(obj))
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
    ) as error:
        raise unprocessable() from error


class _Replace(jsonpatch.ReplaceOperation):
    """Upstream's library replaces a member that is not there by adding it."""

    def apply(self, obj: Any) -> Any:
        parent, member = self.pointer.to_last(obj)
        if isinstance(parent, dict) and member is not None:
            parent[member] = self.operation["value"]
            return obj
        return super().apply(obj)


class _JsonPatch(jsonpatch.JsonPatch):
    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "replace": _Replace})


def go_kind(value: Any) -> str:
    """What Go's JSON decoder calls a value."""
    kinds = {dict: "object", list: "array", str: "string", bool: "bool"}
    return kinds.get(type(value), "number")


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, mappings merge, everything else replaces."""
    if not isinstance(patch, dict):
        return deep_copy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


def not_a_mapping(patch: Any) -> StatusError:
    """A merge patch of another form."""
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {go_kind(patch)} into Go value of type "
        "map[string]interface {}"
    )


def apply_strategic_patch(obj: Json, patch: Any, type_name: str) -> Json:
    """A strategic merge patch on an object of a built-in type.

    Raises:
        StatusError: 400, the patch is malformed.
    """
    if not isinstance(patch, dict):
        raise not_a_mapping(patch)
    merged = _merge_mapping(obj, patch, type_name)
    if merged is None:
        name = (obj.get("metadata") or {}).get("name")
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    return merged


def _merge_mapping(target: Json, patch: Json, owner: str) -> Json | None:
    directive = patch.get("$patch")
    if directive == "delete":
        return None
    if directive == "replace":
        return {key: _without_directives(v) for key, v in patch.items() if key != "$patch"}
    merged = dict(target)
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif not key.startswith("$"):
            _merge_field(merged, key, value, owner)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            _reorder(merged, key.partition("/")[2], order, owner)
    return merged


def _merge_field(merged: Json, key: str, value: Any, owner: str) -> None:
    if value is None:
        merged.pop(key, None)
        return
    current = merged.get(key)
    if isinstance(value, dict):
        inner = _type_of(owner, key)
        result = _merge_mapping(current if isinstance(current, dict) else {}, value, inner)
        if result is None:
            merged.pop(key, None)
        else:
            merged[key] = result
    elif isinstance(value, list):
        merged[key] = _merge_list(current, value, owner, key)
    else:
        merged[key] = value


def _merge_list(current: Any, patch: list[Any], owner: str, field: str) -> list[Any]:
    present = list(current) if isinstance(current, list) else []
    if is_set(owner, field):
        return present + [item for item in patch if item not in present]
    key = patch_key(owner, field)
    if not key:
        return [_without_directives(item) for item in patch]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        kept = [item for item in patch if not (isinstance(item, dict) and "$patch" in item)]
        return [_without_directives(item) for item in kept]
    inner = _type_of(owner, field)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(
                f"error decoding patch: map: {item!r} does not contain declared merge key: {key}"
            )
        present = _merge_item(present, item, key, inner)
    order = [item.get(key) for item in current or [] if isinstance(item, dict)]
    return _in_order(present, [item[key] for item in patch], order, key)


def _in_order(merged: list[Any], patched: list[Any], before: list[Any], key: str) -> list[Any]:
    """Items as upstream leaves them: those of the patch first, unless they stood behind others.

    Source: apimachinery, ``strategicpatch``, normalizeElementOrder and mergeSortedSlice.
    """
    by_key = {str(item.get(key)): item for item in merged}
    right = [by_key[str(name)] for name in dict.fromkeys(patched) if str(name) in by_key]
    left = [item for item in merged if item.get(key) not in patched]
    rank = {str(name): index for index, name in enumerate(before)}
    result = []
    while left and right:
        first, second = rank.get(str(left[0].get(key))), rank.get(str(right[0].get(key)))
        takes_left = first is not None and second is not None and first < second
        result.append(left.pop(0) if takes_left else right.pop(0))
    return result + left + right


def _merge_item(present: list[Any], item: Json, key: str, inner: str) -> list[Any]:
    for index, old in enumerate(present):
        if isinstance(old, dict) and old.get(key) == item[key]:
            merged = _merge_mapping(old, item, inner)
            return present[:index] + ([merged] if merged is not None else []) + present[index + 1 :]
    added = _merge_mapping({}, item, inner)
    return [*present, added] if added is not None else present


def _reorder(merged: Json, field: str, order: Any, owner: str) -> None:
    """``$setElementOrder``: the listed items stand in that order, others where they were."""
    items, key = merged.get(field), patch_key(owner, field)
    if not isinstance(items, list) or not isinstance(order, list):
        return

    def identity(item: Any) -> Any:
        return item.get(key) if isinstance(item, dict) else item

    rank = {str(identity(item)): index for index, item in enumerate(order)}
    listed = sorted(
        (item for item in items if str(identity(item)) in rank),
        key=lambda item: rank[str(identity(item))],
    )
    waiting = iter(listed)
    merged[field] = [next(waiting) if str(identity(i)) in rank else i for i in items]


def _type_of(owner: str, field: str) -> str:
    declared = table().get(owner, {}).get(field, "any")
    return declared.strip("[]{}") if declared[0] != "{" else "any"


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_directives(v) for k, v in value.items() if not k.startswith("$")}
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return value
