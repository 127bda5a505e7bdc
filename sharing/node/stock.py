"""Taking stock: everything that is known about a node at one moment becomes a report (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharing.errors import InputError
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.mode import Mode
from sharing.node.clients import limits_of
from sharing.node.health import Ailment
from sharing.node.observed import GpuState
from sharing.node.offer import offer_of
from sharing.node.plan import GpuPlan, Kubelet
from sharing.node.planning import plan_gpu
from sharing.node.status import GpuReport
from sharing.node.target import Target, refusal
from sharing.node.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the agent itself knows about its GPUs, by UUID."""

    served: Mapping[str, GpuLayout] = field(default_factory=dict)
    """What is offered in full now."""
    applied: Mapping[str, GpuLayout] = field(default_factory=dict)
    """What was served last, also by earlier agents."""
    ailments: Mapping[str, Ailment] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """What went wrong with the last step on a GPU."""


def take_stock(
    gpu: GpuState, wanted: Wanted, kubelet: Kubelet, known: Knowledge, *, managed: bool = True
) -> GpuReport:
    """What is, shall be and is to be done about one GPU.

    A layout that the board cannot have changes nothing: what is served goes on.

    Args:
        gpu: The GPU as it is.
        wanted: What the node shall be.
        kubelet: What the kubelet counts and who holds it.
        known: What the agent knows.
        managed: Whether the node is ours; if not, nothing is offered and nothing is changed.
    """
    applied = known.applied.get(gpu.uuid)
    wish = wanted.of(gpu, applied)
    layout: GpuLayout | None = wish.layout
    refused = ""
    if error := impossible(gpu, wish.layout):
        kept = [one for one in (applied, gpu.as_found()) if one and not impossible(gpu, one)]
        layout, refused = (kept[0] if kept else None), str(error)
    holds = kubelet.held.on(gpu.uuid)
    if layout is None or not managed:
        target = Target(layout=EXCLUSIVE_LAYOUT if layout is None else layout)
        offer = offer_of(gpu, target, kubelet, closed=True)
        return GpuReport(
            gpu=gpu,
            plan=GpuPlan(gpu=gpu.uuid, target=target),
            offer=offer,
            holds=holds,
            refused=refused,
            ailments=known.ailments,
        )
    served = known.served.get(gpu.uuid)
    plan = plan_gpu(gpu, layout, kubelet, served=served)
    return GpuReport(
        gpu=gpu,
        plan=plan,
        offer=offer_of(gpu, plan.target, kubelet),
        holds=holds,
        served=served if served == layout else None,
        cordoned=wish.cordoned,
        refused=refused,
        failure=known.failures.get(gpu.uuid, ""),
        ailments=known.ailments,
    )


def impossible(gpu: GpuState, layout: GpuLayout) -> InputError | None:
    """Why a GPU can never have a layout; None if it can."""
    if layout.mode is Mode.MPS:
        try:
            limits_of(layout, gpu.memory_mib)
        except InputError as error:
            return error
    return refusal(gpu.board, layout)
