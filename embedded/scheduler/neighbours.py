"""Required affinity and anti-affinity between pods (interpodaffinity plugin)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from embedded.scheduler.selectors import matches_labels

if TYPE_CHECKING:
    from embedded.scheduler.views import Node, Pod

NO_AFFINITY: Final = "node(s) didn't match pod affinity rules"
NO_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
OTHERS_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def terms_of(pod: Pod, which: str) -> list[Mapping[str, Any]]:
    """The required terms of ``podAffinity`` or ``podAntiAffinity``."""
    affinity = pod.spec.get("affinity") or {}
    return list((affinity.get(which) or {}).get(_REQUIRED) or [])


def neighbour_reason(
    pod: Pod,
    node: Node,
    placed: Iterable[tuple[Pod, Node]],
    namespaces: Mapping[str, Mapping[str, str]],
) -> str:
    """Why pods that are placed already forbid this node; empty if they do not.

    Args:
        pod: The pod to place.
        node: The node asked about.
        placed: Every pod that is on a node, with that node.
        namespaces: Labels of each namespace, for namespace selectors.
    """
    pairs = list(placed)
    for other, its_node in pairs:
        for term in terms_of(other, "podAntiAffinity"):
            if _matches(term, other, pod, namespaces) and _together(term, node, its_node):
                return OTHERS_ANTI_AFFINITY
    for term in terms_of(pod, "podAffinity"):
        matching = [its for other, its in pairs if _matches(term, pod, other, namespaces)]
        # The first pod of a group that wants to be together may go anywhere with the label.
        if not matching and _matches(term, pod, pod, namespaces):
            if _topology(term, node) is None:
                return NO_AFFINITY
        elif not any(_together(term, node, its_node) for its_node in matching):
            return NO_AFFINITY
    for term in terms_of(pod, "podAntiAffinity"):
        if any(
            _matches(term, pod, other, namespaces) and _together(term, node, its_node)
            for other, its_node in pairs
        ):
            return NO_ANTI_AFFINITY
    return ""


def _topology(term: Mapping[str, Any], node: Node) -> str | None:
    return node.labels.get(str(term.get("topologyKey")))


def _together(term: Mapping[str, Any], node: Node, other: Node) -> bool:
    here = _topology(term, node)
    return here is not None and here == _topology(term, other)


def _matches(
    term: Mapping[str, Any],
    owner: Pod,
    other: Pod,
    namespaces: Mapping[str, Mapping[str, str]],
) -> bool:
    listed = term.get("namespaces") or []
    selector = term.get("namespaceSelector")
    if not listed and selector is None:
        reached = other.namespace == owner.namespace
    else:
        reached = other.namespace in listed or matches_labels(
            selector, namespaces.get(other.namespace, {})
        )
    return reached and matches_labels(term.get("labelSelector"), other.labels)
