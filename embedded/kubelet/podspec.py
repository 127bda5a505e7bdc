"""A pod's containers in the order in which they start, and what becomes of them.

Rules: pod lifecycle and sidecar documentation; pkg/kubelet ``getPhase`` and
``shouldContainerBeRestarted``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from embedded.kubelet.runtime import Container, Phase
from embedded.scheduler.demand import is_sidecar


class Role(StrEnum):
    """What a container is to its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One container of a pod's spec.

    Attributes:
        name: Its name.
        role: What it is to its pod.
        spec: Its spec, raw.
    """

    name: str
    role: Role
    spec: Mapping[str, Any]


def members_of(pod: Mapping[str, Any]) -> tuple[Member, ...]:
    """All containers in starting order: init containers and sidecars, then apps."""
    spec = pod.get("spec") or {}
    first = [
        Member(
            name=str(one.get("name")),
            role=Role.SIDECAR if is_sidecar(one) else Role.INIT,
            spec=one,
        )
        for one in spec.get("initContainers") or []
    ]
    apps = [
        Member(name=str(one.get("name")), role=Role.APP, spec=one)
        for one in spec.get("containers") or []
    ]
    return (*first, *apps)


def restarts(pod: Mapping[str, Any], member: Member, container: Container) -> bool:
    """Whether a container that ended is started again."""
    if member.role is Role.SIDECAR:
        return True
    policy = (pod.get("spec") or {}).get("restartPolicy") or "Always"
    if member.role is Role.INIT:
        # A pod that always restarts retries a failing init container, too.
        return container.exit_code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)


def phase_of(pod: Mapping[str, Any], containers: Mapping[str, Container]) -> str:
    """The pod's phase."""
    policy = (pod.get("spec") or {}).get("restartPolicy") or "Always"
    apps: list[Container] = []
    for member in members_of(pod):
        container = containers.get(member.name, Container())
        if member.role is Role.INIT and not is_done(container):
            failed = container.phase is Phase.EXITED and policy == "Never"
            return "Failed" if failed else "Pending"
        if member.role is Role.SIDECAR and container.phase is Phase.WAITING and not container.last:
            return "Pending"
        if member.role is Role.APP:
            apps.append(container)
    if any(one.phase is Phase.WAITING and one.last is None for one in apps):
        return "Pending"
    if any(one.phase is not Phase.EXITED for one in apps) or policy == "Always":
        return "Running"
    if all(one.exit_code == 0 for one in apps):
        return "Succeeded"
    return "Running" if policy == "OnFailure" else "Failed"


def is_done(container: Container) -> bool:
    """Whether an init container has ended well."""
    return container.phase is Phase.EXITED and container.exit_code == 0
