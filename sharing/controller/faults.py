"""Which pods leave a faulty GPU: those whose namespace's profile says so (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sharing.api.node import GpuNodeStatus, ObservedGpuStatus
from sharing.controller.profiles import ProfileSeen
from sharing.names import PROFILE_LABEL

_NOT_A_FAULT = "Cordoned"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Eviction:
    """A pod to be evicted, and why."""

    namespace: str
    pod: str
    node: str
    reason: str


def evictions(
    statuses: Mapping[str, GpuNodeStatus],
    namespaces: Mapping[str, Mapping[str, str]],
    profiles: Iterable[ProfileSeen],
) -> tuple[Eviction, ...]:
    """The pods that hold a share of a faulty GPU or MIG instance and shall not, in one order.

    Args:
        statuses: What agents report, by node.
        namespaces: Labels by namespace.
        profiles: All profiles.
    """
    evicting = {one.name for one in profiles if one.spec and one.spec.on_fault == "evict"}
    found: dict[tuple[str, str], Eviction] = {}
    for node, status in sorted(statuses.items()):
        for gpu in status.gpus:
            for namespace, pod in _victims(gpu):
                profile = namespaces.get(namespace, {}).get(PROFILE_LABEL)
                if profile in evicting:
                    found[namespace, pod] = Eviction(
                        namespace=namespace,
                        pod=pod,
                        node=node,
                        reason=f"GPU {gpu.index} ({gpu.uuid}) of node {node} is faulty: "
                        f"{gpu.health.reason}",
                    )
    return tuple(sorted(found.values()))


def _victims(gpu: ObservedGpuStatus) -> Iterable[tuple[str, str]]:
    if gpu.health.healthy or gpu.health.reason == _NOT_A_FAULT:
        return ()
    return sorted({(one.namespace, one.pod) for share in gpu.shares for one in share.holders})
