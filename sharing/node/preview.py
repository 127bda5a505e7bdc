"""What would be done to a node for a layout, with the planner that the agent uses (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sharing.layout import GpuLayout
from sharing.node.facts import GpuFacts, NodeFacts
from sharing.node.held import Held
from sharing.node.plan import Blocker, Kubelet
from sharing.node.step import Step, interrupts
from sharing.node.stock import Knowledge, take_stock
from sharing.node.target import target_of
from sharing.node.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPreview:
    """One step."""

    text: str
    undo: str
    interrupts: str
    blocked_by: tuple[Blocker, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "do": self.text,
            "undo": self.undo,
            "interrupts": self.interrupts,
            "blockedBy": [{"kind": one.kind.value, "text": one.text} for one in self.blocked_by],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPreview:
    """One GPU."""

    index: int
    uuid: str
    board: str
    now: GpuLayout
    wanted: GpuLayout
    refused: str
    steps: tuple[StepPreview, ...]

    @property
    def blocked(self) -> bool:
        """Whether it has to wait for somebody."""
        return any(step.blocked_by for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "index": self.index,
            "uuid": self.uuid,
            "board": self.board,
            "now": str(self.now),
            "wanted": str(self.wanted),
            "refused": self.refused,
            "steps": [step.to_json() for step in self.steps],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePreview:
    """One node."""

    name: str
    gpus: tuple[GpuPreview, ...]
    unknown: str

    @property
    def can_be_done(self) -> bool:
        """Whether nothing is refused and nothing has to wait."""
        return not any(gpu.refused or gpu.blocked for gpu in self.gpus)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "node": self.name,
            "unknown": self.unknown,
            "gpus": [gpu.to_json() for gpu in self.gpus],
        }


def preview_node(facts: NodeFacts, wanted: Wanted) -> NodePreview:
    """What would become of a node.

    Args:
        facts: The node as it is.
        wanted: What its GPUs shall be; those that are not named stay as they are.
    """
    served = {one.gpu.uuid: one.served for one in facts.gpus}
    known = Knowledge(served=served, applied=served)
    return NodePreview(
        name=facts.name,
        gpus=tuple(_gpu(one, wanted, known) for one in facts.gpus),
        unknown=facts.unknown,
    )


def _gpu(facts: GpuFacts, wanted: Wanted, known: Knowledge) -> GpuPreview:
    gpu = facts.gpu
    offered = target_of(gpu, facts.served, facts.holds).offers(gpu)
    kubelet = Kubelet(held=Held.of(facts.holds), offered=offered)
    report = take_stock(gpu, wanted, kubelet, known)
    asked = wanted.of(gpu, facts.served).layout
    return GpuPreview(
        index=gpu.index,
        uuid=gpu.uuid,
        board=gpu.board.name,
        now=facts.served,
        wanted=asked,
        refused=report.refused,
        steps=tuple(
            StepPreview(
                text=one.step.text,
                undo=_undoing(one.step.inverse()),
                interrupts=interrupts(one.step),
                blocked_by=one.blocked_by,
            )
            for one in report.plan.steps
        ),
    )


def _undoing(inverse: Step | str) -> str:
    return inverse if isinstance(inverse, str) else inverse.text
