"""Rules for CustomResourceDefinitions (pure).

Source: apiextensions-apiserver ``pkg/apis/apiextensions/validation`` and the rules for
structural schemas in the Kubernetes documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from embedded.apiserver import cel
from embedded.apiserver.metadata import is_dns_label, is_subdomain
from embedded.apiserver.objects import Json, entries, meta, section
from embedded.apiserver.schema import INT_OR_STRING, PRESERVE, Schema
from embedded.apiserver.schemacel import RULES
from embedded.apiserver.schemarules import value_causes
from embedded.apiserver.status import (
    Cause,
    field_forbidden,
    invalid_value,
    not_supported,
    required,
)

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")


def causes_of(obj: Json) -> list[Cause]:
    """What is wrong with a CustomResourceDefinition."""
    spec = section(obj, "spec")
    names, group = section(spec, "names"), str(spec.get("group") or "")
    causes = [required(f"spec.names.{key}") for key in ("plural", "kind") if not names.get(key)]
    if not is_subdomain(group) or "." not in group:
        causes.append(
            invalid_value("spec.group", group, "should be a domain with at least one dot")
        )
    expected = f"{names.get('plural')}.{group}"
    if meta(obj).get("name") != expected:
        causes.append(
            invalid_value(
                "metadata.name", meta(obj).get("name"), 'must be spec.names.plural+"."+spec.group'
            )
        )
    if spec.get("scope") not in {"Namespaced", "Cluster"}:
        causes.append(not_supported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
    causes += [
        invalid_value(f"spec.names.{key}", names[key], "must be a DNS label")
        for key in ("plural", "singular")
        if names.get(key) and not is_dns_label(str(names[key]))
    ]
    return causes + _version_causes(entries(spec, "versions"))


def _version_causes(versions: list[Json]) -> list[Cause]:
    causes: list[Cause] = []
    if not versions:
        return [required("spec.versions", "must have at least one version")]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        causes.append(
            invalid_value(
                "spec.versions", "", "must have exactly one version marked as storage version"
            )
        )
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        if not is_dns_label(str(version.get("name") or "")):
            causes.append(
                invalid_value(f"{where}.name", version.get("name"), "must be a DNS label")
            )
        schema = section(version, "schema").get("openAPIV3Schema")
        field = f"{where}.schema.openAPIV3Schema"
        if not isinstance(schema, dict):
            causes.append(required(field, "schemas are required"))
            continue
        if schema.get("type") != "object":
            causes.append(
                invalid_value(f"{field}.type", schema.get("type"), "must be object at the root")
            )
        causes += list(_schema_causes(schema, field, root=True))
    return causes


def _schema_causes(schema: Schema, field: str, *, root: bool = False) -> Iterator[Cause]:
    kind = schema.get("type")
    if not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        text = (
            "must not be empty at the root"
            if root
            else "must not be empty for specified object fields"
        )
        yield required(f"{field}.type", text)
    if kind and kind not in _TYPES:
        yield not_supported(f"{field}.type", kind, _TYPES)
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        yield field_forbidden(
            f"{field}.additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        )
    if schema.get("uniqueItems"):
        yield field_forbidden(
            f"{field}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    if schema.get("pattern") and (problem := _pattern_problem(str(schema["pattern"]))):
        yield invalid_value(f"{field}.pattern", schema["pattern"], problem)
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{field}.items", "must be specified")
    for junctor in _JUNCTORS:
        for index, part in enumerate(schema.get(junctor) or ()):
            yield from _junctor_causes(part, f"{field}.{junctor}[{index}]", schema)
    yield from _rule_causes(schema, field)
    if "default" in schema and not root:
        yield from value_causes(schema["default"], schema, f"{field}.default")
    yield from _inner_causes(schema, field)


def _pattern_problem(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        return f"must be a valid regular expression, but isn't: {error}"
    return ""


def _junctor_causes(part: Schema, field: str, outer: Schema) -> Iterator[Cause]:
    if outer.get(INT_OR_STRING):
        return
    for key in ("type", "default", "additionalProperties", "nullable", "description", "title"):
        if part.get(key):
            yield field_forbidden(f"{field}.{key}", "must be empty to be structural")


def _rule_causes(schema: Schema, field: str) -> Iterator[Cause]:
    for index, rule in enumerate(schema.get(RULES) or ()):
        where = f"{field}.x-kubernetes-validations[{index}]"
        for key in ("rule", "messageExpression"):
            text = rule.get(key)
            problem = cel.check(str(text)) if text else ""
            if problem:
                yield invalid_value(f"{where}.{key}", text, problem)
        if not rule.get("rule"):
            yield required(f"{where}.rule", "rule is not specified")


def _inner_causes(schema: Schema, field: str) -> Iterator[Cause]:
    for name, inner in (schema.get("properties") or {}).items():
        if field.endswith("openAPIV3Schema") and name == "metadata":
            continue
        yield from _one(inner, f"{field}.properties[{name}]")
    rest: Any = schema.get("additionalProperties")
    if isinstance(rest, dict):
        yield from _one(rest, f"{field}.additionalProperties")
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _one(items, f"{field}.items")


def _one(inner: Any, field: str) -> Iterator[Cause]:
    if isinstance(inner, dict):
        yield from _schema_causes(inner, field)
    else:
        yield invalid_value(field, inner, "must be a schema")
