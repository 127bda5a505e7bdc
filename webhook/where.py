"""Where a pod may run, as far as its author says it: node selector and required node affinity.

Only a help for choosing: the scheduler remains the judge. So whatever is malformed, huge or
cannot be known here is passed over, which at worst lets a pod in that then waits; and what a
tenant can write costs a bounded amount of work.

Source: Kubernetes API reference, PodSpec ``nodeSelector``, NodeSelector, NodeSelectorTerm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sharing.names import PREFIX
from webhook.container import mapping

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_MOST: Final = 64
"""Labels of a selector, and requirements and values of an affinity, that are looked at."""
_LONGEST: Final = 317
"""Characters of a label's key: 253 of its prefix, a slash, 63 of its name."""
_MEMORY_SUFFIX: Final = ".memory-mib"


class Requirement(NamedTuple):
    """One condition on a node's labels, or on its name."""

    key: str
    """Empty for the node's name."""
    operator: str
    values: tuple[str, ...] = ()


class Where(NamedTuple):
    """Conditions on a node; hashable, bounded in size."""

    selector: tuple[tuple[str, str], ...] = ()
    """Labels that a node must carry, sorted."""
    terms: tuple[tuple[Requirement, ...], ...] | None = None
    """One of them must hold; None where the pod says nothing."""

    @property
    def names_nodes(self) -> bool:
        """Whether it is bound to nodes by name, as pods of a DaemonSet are."""
        return any(not one.key for term in self.terms or () for one in term)

    def without_names(self) -> Where:
        """The same, wherever the named nodes may be."""
        if self.terms is None:
            return self
        terms = (tuple(one for one in term if one.key) for term in self.terms)
        return self._replace(terms=tuple(terms))


ANYWHERE: Final = Where()


def where_of(spec: Mapping[str, Any], node_selector: tuple[tuple[str, str], ...]) -> Where:
    """Where a pod may run.

    Args:
        spec: The pod's.
        node_selector: The profile's, sorted; the pod's own labels stand over it.
    """
    own, affinity = spec.get("nodeSelector"), spec.get("affinity")
    if not own and not affinity:
        return Where(node_selector) if node_selector else ANYWHERE
    selector = node_selector
    if isinstance(own, dict) and 0 < len(own) <= _MOST:
        merged = {**dict(node_selector), **own}
        selector = tuple(sorted(i for i in merged.items() if _short(*i) and not _counted(i[0])))
    return Where(selector, _terms(affinity) if affinity else None)


def _terms(affinity: object) -> tuple[tuple[Requirement, ...], ...] | None:
    node = mapping(affinity, "nodeAffinity") if isinstance(affinity, dict) else {}
    listed = mapping(node, _REQUIRED).get("nodeSelectorTerms")
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
        return None
    terms, left = [], _MOST
    for raw in listed:
        term = _term(raw)
        if term is None:
            continue
        left -= sum(1 + len(one.values) for one in term)
        if left < 0:
            return None
        terms.append(term)
    return tuple(terms)


def _term(raw: object) -> tuple[Requirement, ...] | None:
    """One term; None for an empty one, which no node fulfils."""
    if not isinstance(raw, dict):
        return ()
    labels, fields = raw.get("matchExpressions"), raw.get("matchFields")
    if not labels and not fields:
        return None
    found = [_requirement(one, one.get("key")) for one in _maps(labels)]
    found += [_requirement(one, "") for one in _maps(fields) if one.get("key") == "metadata.name"]
    return tuple(one for one in found if one is not None)


def _maps(listed: object) -> list[dict[str, Any]]:
    found = listed[: _MOST + 1] if isinstance(listed, list) else ()
    return [one for one in found if isinstance(one, dict)]


def _requirement(raw: Mapping[str, Any], key: object) -> Requirement | None:
    operator, values = raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or operator not in _OPERATORS or not isinstance(values, list):
        return None
    if len(values) > _MOST or not _short(key, *values) or _counted(key):
        return None
    return Requirement(key, operator, tuple(values))


def _short(*texts: object) -> bool:
    return all(isinstance(text, str) and len(text) <= _LONGEST for text in texts)


def _counted(key: str) -> bool:
    """Whether it is a label that says how much memory shares have.

    We write conditions on these ourselves, out of the decision: they must not bear on it when the
    pod comes by again.
    """
    return key.endswith(_MEMORY_SUFFIX) and PREFIX + "/" in key
