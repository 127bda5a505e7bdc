"""Structural schemas, rendered from pydantic models.

A structural schema has no references, no null types and no closed objects; the API server prunes
unknown fields itself. Source: Kubernetes documentation, "Specifying a structural schema".
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

_DROPPED: Final = frozenset({"title", "$defs", "propertyNames"})


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of a model; descriptions are its docstrings."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _Rendering(raw.get("$defs", {}), _documentation(model)).of(raw)


class _Rendering(NamedTuple):
    definitions: Mapping[str, Any]
    docs: Mapping[str, Mapping[str, str]]
    """Texts of fields by model and by the field's name on the wire."""

    def of(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """One node, references and choices resolved."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            rest = {key: node[key] for key in node if key != "$ref"}
            return self.of({**self.definitions[name], **rest})
        choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
        if len(choices) == 1:
            rest = {key: node[key] for key in node if key != "anyOf"}
            return self.of({**choices[0], **rest})
        kept = {key: self._value(key, node) for key in node if not _is_dropped(key, node[key])}
        if "const" in kept:
            kept["enum"] = [kept.pop("const")]
        return kept

    def _value(self, key: str, node: Mapping[str, Any]) -> Any:
        value = node[key]
        if key == "properties":
            texts = self.docs.get(node.get("title", ""), {})
            return {name: self._field(value[name], texts.get(name)) for name in value}
        if key in ("items", "additionalProperties"):
            return self.of(value)
        return " ".join(value.split()) if key == "description" else value

    def _field(self, node: Mapping[str, Any], text: str | None) -> dict[str, Any]:
        field = self.of(node)
        if text is None:
            return field
        return {"description": text, **{key: field[key] for key in field if key != "description"}}


def _is_dropped(key: str, value: object) -> bool:
    if key == "additionalProperties":
        return value is False
    return key in _DROPPED or (key == "default" and value in (None, [], {}))


def _documentation(model: type[BaseModel]) -> dict[str, dict[str, str]]:
    """Docstrings of fields, by the model's title and the field's name on the wire."""
    found: dict[str, dict[str, str]] = {}
    for kind in _reachable(model):
        texts = _attribute_docstrings(kind)
        found[kind.__name__] = {
            str(field.alias or name): texts[name]
            for name, field in kind.model_fields.items()
            if name in texts
        }
    return found


def _reachable(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The model and all models inside its fields."""
    seen: list[type[BaseModel]] = []
    waiting: list[Any] = [model]
    while waiting:
        kind = waiting.pop()
        if inspect.isclass(kind) and issubclass(kind, BaseModel) and kind not in seen:
            seen.append(kind)
            waiting += [field.annotation for field in kind.model_fields.values()]
        waiting += getattr(kind, "__args__", ())
    return seen


@lru_cache(maxsize=64)
def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts that stand below the fields of a class and its bases, by attribute name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is BaseModel or not (inspect.isclass(base) and issubclass(base, BaseModel)):
            continue
        body = ast.parse(inspect.getsource(base)).body[0]
        if isinstance(body, ast.ClassDef):
            for field, text in zip(body.body, body.body[1:], strict=False):
                target = field.target if isinstance(field, ast.AnnAssign) else None
                words = text.value if isinstance(text, ast.Expr) else None
                if isinstance(target, ast.Name) and isinstance(words, ast.Constant):
                    found[target.id] = " ".join(str(words.value).split())
    return found
