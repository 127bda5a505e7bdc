"""GPUNode.status, node labels and the accounting capacity: what a node says of itself (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from sharing import names
from sharing.api.layout import LayoutSpec
from sharing.api.node import (
    STILL_IN_USE,
    Condition,
    GpuNodeStatus,
    Health,
    Holder,
    ObservedGpuStatus,
    ObservedShare,
    PlanStatus,
)
from sharing.layout import GpuLayout
from sharing.mps.daemons import DaemonState
from sharing.node.bindings import visible_uuid
from sharing.node.diagnosis import Patient, fault_of, health_of, healthy_condition, patients
from sharing.node.excess import Excess
from sharing.node.health import Ailment, is_ill
from sharing.node.held import Hold
from sharing.node.observed import GpuState
from sharing.node.offer import GpuOffer
from sharing.node.plan import GpuPlan
from sharing.node.retreat import Retreat
from sharing.node.rivals import MIG_CONFIG_STATE
from sharing.node.usage import Accounts
from sharing.share import Share, worth_milli
from sharing.size import MILLI_PER_GPU

_NOT_IN_A_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LABEL_LENGTH: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """Everything that is known about one GPU at one moment."""

    gpu: GpuState
    plan: GpuPlan
    offer: GpuOffer
    holds: tuple[Hold, ...] = ()
    served: GpuLayout | None = None
    cordoned: bool = False
    refused: str = ""
    """Why the wanted layout cannot be had on this board; empty if it can."""
    failure: str = ""
    """What the driver said to the last step, if it refused."""
    retreat: Retreat | None = None
    """What was given up for a while; ``plan`` leads to the layout before it."""
    note: str = ""
    """What a person should know although all is well."""
    ailments: Mapping[str, Ailment] = field(default_factory=dict)
    """By GPU UUID, or by device id where only a MIG instance is ill."""
    withheld: Mapping[str, str] = field(default_factory=dict)
    """Why shares are kept from others although nobody holds them; see ``Accounts.withheld``."""

    @property
    def ill(self) -> Ailment | None:
        """The fault of the GPU as a whole, if it has one."""
        ailment = self.ailments.get(self.gpu.uuid)
        return ailment if is_ill(ailment) else None

    @property
    def usable(self) -> bool:
        """Whether the GPU as a whole takes work."""
        return not self.gpu.lost and not self.cordoned and self.ill is None

    def is_healthy(self, share: Share) -> bool:
        """Whether a share may be handed out."""
        ill = is_ill(self.ailments.get(share.place))
        return self.usable and not ill and not self.why_withheld(share)

    def why_withheld(self, share: Share) -> str:
        """Which process of an ended pod keeps a share from others; empty if none does."""
        held = any(hold.device_id == share.device_id for hold in self.holds)
        if share.device_id in self.withheld:
            return self.withheld[share.device_id]
        if held:
            return ""
        return self.withheld.get(share.place) or self.withheld.get(share.gpu_uuid, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Everything that is known about a node at one moment."""

    driver_version: str = ""
    gpus: tuple[GpuReport, ...] = ()
    generation: int | None = None
    """Of the GPUNode whose spec is wanted."""
    done: int = 0
    """Steps that the plan under way has behind it."""
    trouble: str = ""
    """Why nothing can be said or done: no driver, no kubelet, not ours to serve."""
    complaint: str = ""
    """What is wrong with the GPUNode's spec."""
    rival: str = ""
    """Who else manages the GPUs of this node."""
    silent: tuple[str, ...] = ()
    """GPUs that never answered, each with why."""
    accounts: Accounts = field(default_factory=Accounts)
    """What shares use."""
    daemons: tuple[DaemonState, ...] = ()
    """The MPS daemons."""
    excesses: Mapping[str, Excess] = field(default_factory=dict)
    """Shares above their memory budget, by device id."""
    mig_config: bool = False
    """Whether ``nvidia.com/mig.config`` is there and honoured, so that its state is written."""

    @property
    def patients(self) -> tuple[Patient, ...]:
        """Everything that is known against its GPUs and MIG instances now."""
        known = self.gpus[0].ailments if self.gpus else {}
        return patients([(each.gpu.index, each.gpu.uuid) for each in self.gpus], known)

    def in_trouble(self, trouble: str) -> NodeReport:
        """The same, with why nothing can be said or done."""
        return replace(self, trouble=trouble)


def status_of(report: NodeReport, before: Iterable[Condition], now: datetime) -> GpuNodeStatus:
    """What the GPUNode says.

    Args:
        report: The node.
        before: The conditions as they were: what did not change keeps its time.
        now: The time, for conditions that changed.
    """
    steps = [one for each in report.gpus for one in each.plan.steps]
    blockers = sorted({str(one) for each in report.gpus for one in each.plan.blocked_by})
    blockers += [each.failure for each in report.gpus if each.failure and each.plan.steps]
    plan = None
    if steps:
        plan = PlanStatus(
            steps=tuple(str(one.step) for one in steps),
            done=report.done,
            blocked_by=tuple(blockers),
        )
    return GpuNodeStatus(
        observed_generation=report.generation,
        driver_version=report.driver_version,
        gpus=tuple(_gpu(each, report.excesses) for each in report.gpus),
        plan=plan,
        conditions=_conditions(report, plan, {one.type: one for one in before}, now),
    )


def _gpu(report: GpuReport, excesses: Mapping[str, Excess]) -> ObservedGpuStatus:
    gpu = report.gpu
    return ObservedGpuStatus(
        index=gpu.index,
        uuid=gpu.uuid,
        board=gpu.board.name,
        product=gpu.product,
        memory_mib=gpu.memory_mib,
        pci_bus_id=gpu.pci_bus_id,
        numa_node=gpu.numa_node,
        mig_enabled=gpu.mig_enabled,
        health=health_of(report.ailments.get(gpu.uuid), lost=gpu.lost, cordoned=report.cordoned),
        layout=None if report.served is None else LayoutSpec.from_layout(report.served),
        shares=tuple(
            _share(report, share, excesses.get(share.device_id), offered=offered)
            for shares, offered in ((report.offer.shares, True), (report.offer.draining, False))
            for share in shares
        ),
    )


def _share(
    report: GpuReport, share: Share, excess: Excess | None, *, offered: bool
) -> ObservedShare:
    visible, why = visible_uuid(report.gpu, share), report.why_withheld(share)
    holders = sorted(
        {
            hold.holder
            for hold in report.holds
            if hold.device_id == share.device_id and hold.holder is not None
        }
    )
    return ObservedShare(
        id=share.device_id,
        resource=share.share_class.resource_name,
        memory_mib=share.memory_mib,
        milli=_milli(report.gpu, share),
        healthy=offered and report.is_healthy(share),
        mig_uuid=None if visible == report.gpu.uuid else visible,
        holders=tuple(
            Holder(namespace=one.namespace, pod=one.pod, container=one.container) for one in holders
        ),
        fault=fault_of(report.ailments, report.gpu.uuid, share.place) or _still_in_use(why),
        over_budget_since=_stamp(datetime.fromtimestamp(excess.since, UTC))
        if excess is not None and excess.lasting
        else None,
    )


def _still_in_use(why: str) -> Health | None:
    if not why:
        return None
    return Health(healthy=False, state="unhealthy", reason=STILL_IN_USE, message=why)


def _milli(gpu: GpuState, share: Share) -> int:
    instance = share.share_class.instance
    slices = 0 if instance is None else instance.gpu_slices
    return worth_milli(
        share.share_class,
        memory_mib=share.memory_mib,
        gpu_memory_mib=max(gpu.memory_mib, 1),
        compute_share=(slices, gpu.board.mig_compute_slices or 1),
    )


def _conditions(
    report: NodeReport, plan: PlanStatus | None, before: Mapping[str, Condition], now: datetime
) -> tuple[Condition, ...]:
    unread = [
        f"GPU {each.gpu.index} ({each.gpu.uuid}): the driver cannot read it"
        for each in report.gpus
        if each.gpu.lost and each.ill is None
    ]
    healthy = healthy_condition(report.patients, (*unread, *report.silent))
    rival = ("False", "OtherManager", report.rival) if report.rival else ("True", "Alone", "")
    stated = {"Ready": _ready(report, plan), "Healthy": healthy, "Undisputed": rival}
    return tuple(
        _condition(kind, *said, report.generation, before.get(kind), now)
        for kind, said in stated.items()
    )


def _ready(report: NodeReport, plan: PlanStatus | None) -> tuple[str, str, str]:
    if report.trouble:
        return "False", "Unavailable", report.trouble
    if report.complaint:
        return "False", "SpecInvalid", report.complaint
    refused = [f"GPU {each.gpu.index}: {each.refused}" for each in report.gpus if each.refused]
    if refused:
        return "False", "LayoutRefused", _listed(refused)
    back = [f"GPU {each.gpu.index}: {_gone_back(each)}" for each in report.gpus if each.retreat]
    if back:
        return "False", "LayoutFailed", _listed(back)
    if plan is None:
        notes = [f"GPU {each.gpu.index}: {each.note}" for each in report.gpus if each.note]
        return "True", "LayoutServed", _listed(notes)
    if plan.blocked_by:
        return "False", "LayoutBlocked", _listed(plan.blocked_by)
    return "False", "LayoutChanging", f"{len(plan.steps)} steps to go"


def _gone_back(report: GpuReport) -> str:
    given_up = report.retreat
    if given_up is None:
        return ""
    when = _stamp(datetime.fromtimestamp(given_up.until, UTC))
    return (
        f"{given_up.layout} failed ({given_up.reason}); back to {report.plan.target.layout}, "
        f"next try at {when}"
    )


def _condition(  # noqa: PLR0917 - the parts of a condition
    kind: str,
    status: str,
    reason: str,
    message: str,
    generation: int | None,
    before: Condition | None,
    now: datetime,
) -> Condition:
    since = before.last_transition_time if before and before.status == status else _stamp(now)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:1024],
        last_transition_time=since,
        observed_generation=generation,
    )


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def labels_of(report: NodeReport) -> dict[str, str]:
    """The node's labels for selection: hints, never truth for allocation."""
    smallest: dict[str, int] = {}
    modes = set()
    for each in report.gpus:
        for share in each.offer.shares:
            modes.add(share.share_class.mode.value)
            key = share.share_class.memory_label
            smallest[key] = min(smallest.get(key, share.memory_mib), share.memory_mib)
    labels = {key: str(memory_mib) for key, memory_mib in sorted(smallest.items())}
    boards = sorted({each.gpu.board.name for each in report.gpus})
    stated = {
        names.MODES_LABEL: "_".join(sorted(modes)),
        names.BOARD_LABEL: _label_value("_".join(boards)),
        names.DRIVER_LABEL: _label_value(report.driver_version),
    }
    if report.mig_config:
        stated[MIG_CONFIG_STATE] = _mig_config_state(report)
    return labels | {key: value for key, value in stated.items() if value}


def _mig_config_state(report: NodeReport) -> str:
    """In the words of NVIDIA's MIG manager: success, failed or pending."""
    status, reason, _ = _ready(report, None)
    if status == "False":
        return "pending" if reason == "Unavailable" else "failed"
    return "pending" if any(each.plan.steps for each in report.gpus) else "success"


def is_ours(label: str) -> bool:
    """Whether a node label is one that agents alone write, so that they may remove it too."""
    domain, _, name = label.partition("/")
    if label in (names.MODES_LABEL, names.BOARD_LABEL, names.DRIVER_LABEL):
        return True
    ours = domain == names.PREFIX or domain.endswith(f".{names.PREFIX}")
    return ours and name.endswith(".memory-mib")


def milli_capacity(report: NodeReport) -> int:
    """Capacity of the accounting resource: 1000 for each GPU that takes work, or a little more.

    Worths are rounded up, and MIG counts by the larger of two shares, so a full GPU may come to
    more than 1000; less capacity than that would keep its last share from ever being scheduled.
    """
    return sum(
        max(MILLI_PER_GPU, sum(_milli(each.gpu, share) for share in each.offer.shares))
        for each in report.gpus
        if each.usable
    )


def _label_value(text: str) -> str:
    return _NOT_IN_A_LABEL.sub("-", text)[:_LABEL_LENGTH].strip("-_.")
