"""What to say about each SharingProfile: whom it governs and what it gave (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharing.api.node import Condition
from sharing.api.profile import GovernedNamespace, GrantCount, SharingProfileSpec
from sharing.controller.pods import PodSeen
from sharing.names import PROFILE_LABEL

_MOST_NAMESPACES = 100
"""Names that a status lists; the count is always whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSeen:
    """A SharingProfile as the controller reads it."""

    name: str
    generation: int | None = None
    spec: SharingProfileSpec | None = None
    """None where it cannot be understood."""
    complaint: str = ""
    conditions: tuple[Condition, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Its whole status as the API server has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOutcome:
    """What a profile's status says."""

    profile: str
    ready: bool
    reason: str
    message: str
    namespace_count: int = 0
    namespaces: tuple[GovernedNamespace, ...] = ()
    grants: tuple[GrantCount, ...] = ()


def profile_outcomes(
    profiles: Iterable[ProfileSeen],
    namespaces: Mapping[str, Mapping[str, str]],
    pods: Iterable[PodSeen],
) -> tuple[ProfileOutcome, ...]:
    """What the status of each profile says, by name.

    Args:
        profiles: All profiles.
        namespaces: Labels by namespace.
        pods: Pods with a grant.
    """
    used = _Use.of(pods)
    governed: dict[str, list[str]] = {}
    for namespace, labels in sorted(namespaces.items()):
        if PROFILE_LABEL in labels:
            governed.setdefault(labels[PROFILE_LABEL], []).append(namespace)
    return tuple(
        _profile_outcome(profile, governed.get(profile.name, []), used)
        for profile in sorted(profiles, key=lambda profile: profile.name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    pods: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Pods by (profile, namespace)."""
    containers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Containers by (profile, resource)."""

    @classmethod
    def of(cls, pods: Iterable[PodSeen]) -> _Use:
        used = cls()
        for pod in pods:
            if pod.finished:
                continue
            used.containers.update((one.profile, one.resource) for one in pod.grants)
            used.pods.update({(one.profile, pod.namespace) for one in pod.grants})
        return used


def _profile_outcome(profile: ProfileSeen, governed: list[str], used: _Use) -> ProfileOutcome:
    ready = profile.spec is not None
    resources = sorted(
        (resource, count)
        for (name, resource), count in used.containers.items()
        if name == profile.name
    )
    return ProfileOutcome(
        profile=profile.name,
        ready=ready,
        reason="Valid" if ready else "Invalid",
        message=f"governs {len(governed)} namespaces" if ready else profile.complaint,
        namespace_count=len(governed),
        namespaces=tuple(
            GovernedNamespace(name=name, pods=used.pods[profile.name, name])
            for name in governed[:_MOST_NAMESPACES]
        ),
        grants=tuple(
            GrantCount(resource=resource, containers=count) for resource, count in resources
        ),
    )
