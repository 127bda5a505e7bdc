"""The status that a kubelet writes for a pod, worked out from its containers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from embedded.kubelet.ledger import Holding
from embedded.kubelet.podspec import Member, Role, is_done, members_of, phase_of
from embedded.kubelet.runtime import Container, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the kubelet knows of a pod beside its spec.

    Attributes:
        containers: Its containers by name.
        holdings: What a container holds, by resource.
        health: Health of a device of a resource; None where it is not to be told.
        host_ip: The node's address.
        pod_ip: The pod's address.
        started_at: When the kubelet first saw it.
        now: The present moment.
    """

    containers: Mapping[str, Container]
    holdings: Callable[[str], Mapping[str, Holding]]
    health: Callable[[str, str], str | None]
    host_ip: str
    pod_ip: str
    started_at: str
    now: str


def rejected(reason: str, message: str, *, now: str) -> dict[str, Any]:
    """The status of a pod that was not admitted (pkg/kubelet ``rejectPod``)."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": now,
    }


def status_of(pod: Mapping[str, Any], standing: Standing) -> dict[str, Any]:
    """The status of an admitted pod; conditions keep their time where nothing changed."""
    phase = phase_of(pod, standing.containers)
    members = members_of(pod)
    status: dict[str, Any] = {
        "phase": phase,
        "hostIP": standing.host_ip,
        "hostIPs": [{"ip": standing.host_ip}],
        "podIP": standing.pod_ip,
        "podIPs": [{"ip": standing.pod_ip}],
        "startTime": standing.started_at,
        "containerStatuses": [
            _container_status(pod, one, standing) for one in members if one.role is Role.APP
        ],
        "conditions": _conditions(pod, phase, standing),
    }
    first = [_container_status(pod, one, standing) for one in members if one.role is not Role.APP]
    return status | ({"initContainerStatuses": first} if first else {})


def pod_ip(uid: str) -> str:
    """A made-up address for a pod, the same each time."""
    digest = hashlib.sha256(uid.encode()).digest()
    return f"10.98.{digest[0]}.{1 + digest[1] % 254}"


def _container_status(pod: Mapping[str, Any], member: Member, standing: Standing) -> dict[str, Any]:
    container = standing.containers.get(member.name, Container())
    running = container.phase is Phase.RUNNING
    uid = str((pod.get("metadata") or {}).get("uid"))
    image = str(member.spec.get("image") or "")
    status: dict[str, Any] = {
        "name": member.name,
        "image": image,
        "imageID": "",
        "ready": is_done(container) if member.role is Role.INIT else running,
        "started": running,
        "restartCount": container.restarts,
        "state": _state(container, uid, member.name),
        "lastState": _state(container.last, uid, member.name) if container.last else {},
    }
    if container.phase is not Phase.WAITING:
        status["containerID"] = _container_id(uid, member.name, container.restarts)
    health = _device_health(standing, member.name)
    return status | ({"allocatedResourcesStatus": health} if health else {})


def _state(container: Container, uid: str, name: str) -> dict[str, Any]:
    match container.phase:
        case Phase.RUNNING:
            return {"running": {"startedAt": container.started_at}}
        case Phase.EXITED:
            return {
                "terminated": {
                    "exitCode": container.exit_code,
                    "reason": container.reason,
                    "startedAt": container.started_at,
                    "finishedAt": container.finished_at,
                    "containerID": _container_id(uid, name, container.restarts),
                }
            }
        case Phase.WAITING:
            told = {"reason": container.reason, "message": container.message}
            return {"waiting": {key: value for key, value in told.items() if value}}


def _container_id(uid: str, name: str, restarts: int) -> str:
    return "simulated://" + hashlib.sha256(f"{uid}/{name}/{restarts}".encode()).hexdigest()


def _device_health(standing: Standing, container: str) -> list[dict[str, Any]]:
    """``allocatedResourcesStatus`` (feature gate ResourceHealthStatus)."""
    told = []
    for resource, holding in standing.holdings(container).items():
        entries = [
            {"resourceID": device, "health": health}
            for device in holding.devices
            if (health := standing.health(resource, device)) is not None
        ]
        if entries:
            told.append({"name": resource, "resources": entries})
    return told


def _conditions(pod: Mapping[str, Any], phase: str, standing: Standing) -> list[dict[str, Any]]:
    members = members_of(pod)

    def state(member: Member) -> Container:
        return standing.containers.get(member.name, Container())

    initialized = all(
        is_done(state(one)) if one.role is Role.INIT else state(one).phase is not Phase.WAITING
        for one in members
        if one.role is not Role.APP
    )
    unready = [
        one.name
        for one in members
        if one.role is not Role.INIT and state(one).phase is not Phase.RUNNING
    ]
    finished = phase in {"Succeeded", "Failed"}
    why: dict[str, str] = {}
    if finished:
        why = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    elif unready:
        why = {
            "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{' '.join(unready)}]",
        }
    ready = not unready and not finished
    wanted: list[tuple[str, bool, dict[str, str]]] = [
        ("PodReadyToStartContainers", not finished, {}),
        ("Initialized", initialized, {}),
        ("Ready", ready, why),
        ("ContainersReady", ready, why),
    ]
    before = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or []}
    return [
        _condition(name, more, before.get(name), holds=holds, now=standing.now)
        for name, holds, more in wanted
    ]


def _condition(
    name: str, more: dict[str, str], before: Any, *, holds: bool, now: str
) -> dict[str, Any]:
    status = "True" if holds else "False"
    kept = before if isinstance(before, dict) and before.get("status") == status else {}
    return {
        "type": name,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": kept.get("lastTransitionTime") or now,
        **more,
    }
