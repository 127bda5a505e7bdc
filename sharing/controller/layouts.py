"""From GPULayouts and nodes to each GPUNode's spec, and what to say about each layout (pure).

A node follows one layout: of those that select it the one of the highest priority, ties broken by
name. A spec that people wrote by hand is respected: the controller marks what it writes with an
annotation that holds a digest, and leaves alone a spec that does not match its mark. An empty
``spec.gpus`` gives the node back to the controller. ``cordoned`` belongs to people and is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sharing.api.layout import GpuLayoutSpec, LayoutSpec
from sharing.api.node import Condition, GpuNodeSpec, WantedGpu
from sharing.layout import GpuIdentity, LayoutEntry, assign
from sharing.names import STATUS_PREFIX

MARK: Final = f"{STATUS_PREFIX}/spec"
"""Annotation of a GPUNode: ``<layout>/<digest>`` of the spec that the controller wrote."""
_NO_LAYOUT: Final = "-"
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSeen:
    """A GPULayout as the controller reads it."""

    name: str
    generation: int | None = None
    spec: GpuLayoutSpec | None = None
    """None where it cannot be understood."""
    complaint: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def rank(self) -> tuple[int, str]:
        """Best first."""
        return (-(self.spec.priority if self.spec else 0), self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A managed node: its Node's labels and its GPUNode."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[GpuIdentity, ...] = ()
    """As its agent reported them; empty until it did."""
    spec: GpuNodeSpec = field(default_factory=GpuNodeSpec)
    mark: str = ""
    version: str = ""
    """resourceVersion of the GPUNode."""
    readable: bool = True
    """Whether its spec can be understood; if not, people wrote it."""
    trouble: str = ""
    """Why its agent says that it is not ready; empty if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecWrite:
    """A spec to be written."""

    node: str
    spec: GpuNodeSpec
    mark: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOutcome:
    """What became of one layout."""

    layout: str
    ready: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the controller does about layouts."""

    writes: tuple[SpecWrite, ...]
    outcomes: tuple[LayoutOutcome, ...]


def assign_layouts(layouts: Iterable[LayoutSeen], nodes: Iterable[NodeSeen]) -> Assignment:
    """Decide for all nodes; each node's result depends on that node and the layouts alone."""
    ranked = sorted(layouts, key=lambda layout: layout.rank)
    usable = [layout for layout in ranked if layout.spec is not None]
    placed = [_Placed.of(node, usable) for node in sorted(nodes, key=lambda node: node.name)]
    return Assignment(
        writes=tuple(write for one in placed if (write := one.write()) is not None),
        outcomes=tuple(_outcome(layout, placed) for layout in ranked),
    )


def spec_for(node: NodeSeen, entries: Sequence[LayoutEntry]) -> GpuNodeSpec:
    """What a node's GPUs become by layout entries; cordons stay as people set them."""
    cordoned = {gpu.uuid for gpu in node.spec.gpus if gpu.cordoned}
    return GpuNodeSpec(
        gpus=tuple(
            WantedGpu(
                uuid=gpu.uuid,
                layout=LayoutSpec.from_layout(layout),
                cordoned=gpu.uuid in cordoned,
            )
            for gpu, layout in assign(entries, node.gpus)
        )
    )


def mark_of(layout: str, spec: GpuNodeSpec) -> str:
    """The annotation that says who wrote a spec."""
    return f"{layout}/{_digest(spec)}"


def is_by_hand(node: NodeSeen) -> bool:
    """Whether people wrote the node's spec."""
    if not node.readable:
        return True
    if not node.spec.gpus:
        return False
    return node.mark.rpartition("/")[2] != _digest(node.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A node, the layout that it follows, and those that select it besides."""

    node: NodeSeen
    layout: LayoutSeen | None
    others: tuple[LayoutSeen, ...]
    by_hand: bool

    @classmethod
    def of(cls, node: NodeSeen, ranked: Sequence[LayoutSeen]) -> _Placed:
        selecting = [
            layout
            for layout in ranked
            if layout.spec is not None and layout.spec.node_selector.selects(node.labels)
        ]
        return cls(
            node=node,
            layout=selecting[0] if selecting else None,
            others=tuple(selecting[1:]),
            by_hand=is_by_hand(node),
        )

    def write(self) -> SpecWrite | None:
        """What to write; None where nothing differs or it is not ours to write."""
        node, layout = self.node, self.layout
        if self.by_hand or not node.gpus or not node.version:
            return None
        if layout is None and not node.mark:
            return None  # never had a layout: its GPUs stay as they were found
        name = _NO_LAYOUT if layout is None else layout.name
        spec = spec_for(node, layout.spec.entries() if layout and layout.spec else ())
        mark = mark_of(name, spec)
        if spec == node.spec and mark == node.mark:
            return None
        return SpecWrite(node=node.name, spec=spec, mark=mark, version=node.version)


def _outcome(layout: LayoutSeen, placed: Sequence[_Placed]) -> LayoutOutcome:
    if layout.spec is None:
        return LayoutOutcome(
            layout=layout.name, ready=False, reason="Invalid", message=layout.complaint
        )
    followers = [one for one in placed if one.layout is layout]
    overruled = [one for one in placed if layout in one.others]
    served = [one for one in followers if not one.by_hand]
    said = [f"{len(served)} nodes follow it"]
    said += [f"{one.node.name} follows {_name(one.layout)} instead" for one in overruled]
    said += [
        f"{one.node.name} has a spec that was written by hand; empty its spec.gpus to apply this"
        for one in followers
        if one.by_hand
    ]
    waiting = [one for one in served if not one.node.gpus or one.write() is not None]
    said += [f"{one.node.name} waits for its agent" for one in waiting]
    troubled = [one for one in served if one.node.trouble and one not in waiting]
    said += [f"{one.node.name}: {one.node.trouble}" for one in troubled]
    reason = _reason(layout, followers, overruled, troubled=bool(troubled or waiting))
    return LayoutOutcome(
        layout=layout.name, ready=reason == "Applied", reason=reason, message="; ".join(said)
    )


def _reason(
    layout: LayoutSeen,
    followers: Sequence[_Placed],
    overruled: Sequence[_Placed],
    *,
    troubled: bool,
) -> str:
    if any(one.layout and one.layout.rank[0] == layout.rank[0] for one in overruled):
        return "Conflict"
    if any(one.by_hand for one in followers):
        return "WrittenByHand"
    if troubled:
        return "Pending"
    if not followers:
        return "Overruled" if overruled else "NoNodes"
    return "Applied"


def _name(layout: LayoutSeen | None) -> str:
    return layout.name if layout is not None else "nothing"


def _digest(spec: GpuNodeSpec) -> str:
    """A digest of the layouts by GPU; cordons do not count."""
    lines = sorted(f"{gpu.uuid} {gpu.layout.to_layout()}" for gpu in spec.gpus)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]
