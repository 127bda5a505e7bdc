"""Label and field selectors, as texts of a query and as objects in a spec (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from embedded.apiserver.objects import Json, meta, section
from embedded.apiserver.status import bad_request

_SETWISE: Final = re.compile(r"(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY: Final = re.compile(r"(?P<key>[^\s!=]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s,=!]*)")
_ORDERED: Final = re.compile(r"(?P<key>[^\s<>]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)")
_EXISTS: Final = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s!=,<>()]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term of a label selector."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the term (a missing key satisfies the negative ones)."""
        value = labels.get(self.key)
        if self.op == "Exists":
            return value is not None
        if self.op == "DoesNotExist":
            return value is None
        if self.op == "In":
            return value is not None and value in self.values
        if self.op == "NotIn":
            return value is None or value not in self.values
        if value is None or not re.fullmatch(r"-?\d+", value):
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.op == "Gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Terms that must all hold; no term matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether every term holds."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_labels(text: str) -> LabelSelector:
    """A ``labelSelector`` query.

    Raises:
        StatusError: 400, the text is no selector.
    """
    terms = re.split(r",(?![^()]*\))", text) if text.strip() else []
    return LabelSelector(tuple(_requirement(term.strip()) for term in terms))


def _requirement(term: str) -> Requirement:
    if found := _SETWISE.fullmatch(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(
            key=found["key"], op="In" if found["op"] == "in" else "NotIn", values=values
        )
    if found := _EQUALITY.fullmatch(term):
        op = "NotIn" if found["op"] == "!=" else "In"
        return Requirement(key=found["key"], op=op, values=frozenset({found["value"]}))
    if found := _ORDERED.fullmatch(term):
        op = "Gt" if found["op"] == ">" else "Lt"
        return Requirement(key=found["key"], op=op, values=frozenset({found["value"]}))
    if found := _EXISTS.fullmatch(term):
        return Requirement(key=found["key"], op="DoesNotExist" if found["not"] else "Exists")
    raise bad_request(f"unable to parse requirement: {_complaint(term)}")


def _complaint(term: str) -> str:
    """What is wrong with a term, in the words of apimachinery's ``labels.Parser``."""
    found = re.match(r"!?\s*[^\s!=,<>()]+\s*(?P<op>==|=|!=|[<>])?\s*(?P<rest>\S*)", term)
    if found is None:
        return f"found '{term[:40]}', expected: identifier"
    if found["op"]:
        return f"found '{found['rest'][:1]}', expected: identifier"
    return f"found '{found['rest'][:40]}', expected: in, notin, =, ==, !=, gt, lt"


def labels_from_object(selector: Json | None) -> LabelSelector:
    """A ``metav1.LabelSelector``; nothing and an empty one match everything.

    Raises:
        StatusError: 400, an operator is unknown.
    """
    terms = [
        Requirement(key=key, op="In", values=frozenset({str(value)}))
        for key, value in sorted(section(selector, "matchLabels").items())
    ]
    for expression in (selector or {}).get("matchExpressions") or []:
        op = expression.get("operator")
        if op not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            raise bad_request(f"{op!r} is not a valid label selector operator")
        terms.append(
            Requirement(
                key=str(expression.get("key", "")),
                op=op,
                values=frozenset(map(str, expression.get("values") or ())),
            )
        )
    return LabelSelector(tuple(terms))


def _at(*path: str) -> Callable[[Json], str]:
    def read(obj: Json) -> str:
        value: Any = section(obj, *path[:-1]).get(path[-1])
        return "" if value is None else str(value)

    return read


_ALWAYS: Final[dict[str, Callable[[Json], str]]] = {
    "metadata.name": lambda obj: str(meta(obj).get("name") or ""),
    "metadata.namespace": lambda obj: str(meta(obj).get("namespace") or ""),
}


def _paths(*names: str) -> dict[str, Callable[[Json], str]]:
    return {name: _at(*name.split(".")) for name in names}


def _unschedulable(obj: Json) -> bool:
    return bool(section(obj, "spec").get("unschedulable"))


# Which fields a kind can be selected by: the registries' GetAttrs/ToSelectableFields.
_SELECTABLE: Final[dict[str, dict[str, Callable[[Json], str]]]] = {
    "pods": _paths(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": _paths(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    )
    | {"source": _at("source", "component")},
    "nodes": {"spec.unschedulable": lambda obj: str(_unschedulable(obj)).lower()},
    "namespaces": _paths("status.phase"),
    "secrets": _paths("type"),
    "services": _paths("spec.clusterIP", "spec.type"),
    "jobs.batch": _paths("status.successful"),
    "replicasets.apps": _paths("status.replicas"),
}


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms (reader, wanted value, equal or not) that must all hold."""

    terms: tuple[tuple[Callable[[Json], str], str, bool], ...] = ()

    def matches(self, obj: Json) -> bool:
        """Whether every term holds."""
        return all((read(obj) == value) is equal for read, value, equal in self.terms)


def parse_fields(text: str, resource: str, extra: Mapping[str, str] | None = None) -> FieldSelector:
    """A ``fieldSelector`` query.

    Args:
        text: ``a.b=c,d!=e``.
        resource: ``plural.group``, whose selectable fields hold.
        extra: Selectable fields of a custom resource (name → JSON path).

    Raises:
        StatusError: 400, the text is no selector or the field cannot be selected by.
    """
    known = _ALWAYS | _SELECTABLE.get(resource, {})
    known |= {name: _at(*path.strip(".").split(".")) for name, path in (extra or {}).items()}
    terms = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        found = re.fullmatch(r"([^=!]+?)\s*(==|=|!=)\s*(.*)", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text[:200]}'; can't understand '{term[:200]}'")
        if found[1] not in known:
            if resource in _SELECTABLE or "." in resource:
                raise bad_request(f"field label not supported: {found[1]}")
            raise bad_request(
                f'"{found[1]}" is not a known field selector: only "metadata.name", '
                '"metadata.namespace"'
            )
        terms.append((known[found[1]], found[3], found[2] != "!="))
    return FieldSelector(tuple(terms))
