"""Taking stock: everything that is known about a node at one moment becomes a report (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharing.errors import InputError
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.mode import Mode
from sharing.node.acquaintance import Acquaintance, in_new_names
from sharing.node.clients import limits_of
from sharing.node.health import Ailment
from sharing.node.observed import GpuState
from sharing.node.offer import offer_of
from sharing.node.plan import GpuPlan, Kubelet
from sharing.node.planning import plan_gpu
from sharing.node.retreat import Retreat, previous
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
    retreats: Mapping[str, Retreat] = field(default_factory=dict)
    """Layouts that were given up for a while, and for how long that lasts."""
    gpus: Mapping[str, Acquaintance] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)
    """What processes of ended pods still use, by device id or GPU UUID, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intent:
    """What is to be made of one GPU, and why it is not what was asked for."""

    layout: GpuLayout | None
    """None where nothing can be made of it."""
    refused: str = ""
    retreat: Retreat | None = None
    note: str = ""


def take_stock(
    gpu: GpuState,
    wanted: Wanted,
    kubelet: Kubelet,
    known: Knowledge,
    *,
    managed: bool = True,
    rival: str = "",
) -> GpuReport:
    """What is, shall be and is to be done about one GPU.

    A layout that the board cannot have changes nothing: what is served goes on.

    Args:
        gpu: The GPU as it is.
        wanted: What the node shall be.
        kubelet: What the kubelet counts and who holds it.
        known: What the agent knows.
        managed: Whether the node is ours; if not, nothing is offered and nothing is changed.
        rival: Who else changes MIG on this node; MIG is left as it is then.
    """
    applied = known.applied.get(gpu.uuid)
    wish = wanted.of(gpu, applied)
    intent = _intent(gpu, wish.layout, known, rival)
    holds = kubelet.held.on(gpu.uuid)
    if intent.layout is None or not managed:
        target = Target(layout=intent.layout or EXCLUSIVE_LAYOUT)
        return GpuReport(
            gpu=gpu,
            plan=GpuPlan(gpu=gpu.uuid, target=target),
            offer=offer_of(gpu, target, kubelet, closed=True),
            holds=holds,
            refused=intent.refused,
            ailments=known.ailments,
            withheld=known.withheld,
        )
    served = known.served.get(gpu.uuid)
    plan = plan_gpu(gpu, intent.layout, kubelet, served=served)
    return GpuReport(
        gpu=gpu,
        plan=plan,
        offer=offer_of(gpu, plan.target, kubelet),
        holds=holds,
        served=served if served == intent.layout else None,
        cordoned=wish.cordoned,
        refused=intent.refused,
        failure=known.failures.get(gpu.uuid, ""),
        retreat=intent.retreat,
        note=intent.note,
        ailments=known.ailments,
        withheld=known.withheld,
    )


def _intent(gpu: GpuState, asked: GpuLayout, known: Knowledge, rival: str) -> _Intent:
    applied = known.applied.get(gpu.uuid)
    acquaintance = known.gpus.get(gpu.uuid)
    layout, note = in_new_names(asked, gpu, acquaintance)
    if applied is not None:
        applied, _ = in_new_names(applied, gpu, acquaintance)
    if rival and (gpu.mig_enabled or layout.mode is Mode.MIG):
        stays = applied if applied and applied.mode is not Mode.MIG else None
        left = gpu.as_found() if gpu.mig_enabled or stays is None else stays
        return _Intent(layout=left, refused="" if left == layout else f"{layout}: {rival}")
    if error := impossible(gpu, layout):
        kept = [one for one in (applied, gpu.as_found()) if one and not impossible(gpu, one)]
        return _Intent(layout=kept[0] if kept else None, refused=str(error))
    given_up = known.retreats.get(gpu.uuid)
    if before := previous(layout, applied, given_up):
        return _Intent(layout=before, retreat=given_up, note=note)
    return _Intent(layout=layout, note=note)


def impossible(gpu: GpuState, layout: GpuLayout) -> InputError | None:
    """Why a GPU can never have a layout; None if it can."""
    if layout.mode is Mode.MPS:
        try:
            limits_of(layout, gpu.memory_mib)
        except InputError as error:
            return error
    return refusal(gpu.board, layout)
