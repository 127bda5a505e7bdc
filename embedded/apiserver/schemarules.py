"""Validation of custom resources against their schemas (pure).

The texts are those of kube-openapi's ``validation/errors``; CEL rules
(``x-kubernetes-validations``) are evaluated where the schema itself holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from embedded.apiserver.objects import Json
from embedded.apiserver.schema import EMBEDDED, INT_OR_STRING, Schema
from embedded.apiserver.schemacel import has_rules, rule_causes
from embedded.apiserver.status import Cause, invalid_value, not_supported, required

_MAX_CAUSES: Final = 50
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""What keeps CEL rules from being looked at. Source: apiextensions-apiserver, hasBlockingErr."""
_UNCHECKED: Final = Cause(
    field="<nil>",
    reason="FieldValueInvalid",
    message="Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation",
)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def causes_of(obj: Json, old: Json | None, schema: Schema) -> list[Cause]:
    """What is wrong with a custom resource."""
    body = {key: value for key, value in obj.items() if key != "metadata"}
    rest = {**schema, "properties": _without_metadata(schema)}
    causes = list(_problems(body, rest, ""))[:_MAX_CAUSES]
    if any(cause.reason in _BLOCKING for cause in causes):
        return [*causes, _UNCHECKED] if has_rules(schema) else causes
    return causes + rule_causes(obj, old, schema)


def value_causes(value: Any, schema: Schema, field: str) -> list[Cause]:
    """What is wrong with a value; for defaults in a definition."""
    return list(_problems(value, schema, field))


def _without_metadata(schema: Schema) -> Json:
    properties = dict(schema.get("properties") or {})
    properties.pop("metadata", None)
    return properties


def _problems(value: Any, schema: Schema, field: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    wrong = _type_problem(value, schema, field)
    if wrong is not None:
        yield wrong
        return
    yield from _enum_problems(value, schema, field)
    if isinstance(value, str):
        yield from _string_problems(value, schema, field)
    elif isinstance(value, dict):
        yield from _object_problems(value, schema, field)
    elif isinstance(value, list):
        yield from _array_problems(value, schema, field)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_problems(value, schema, field)
    yield from _junctor_problems(value, schema, field)


def _type_problem(value: Any, schema: Schema, field: str) -> Cause | None:
    wanted = schema.get("type")
    if schema.get(INT_OR_STRING):
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return None
        wanted = "integer,string"
    elif not wanted or _is_type(value, str(wanted)):
        return None
    seen = _type_name(value)
    return Cause(
        field=field,
        reason="FieldValueTypeInvalid",
        message=f'Invalid value: "{seen}": {field} in body must be of type {wanted}: "{seen}"',
    )


def _is_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool) and wanted != "boolean":
        return False
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names.get(type(value), type(value).__name__)


def _enum_problems(value: Any, schema: Schema, field: str) -> Iterator[Cause]:
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield not_supported(field, value, [str(choice) for choice in choices])


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    # In Go "$" is the very end; in Python it also stands before a last line break.
    ends = text.endswith("$") and not text.endswith("\\$")
    return re.compile(text[:-1] + r"\Z" if ends else text)


def _string_problems(value: str, schema: Schema, field: str) -> Iterator[Cause]:
    yield from _bound_problems(len(value), schema, field, "Length", "characters")
    pattern = schema.get("pattern")
    if pattern and not _pattern(str(pattern)).search(value):
        yield invalid_value(field, value, f"{field} in body should match '{pattern}'")


def _bound_problems(  # noqa: PLR0917 - the parts of one bound
    size: int, schema: Schema, field: str, what: str, unit: str
) -> Iterator[Cause]:
    most, least = schema.get(f"max{what}"), schema.get(f"min{what}")
    if most is not None and size > most:
        if what == "Length":
            yield Cause(
                field=field,
                reason="FieldValueTooLong",
                message=f"Too long: may not be more than {most} bytes",
            )
        else:
            yield Cause(
                field=field,
                reason="FieldValueTooMany",
                message=f"Too many: {size}: must have at most {most} {unit}",
            )
    if least is not None and size < least:
        counted = "chars long" if what == "Length" else unit
        text = f"{field} in body should be at least {least} {counted}"
        yield Cause(
            field=field, reason="FieldValueInvalid", message=f"Invalid value: {size}: {text}"
        )


def _number_problems(value: float, schema: Schema, field: str) -> Iterator[Cause]:
    least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if least is not None:
        strict = schema.get("exclusiveMinimum")
        if value < least or (strict and value == least):
            sense = "greater than" if strict else "greater than or equal to"
            yield invalid_value(field, value, f"{field} in body should be {sense} {least}")
    if most is not None:
        strict = schema.get("exclusiveMaximum")
        if value > most or (strict and value == most):
            sense = "less than" if strict else "less than or equal to"
            yield invalid_value(field, value, f"{field} in body should be {sense} {most}")
    if step and value % step:
        yield invalid_value(field, value, f"{field} in body should be a multiple of {step}")


def _object_problems(value: Json, schema: Schema, field: str) -> Iterator[Cause]:
    yield from _bound_problems(len(value), schema, field, "Properties", "properties")
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{field}.{name}" if field else str(name))
    known = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    for key, item in value.items():
        inner = f"{field}.{key}" if field else key
        if schema.get(EMBEDDED) and key == "metadata":
            continue
        if key in known:
            yield from _problems(item, known[key], inner)
        elif isinstance(rest, dict):
            yield from _problems(item, rest, inner)


def _array_problems(value: list[Any], schema: Schema, field: str) -> Iterator[Cause]:
    yield from _bound_problems(len(value), schema, field, "Items", "items")
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        where = f"{field}[{index}]"
        yield from _problems(item, schema.get("items") or {}, where)
        if kind == "set":
            identity: Any = item
        elif kind == "map" and isinstance(item, dict):
            identity = {key: item.get(key) for key in keys}
        else:
            continue
        raw = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
        if raw in seen:
            yield Cause(
                field=where,
                reason="FieldValueDuplicate",
                message=f"Duplicate value: {raw.decode()}",
            )
        seen.add(raw)


def _junctor_problems(value: Any, schema: Schema, field: str) -> Iterator[Cause]:
    for part in schema.get("allOf") or ():
        yield from _problems(value, part, field)
    any_of, one_of, negated = schema.get("anyOf"), schema.get("oneOf"), schema.get("not")
    if any_of and not any(_holds(value, part, field) for part in any_of):
        yield _junctor(field, "must validate at least one schema (anyOf)")
    if one_of:
        count = sum(_holds(value, part, field) for part in one_of)
        if count != 1:
            yield _junctor(field, "must validate one and only one schema (oneOf)")
    if negated and _holds(value, negated, field):
        yield _junctor(field, "must not validate the schema (not)")


def _holds(value: Any, schema: Schema, field: str) -> bool:
    return next(_problems(value, schema, field), None) is None


def _junctor(field: str, text: str) -> Cause:
    subject = f'"{field}" ' if field else ""
    return Cause(
        field=field or "<nil>",
        reason="FieldValueInvalid",
        message=f"Invalid value: {subject}{text}",
    )
