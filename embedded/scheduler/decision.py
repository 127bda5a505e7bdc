"""Where a pod goes, and if nowhere, why: kube-scheduler's default filters and scores.

Ties are broken by the node's name, where kube-scheduler draws lots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from embedded.scheduler.amounts import CPU, MEMORY, added
from embedded.scheduler.fit import shortages
from embedded.scheduler.neighbours import neighbour_reason, terms_of
from embedded.scheduler.selectors import matches_term, matches_terms
from embedded.scheduler.taints import HARD_EFFECTS, SOFT_EFFECT, tolerates, untolerated
from embedded.scheduler.views import UNSCHEDULABLE_TAINT, Node, Pod

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
# Weights of the default plugin configuration.
_TAINT_WEIGHT: Final = 3
_AFFINITY_WEIGHT: Final = 2
_FULL: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A node and what is on it.

    Attributes:
        node: The node.
        pods: The pods on it that hold something.
    """

    node: Node
    pods: tuple[Pod, ...] = ()
    used: Mapping[str, int] = field(init=False)
    scored: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "used", added(*(pod.demand for pod in self.pods)))
        object.__setattr__(self, "scored", added(*(pod.scored for pod in self.pods)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome for one pod.

    Attributes:
        node: Name of the chosen node; empty if none fits.
        reasons: Why each refused node was refused, by the node's name.
    """

    node: str = ""
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The sentence of kube-scheduler for a pod that fits nowhere."""
        if not self.reasons:
            return "no nodes available to schedule pods"
        counted = Counter(reason for reasons in self.reasons.values() for reason in reasons)
        parts = sorted(f"{count} {reason}" for reason, count in counted.items())
        total = len(self.reasons)
        return f"0/{total} nodes are available: {', '.join(parts)}."


def rooms_of(nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[Room, ...]:
    """Each node with its pods, in order of node names. Finished pods hold nothing."""
    held: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node and not pod.finished:
            held.setdefault(pod.node, []).append(pod)
    return tuple(
        Room(node=node, pods=tuple(held.get(node.name, ())))
        for node in sorted(nodes, key=lambda node: node.name)
    )


def schedule(
    pod: Pod,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    *,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
) -> Decision:
    """Choose a node for a pod.

    Args:
        pod: The pod to place.
        nodes: All nodes.
        pods: All pods that are bound; the order does not matter.
        namespaces: Labels of each namespace, for affinity between pods.
    """
    return choose(pod, rooms_of(nodes, pods), namespaces=namespaces or {})


def choose(
    pod: Pod, rooms: Sequence[Room], *, namespaces: Mapping[str, Mapping[str, str]]
) -> Decision:
    """As ``schedule``, over rooms that are counted already."""
    reasons = {room.node.name: refusals(pod, room, rooms, namespaces) for room in rooms}
    fitting = [room for room in rooms if not reasons[room.node.name]]
    if not fitting:
        return Decision(reasons=reasons)
    marks = scores(pod, fitting)
    best = min(fitting, key=lambda room: (-marks[room.node.name], room.node.name))
    return Decision(node=best.node.name, reasons={k: v for k, v in reasons.items() if v})


def refusals(
    pod: Pod,
    room: Room,
    rooms: Sequence[Room],
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[str, ...]:
    """Why a node refuses a pod: the reasons of the first filter that does; empty if none."""
    node, spec = room.node, pod.spec
    tolerations = spec.get("tolerations") or []
    if node.unschedulable and not any(tolerates(one, UNSCHEDULABLE_TAINT) for one in tolerations):
        return ("node(s) were unschedulable",)
    if spec.get("nodeName") and spec["nodeName"] != node.name:
        return ("node(s) didn't match the requested node name",)
    for taint in untolerated(node.taints, tolerations, HARD_EFFECTS):
        shown = f"{taint.get('key')}: {taint.get('value') or ''}"
        return (f"node(s) had untolerated taint {{{shown}}}",)
    if not selects(pod, node):
        return ("node(s) didn't match Pod's node affinity/selector",)
    missing = shortages(
        pod.demand, used=room.used, pods=len(room.pods), allocatable=node.allocatable
    )
    if missing:
        return tuple(str(one) for one in missing)
    reason = _neighbour_reason(pod, node, rooms, namespaces)
    return (reason,) if reason else ()


def selects(pod: Pod, node: Node) -> bool:
    """Whether the pod's node selector and required node affinity accept a node."""
    wanted = pod.spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    if required is None:
        return True
    return matches_terms(required.get("nodeSelectorTerms") or [], node.labels, node.name)


def _neighbour_reason(
    pod: Pod, node: Node, rooms: Sequence[Room], namespaces: Mapping[str, Mapping[str, str]]
) -> str:
    placed = [(other, room.node) for room in rooms for other in room.pods]
    concerned = terms_of(pod, "podAffinity") or terms_of(pod, "podAntiAffinity")
    if not concerned and not any(terms_of(other, "podAntiAffinity") for other, _ in placed):
        return ""
    return neighbour_reason(pod, node, placed, namespaces)


def scores(pod: Pod, rooms: Sequence[Room]) -> dict[str, int]:
    """How much each fitting node is wanted: free room, preferred affinity, soft taints."""
    tolerations = pod.spec.get("tolerations") or []
    soft = {
        room.node.name: len(untolerated(room.node.taints, tolerations, (SOFT_EFFECT,)))
        for room in rooms
    }
    liked = {room.node.name: _preference(pod, room.node) for room in rooms}
    most_soft, most_liked = max(soft.values()), max(liked.values())
    marks = {}
    for room in rooms:
        name = room.node.name
        shunned = soft[name] * _FULL // most_soft if most_soft else 0
        preferred = liked[name] * _FULL // most_liked if most_liked else 0
        marks[name] = (
            _free(pod, room) + (_FULL - shunned) * _TAINT_WEIGHT + preferred * _AFFINITY_WEIGHT
        )
    return marks


def _preference(pod: Pod, node: Node) -> int:
    affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
    return sum(
        int(term.get("weight") or 0)
        for term in affinity.get(_PREFERRED) or []
        if matches_term(term.get("preference") or {}, node.labels, node.name)
    )


def _free(pod: Pod, room: Room) -> int:
    """LeastAllocated: the mean share of cpu and memory that would stay free, in percent."""
    shares = []
    for name in (CPU, MEMORY):
        capacity = room.node.allocatable.get(name, 0)
        left = capacity - room.scored.get(name, 0) - pod.scored.get(name, 0)
        if capacity:
            shares.append(max(left, 0) * _FULL // capacity)
    return sum(shares) // len(shares) if shares else 0
