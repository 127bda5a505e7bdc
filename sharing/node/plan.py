"""A plan: the ordered steps for each GPU that differs, and what blocks them.

A plan is made anew from what the driver and the kubelet say whenever something changed, so that it
needs no memory: after a crash, a reboot or a change behind our back the next plan is the right
one. How it is made is in ``planning``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from sharing.node.held import Held
from sharing.node.step import Step, Withdraw
from sharing.node.target import Offered, Target


class BlockerKind(StrEnum):
    """What a step waits for."""

    POD = "pod"
    PROCESS = "process"
    GPU = "gpu"
    KUBELET = "kubelet"


@dataclass(frozen=True, slots=True, order=True)
class Blocker:
    """Who or what a step waits for, in words for a person."""

    kind: BlockerKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """What the kubelet says about a node's shares."""

    held: Held
    offered: frozenset[Offered]
    """The shares that it may hand out or has handed out: listed to it, and healthy."""

    def with_told(self, told: Iterable[Offered]) -> Kubelet:
        """The same with what the kubelet was told and may take in at any moment.

        It hands out shares from the moment that it hears of them, which may be between a look at
        it and the withdrawal.
        """
        return replace(self, offered=self.offered | frozenset(told))

    def on(self, gpu_uuid: str) -> frozenset[Offered]:
        """What it counts on one GPU."""
        prefix = f"{gpu_uuid}::"
        return frozenset(
            one
            for one in self.offered
            if one.device_id == gpu_uuid or one.device_id.startswith(prefix)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step and what it waits for."""

    step: Step
    blocked_by: tuple[Blocker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """What is to be done to one GPU, and where its layout comes to lie."""

    gpu: str
    target: Target
    steps: tuple[PlannedStep, ...] = ()

    @property
    def ready(self) -> tuple[Step, ...]:
        """The steps that may be done now, in order.

        A withdrawal stands alone: who holds what has to be read again after it.
        """
        steps = tuple(planned.step for planned in self.steps if not planned.blocked_by)
        return steps[:1] if steps and isinstance(steps[0], Withdraw) else steps

    @property
    def blocked_by(self) -> tuple[Blocker, ...]:
        """Everything that its steps wait for, each once."""
        return tuple(sorted({blocker for one in self.steps for blocker in one.blocked_by}))
