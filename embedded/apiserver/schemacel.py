"""CEL rules of a structural schema (``x-kubernetes-validations``), over an object (pure).

Source: apiextensions-apiserver ``pkg/apiserver/schema/cel``. Rules that mention ``oldSelf``
are transition rules: they run on updates only, where the old value can be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from embedded.apiserver import cel
from embedded.apiserver.objects import Json
from embedded.apiserver.schema import INT_OR_STRING, Schema
from embedded.apiserver.status import Cause

RULES: Final = "x-kubernetes-validations"
_RESERVED: Final = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_SYMBOLS: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REASONS: Final = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def escaped(name: str) -> str | None:
    """A property name as CEL spells it; None where CEL cannot reach it."""
    if name in _RESERVED:
        return f"__{name}__"
    text = re.sub(r"__|[./-]", lambda found: _SYMBOLS[found[0]], name)
    return text if _IDENTIFIER.fullmatch(text) else None


def is_transition(expression: str) -> bool:
    """Whether a rule compares with the old value."""
    return re.search(r"\boldSelf\b", expression) is not None


def rule_causes(obj: Json, old: Json | None, schema: Schema) -> list[Cause]:
    """The rules that an object breaks."""
    if not has_rules(schema):
        return []
    return list(_walk(obj, old, schema, ""))


def has_rules(schema: Any) -> bool:
    """Whether a schema, or any part of it, has CEL rules."""
    if isinstance(schema, dict):
        return RULES in schema or any(has_rules(item) for item in schema.values())
    if isinstance(schema, list):
        return any(has_rules(item) for item in schema)
    return False


def _walk(value: Any, old: Any, schema: Schema, field: str) -> Iterator[Cause]:
    if value is None:
        return
    for rule in schema.get(RULES) or ():
        cause = _broken(rule, value, old, schema, field)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        rest = schema.get("additionalProperties")
        known = schema.get("properties") or {}
        for key, item in value.items():
            inner = known.get(key, rest if isinstance(rest, dict) else None)
            if isinstance(inner, dict):
                joined = f"{field}.{key}" if field else key
                yield from _walk(item, before.get(key), inner, joined)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            before_item = _counterpart(item, old, schema)
            yield from _walk(item, before_item, schema["items"], f"{field}[{index}]")


def _counterpart(item: Any, old: Any, schema: Schema) -> Any:
    """The old item of a map list with the same keys; items of other lists have none."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") != "map" or not keys or not isinstance(old, list):
        return None
    for before in old:
        if isinstance(before, dict) and all(before.get(key) == item.get(key) for key in keys):
            return before
    return None


def _broken(  # noqa: PLR0917 - the parts of one rule
    rule: Json, value: Any, old: Any, schema: Schema, field: str
) -> Cause | None:
    expression = str(rule.get("rule") or "")
    variables = {"self": as_cel(value, schema)}
    if is_transition(expression):
        if old is None:
            return None
        variables["oldSelf"] = as_cel(old, schema)
    path = field + str(rule.get("fieldPath") or "")
    path = path.removeprefix(".")
    kind = "integer or string" if schema.get(INT_OR_STRING) else str(schema.get("type") or "object")
    try:
        if cel.evaluate(expression, variables) is True:
            return None
        text = _message(rule, expression, variables)
    except cel.CelError as error:
        text = f"rule {expression!r} failed: {error.wrong}"
    reason = str(rule.get("reason") or "FieldValueInvalid")
    label = _REASONS.get(reason, "Invalid value")
    shown = f'{label}: "{kind}": {text}' if reason == "FieldValueInvalid" else f"{label}: {text}"
    return Cause(field=path or "<nil>", reason=reason, message=shown)


def _message(rule: Json, expression: str, variables: Json) -> str:
    computed = rule.get("messageExpression")
    if computed:
        try:
            text = cel.evaluate(str(computed), variables)
        except cel.CelError:
            text = ""  # upstream falls back to the fixed message as well
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text
    return str(rule.get("message") or f"failed rule: {expression}")


def as_cel(value: Any, schema: Schema) -> Any:
    """The value as rules see it: property names escaped, numbers typed."""
    if isinstance(value, dict):
        known = schema.get("properties") or {}
        rest = schema.get("additionalProperties")
        seen = {}
        for key, item in value.items():
            if key in known:
                name = escaped(key)
                if name is not None:
                    seen[name] = as_cel(item, known[key])
            elif isinstance(rest, dict):
                seen[key] = as_cel(item, rest)
            elif key in {"apiVersion", "kind", "metadata"}:
                seen[key] = item
        return seen
    if isinstance(value, list):
        items = schema.get("items")
        return [as_cel(item, items if isinstance(items, dict) else {}) for item in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
