"""Label selectors and node selector terms, as Kubernetes evaluates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def matches_labels(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a LabelSelector; a null selector matches nothing, {} everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or []
    )


def matches_terms(terms: Iterable[Mapping[str, Any]], labels: Mapping[str, str], name: str) -> bool:
    """Whether any of a node selector's terms matches a node; an empty term matches none."""
    return any(matches_term(term, labels, name) for term in terms)


def matches_term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Whether one term matches: all its expressions on labels and all on fields."""
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_holds(expression, labels) for expression in expressions) and all(
        _holds(field, {"metadata.name": name}) for field in fields
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(str(expression.get("key")))
    values = [str(listed) for listed in expression.get("values") or []]
    match expression.get("operator"):
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compared(value, values) > 0
        case "Lt":
            return _compared(value, values) < 0
        case _:
            return False


def _compared(value: str | None, values: list[str]) -> int:
    """-1, 0 or 1; 0 (which satisfies neither Gt nor Lt) where one of the two is no integer."""
    try:
        left, right = int(value or ""), int(values[0] if len(values) == 1 else "")
    except ValueError:
        return 0
    return (left > right) - (left < right)
