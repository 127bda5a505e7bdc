"""Which pods leave a GPU, since it is faulty or they take their neighbours' memory (pure).

Only those whose namespace's profile says so, and only where work is lost for certain: a GPU that
people cordoned, or of which the driver merely does not answer, may run on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sharing.api.node import STILL_IN_USE, GpuNodeStatus, Health, ObservedGpuStatus
from sharing.controller.pods import PodSeen
from sharing.controller.profiles import ProfileSeen
from sharing.names import PROFILE_LABEL

_NO_FAULTS: Final = frozenset(
    {"Cordoned", "DriverUnavailable", "Unreadable", "GpuUnreadable", STILL_IN_USE}
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Eviction:
    """A pod to be evicted, and why."""

    namespace: str
    pod: str
    node: str
    reason: str
    since: str = ""
    """When the cause was first seen; a pod that is younger has no part in it."""
    event: str = "GPUFault"
    """Reason of the Event that tells of it."""
    policy: str = "onFault"
    """The field of the profile that asks for it."""

    def concerns(self, pod: PodSeen | None) -> bool:
        """Whether it is this pod, and not a namesake that came after it."""
        if pod is None or pod.finished or pod.node != self.node:
            return False
        return not self.since or pod.created <= self.since


def evictions(
    statuses: Mapping[str, GpuNodeStatus],
    namespaces: Mapping[str, Mapping[str, str]],
    profiles: Iterable[ProfileSeen],
) -> tuple[Eviction, ...]:
    """The pods that shall not go on where they are, in one order.

    They hold a share of a faulty GPU or MIG instance, or use more memory than their share has.

    Args:
        statuses: What agents report, by node.
        namespaces: Labels by namespace.
        profiles: All profiles.
    """
    specs = {one.name: one.spec for one in profiles if one.spec}
    policies = {
        "onFault": {name for name, spec in specs.items() if spec.on_fault == "evict"},
        "onMemoryExcess": {n for n, spec in specs.items() if spec.on_memory_excess == "evict"},
    }
    found: dict[tuple[str, str], Eviction] = {}
    for node, status in sorted(statuses.items()):
        for gpu in status.gpus:
            for one in (*_from_faults(node, gpu), *_from_excess(node, gpu)):
                profile = namespaces.get(one.namespace, {}).get(PROFILE_LABEL)
                if profile in policies[one.policy]:
                    found.setdefault((one.namespace, one.pod), one)
    return tuple(sorted(found.values()))


def _from_faults(node: str, gpu: ObservedGpuStatus) -> Iterator[Eviction]:
    for namespace, pod, health in _victims(gpu):
        yield Eviction(
            namespace=namespace,
            pod=pod,
            node=node,
            since=health.since or "",
            reason=f"GPU {gpu.index} ({gpu.uuid}) of node {node} is faulty: {_told(health)}",
        )


def _from_excess(node: str, gpu: ObservedGpuStatus) -> Iterator[Eviction]:
    for share in gpu.shares:
        if share.over_budget_since is None:
            continue
        for holder in share.holders:
            yield Eviction(
                namespace=holder.namespace,
                pod=holder.pod,
                node=node,
                since=share.over_budget_since,
                reason=f"container {holder.container} uses more memory of GPU {gpu.index} "
                f"({gpu.uuid}) of node {node} than the {share.memory_mib} MiB of its share",
                event="MemoryOverBudget",
                policy="onMemoryExcess",
            )


def due_now(
    wanted: Sequence[Eviction], recent: Sequence[float], now: float, per_minute: int
) -> tuple[tuple[Eviction, ...], float]:
    """The evictions that the rate allows now, and seconds until more are allowed.

    A mistake that makes all GPUs of a cluster look faulty must not empty it at once.

    Args:
        wanted: All that are wanted, in order of urgency.
        recent: When pods were evicted within the last minute, seconds on any clock.
        now: The time on that clock.
        per_minute: How many evictions a minute are allowed.
    """
    past = sorted(at for at in recent if now - at < _MINUTE_S)
    room = max(0, per_minute - len(past))
    if len(wanted) <= room:
        return tuple(wanted), float("inf")
    wait_s = past[0] + _MINUTE_S - now if past else _MINUTE_S
    return tuple(wanted[:room]), max(wait_s, 0.0)


_MINUTE_S: Final = 60.0


def _victims(gpu: ObservedGpuStatus) -> Iterator[tuple[str, str, Health]]:
    for share in gpu.shares:
        for health in (gpu.health, share.fault):
            if health is None or health.healthy or health.reason in _NO_FAULTS:
                continue
            for holder in share.holders:
                yield holder.namespace, holder.pod, health
            break


def _told(health: Health) -> str:
    action = f"; {health.action}" if health.action else ""
    message = f": {health.message}" if health.message else ""
    return f"{health.reason}{message}{action}"
