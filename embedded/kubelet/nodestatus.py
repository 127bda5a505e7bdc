"""What a kubelet writes about its node, and only that.

It owns cpu, memory, pods and storage, the resources of its plugins, its conditions and
addresses. Other keys in capacity belong to others: they stay, and allocatable follows
them (pkg/kubelet/nodestatus ``MachineInfo``). A key once there stays at 0 for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sharing.errors import QuantityError
from sharing.quantity import parse_quantity

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_PRESSURES: Final = {
    "MemoryPressure": (
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the node is, apart from devices.

    Attributes:
        cpu: Cores.
        memory: Memory as a quantity.
        pods: How many pods it takes.
        storage: Ephemeral storage as a quantity.
        address: Its address in the cluster.
    """

    cpu: str = "64"
    memory: str = "512Gi"
    pods: int = 110
    storage: str = "1Ti"
    address: str = "10.99.0.1"

    def amounts(self) -> dict[str, str]:
        """Its own part of capacity and allocatable."""
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "pods": str(self.pods),
            "ephemeral-storage": self.storage,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What plugins make the node offer: devices by resource, all and healthy ones."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


def new_node(name: str, labels: Mapping[str, str], *, at: str) -> dict[str, Any]:
    """The Node object of a kubelet that starts for the first time."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                **labels,
            },
        },
        # Put there by the API server's TaintNodesByCondition; gone once it is ready.
        "spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule", "timeAdded": at}]},
    }


def resources(
    status: Mapping[str, Any], machine: Machine, offer: Offer
) -> tuple[dict[str, str], dict[str, str | None]]:
    """Capacity and allocatable as they should stand, foreign keys included.

    Args:
        status: The node's status as it is.
        machine: The node's own amounts.
        offer: What its plugins offer.

    Returns:
        Both in full; an allocatable of None is a key to remove.
    """
    own = machine.amounts()
    foreign = {
        key: str(value)
        for key, value in (status.get("capacity") or {}).items()
        if key not in own and key not in offer.capacity
    }
    capacity = foreign | own | _texts(offer.capacity)
    allocatable: dict[str, str | None] = dict(capacity)
    allocatable |= _texts(offer.allocatable)
    for key in status.get("allocatable") or {}:
        allocatable.setdefault(key, None)
    return capacity, allocatable


def status_patch(
    status: Mapping[str, Any], machine: Machine, offer: Offer, *, name: str, now: str, beat: bool
) -> dict[str, Any]:
    """The strategic merge patch of the status; empty if nothing is to be said.

    Only keys that the kubelet owns and keys of allocatable that must follow are named, so
    that a capacity which somebody else writes at the same moment is not written over.

    Args:
        status: The node's status as it is.
        machine: The node's own amounts.
        offer: What its plugins offer.
        name: The node's name.
        now: The present moment.
        beat: Whether the heartbeat is due, so that conditions are written in any case.
    """
    capacity, allocatable = resources(status, machine, offer)
    old_capacity, old_allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    patch: dict[str, Any] = {}
    more = {
        key: value for key, value in capacity.items() if not _same(old_capacity.get(key), value)
    }
    if more:
        patch["capacity"] = more
    rest = {
        key: value
        for key, value in allocatable.items()
        if (value is None and key in old_allocatable)
        or (value is not None and not _same(old_allocatable.get(key), value))
    }
    if rest:
        patch["allocatable"] = rest
    if beat or _ready_status(status) != "True":
        patch["conditions"] = _conditions(status, now=now)
        patch["addresses"] = [
            {"type": "InternalIP", "address": machine.address},
            {"type": "Hostname", "address": name},
        ]
        patch["nodeInfo"] = _node_info(name)
    return patch


def lost_patch(status: Mapping[str, Any], *, now: str) -> dict[str, Any]:
    """Conditions of a node that has not been heard of (node lifecycle controller)."""
    return {
        "conditions": [
            _condition(
                status,
                name,
                "Unknown",
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
                now=now,
            )
            for name in (*_PRESSURES, "Ready")
        ]
    }


def taints(present: list[Mapping[str, Any]], *, ready: bool, at: str) -> list[Mapping[str, Any]]:
    """The node's taints with those of its readiness set right (node lifecycle controller).

    Args:
        present: Taints as they are.
        ready: Whether the kubelet is heard of.
        at: The present moment.
    """
    kept = [one for one in present if one.get("key") not in {NOT_READY, UNREACHABLE}]
    if ready:
        return kept
    return [
        *kept,
        *(
            {"key": UNREACHABLE, "effect": effect, "timeAdded": at}
            for effect in ("NoSchedule", "NoExecute")
        ),
    ]


def _conditions(status: Mapping[str, Any], *, now: str) -> list[dict[str, Any]]:
    pressures = [
        _condition(status, name, "False", reason, message, now=now)
        for name, (reason, message) in _PRESSURES.items()
    ]
    message = "kubelet is posting ready status"
    return [*pressures, _condition(status, "Ready", "True", "KubeletReady", message, now=now)]


def _condition(  # noqa: PLR0917 - the parts of a condition
    status: Mapping[str, Any], name: str, value: str, reason: str, message: str, *, now: str
) -> dict[str, Any]:
    before = _find(status, name)
    changed = before.get("lastTransitionTime") if before.get("status") == value else None
    return {
        "type": name,
        "status": value,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": changed or now,
    }


def _ready_status(status: Mapping[str, Any]) -> str:
    return str(_find(status, "Ready").get("status"))


def _find(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for condition in status.get("conditions") or []:
        if condition.get("type") == name:
            found: Mapping[str, Any] = condition
            return found
    return {}


def _node_info(name: str) -> dict[str, str]:
    return {
        "machineID": name,
        "systemUUID": name,
        "bootID": name,
        "kernelVersion": "simulated",
        "osImage": "simulated",
        "containerRuntimeVersion": "simulated://1.0.0",
        "kubeletVersion": "v1.37.2",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _same(left: object, right: object) -> bool:
    """Whether two quantities mean the same number; the API writes 8000 as ``8k``."""
    try:
        return left is not None and parse_quantity(left) == parse_quantity(right)
    except QuantityError:
        # What others write may be beyond what we count; it is copied as it is.
        return left == right


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
