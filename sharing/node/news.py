"""What is worth an Event: the difference between two reports of a node (pure).

Only what changed is told, so that a state which lasts is one Event and not one a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sharing.layout import GpuLayout
from sharing.mps.daemons import DaemonPhase
from sharing.node.checkpoint import PodName
from sharing.node.clientlists import Disputed, Known
from sharing.node.diagnosis import health_changes
from sharing.node.doubles import Double, doubles
from sharing.node.infirmary import CoTenantsEnded
from sharing.node.status import GpuReport, NodeReport

HELD_TWICE: Final = "ShareHeldTwice"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One thing that happened."""

    reason: str
    """One word, for programs."""
    message: str
    warning: bool = False
    about_node: bool = False
    """Whether it concerns whoever looks at the Node, besides the GPUNode."""


def news(
    before: NodeReport, after: NodeReport, served: Mapping[str, GpuLayout] | None = None
) -> tuple[News, ...]:
    """What happened between two reports, in order of GPUs.

    Args:
        before: What was told.
        after: What is so now.
        served: The layouts that GPUs were told to serve last, by UUID, also by earlier agents.
    """
    found = [
        *_of_node(before, after),
        *_of_health(before, after),
        *_of_ended(before, after),
        *(
            News(reason=HELD_TWICE, message=str(one), warning=True)
            for one in held_twice(before, after)
        ),
        *_of_daemons(before, after),
        *_of_clients(before, after),
    ]
    known = {each.gpu.uuid: each for each in before.gpus}
    for each in after.gpus:
        found += _of_gpu(known.get(each.gpu.uuid), each)
        if each.served is not None and each.served != (served or {}).get(each.gpu.uuid):
            found.append(News(reason="LayoutServed", message=f"{_name(each)} serves {each.served}"))
    there = {each.gpu.uuid for each in after.gpus}
    found += [
        News(
            reason="GpuGone",
            message=f"{_name(each)} is not listed by the driver any more",
            warning=True,
            about_node=True,
        )
        for each in before.gpus
        if after.gpus and each.gpu.uuid not in there
    ]
    return tuple(found)


def co_tenants(report: NodeReport, ended: CoTenantsEnded) -> Iterator[tuple[PodName, str]]:
    """The pods whose work was ended by the mistake of one of them, and what to say.

    Those on the GPU, or in the MIG instance that they share.
    """
    for each in report.gpus:
        if each.gpu.uuid != ended.gpu:
            continue
        inside = [one for one in each.holds if ended.place in (ended.gpu, one.place)]
        pods = {(one.holder.namespace, one.holder.pod) for one in inside if one.holder}
        said = (
            f"XID {ended.xid} ({ended.name}) of one MPS client ended all clients on "
            f"{_name(each)}, which is well; restart the container if it did not end"
        )
        for namespace, pod in sorted(pods):
            yield PodName(namespace=namespace, name=pod), said


def over_budget(before: NodeReport, after: NodeReport) -> Iterator[tuple[PodName, str]]:
    """The pods whose use of memory is an excess since the report before, and what to say."""
    told = {one for one, excess in before.excesses.items() if excess.lasting}
    for each in after.gpus:
        for hold in each.holds:
            excess = after.excesses.get(hold.device_id)
            if excess is None or not excess.lasting or hold.device_id in told:
                continue
            if hold.holder is not None:
                pod = PodName(namespace=hold.holder.namespace, name=hold.holder.pod)
                yield pod, f"container {hold.holder.container} {excess} ({_name(each)})"


def held_twice(before: NodeReport, after: NodeReport) -> tuple[Double, ...]:
    """The shares that several containers hold since the report before."""
    told = {one for each in before.gpus for one in doubles(each.holds)}
    return tuple(one for each in after.gpus for one in doubles(each.holds) if one not in told)


def _of_node(before: NodeReport, after: NodeReport) -> Iterator[News]:
    if after.rival and after.rival != before.rival:
        yield News(reason="ManagementConflict", message=after.rival, warning=True, about_node=True)
    if before.rival and not after.rival:
        yield News(reason="ManagementConflictOver", message="nobody else manages the GPUs")
    if after.complaint and after.complaint != before.complaint:
        yield News(reason="SpecInvalid", message=after.complaint, warning=True)


def _of_gpu(before: GpuReport | None, after: GpuReport) -> Iterator[News]:
    name = _name(after)
    if after.refused and (before is None or before.refused != after.refused):
        yield News(reason="LayoutRefused", message=f"{name}: {after.refused}", warning=True)
    if after.retreat and (before is None or before.retreat != after.retreat):
        yield News(
            reason="LayoutFailed",
            message=f"{name}: {after.retreat.layout} failed: {after.retreat.reason}; "
            f"back to {after.plan.target.layout}",
            warning=True,
        )
    blocked = after.plan.blocked_by
    if blocked and (before is None or before.plan.blocked_by != blocked):
        waits = "; ".join(str(one) for one in blocked)
        yield News(
            reason="LayoutBlocked",
            message=f"{name} waits to become {after.plan.target.layout}: {waits}",
            warning=True,
        )
    if after.note and (before is None or before.note != after.note):
        yield News(reason="MigProfileRenamed", message=f"{name}: {after.note}", warning=True)


def _of_clients(before: NodeReport, after: NodeReport) -> Iterator[News]:
    """Clients of MPS that no daemon of ours knows, for as long as counts."""
    told, now = (_unknown(one.accounts.disputed) for one in (before, after))
    for device in sorted(now):
        if new := sorted(now[device] - told.get(device, set())):
            pids = ", ".join(map(str, new))
            yield News(
                reason="MpsClientsDisputed",
                message=f"processes that use {device} through MPS are no clients of its daemon, so "
                f"no limit of a share holds for them: {pids}; end the other MPS daemon that they "
                "came by",
                warning=True,
            )


def _unknown(disputed: Iterable[Disputed]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for one in disputed:
        if one.lasting and one.known is Known.DRIVER:
            found.setdefault(one.device, set()).add(one.pid)
    return found


def _of_daemons(before: NodeReport, after: NodeReport) -> Iterator[News]:
    """MPS daemons that failed, and those that were started again."""
    known = {one.device_uuid: one for one in before.daemons}
    for one in after.daemons:
        was = known.get(one.device_uuid)
        name = f"MPS daemon of {one.device_uuid}"
        if one.phase is DaemonPhase.BACKING_OFF and (was is None or was.phase is not one.phase):
            said = f"{name}: {one.reason}; its shares wait until it is back"
            yield News(reason="MpsDaemonFailed", message=said, warning=True)
        began = was is not None and (
            was.starts < one.starts or was.phase in (DaemonPhase.STARTING, DaemonPhase.BACKING_OFF)
        )
        if one.ready and began and one.starts > 1:
            said = f"{name} was started again and takes clients"
            yield News(reason="MpsDaemonRestarted", message=said)


def _of_ended(before: NodeReport, after: NodeReport) -> Iterator[News]:
    for one in sorted(set(after.accounts.lingering) - set(before.accounts.lingering)):
        said = f"share {one.place} is kept from others: {one}; it is offered again when that ends"
        yield News(reason="ShareStillInUse", message=said, warning=True)


def _of_health(before: NodeReport, after: NodeReport) -> Iterator[News]:
    for reason, message, warning in health_changes(before.patients, after.patients):
        yield News(reason=reason, message=message, warning=warning, about_node=True)


def _name(report: GpuReport) -> str:
    return f"GPU {report.gpu.index} ({report.gpu.uuid})"
