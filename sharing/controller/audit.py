"""Pods that slipped past admission, and what else people should hear of (pure).

While the webhook was away, or where somebody wrote round it, a pod may hold a GPU that no policy
gave it. It is told of on the pod and on what controls it, and left alone: it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sharing.api.choices import Enforcement
from sharing.api.profile import builtin_profiles
from sharing.controller.pods import PodSeen
from sharing.controller.profiles import ProfileSeen
from sharing.names import GPU, MODE_LABEL, PROFILE_LABEL

SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""Their pods never come to the webhook."""


class Slip(StrEnum):
    """How a pod came by a GPU."""

    SHARE = "share"
    """It names a share, and no profile granted it."""
    GPU = "gpu"
    """It names a GPU in a namespace with a policy, and no profile granted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Something to be said on an object, once."""

    about: Mapping[str, str] = field(hash=False)
    reason: str
    message: str
    warning: bool = True

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same telling."""
        return (self.about.get("uid", "") or self.about.get("name", ""), self.reason, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slipped:
    """A pod with a GPU that nobody granted."""

    pod: PodSeen
    container: str
    resource: str
    slip: Slip
    profile: str = ""
    """The policy of its namespace."""

    @property
    def tellings(self) -> tuple[Telling, ...]:
        """What to say, on the pod and on its owner."""
        pod = f"pod {self.pod.namespace}/{self.pod.name}"
        policy = f"profile {self.profile}" if self.profile else "any profile"
        said = (
            f"{pod}, container {self.container}, holds {self.resource} without a grant of "
            f"{policy}: it was made while the webhook was away, or past it; make it again to "
            "have the policy apply"
        )
        owner = (self.pod.owner,) if self.pod.owner else ()
        return tuple(
            Telling(about=about, reason="UngrantedGPU", message=said)
            for about in (self.pod.reference, *owner)
        )


def slipped(
    pods: Iterable[PodSeen],
    namespaces: Mapping[str, Mapping[str, str]],
    profiles: Iterable[ProfileSeen],
) -> tuple[Slipped, ...]:
    """The pods that hold a GPU without a grant, in one order.

    Args:
        pods: All pods.
        namespaces: Labels by namespace.
        profiles: All profiles; those that only warn or audit change no pod, so theirs have none.
    """
    enforcing = {
        one.name for one in profiles if one.spec and one.spec.enforcement is Enforcement.ENFORCE
    }
    enforcing |= {name for name in builtin_profiles() if name not in enforcing}
    lenient = {one.name for one in profiles} - enforcing
    found = [
        one
        for pod in pods
        if not pod.finished and pod.namespace not in SYSTEM_NAMESPACES
        for one in _slips(pod, _policy(namespaces.get(pod.namespace, {})), lenient)
    ]
    return tuple(sorted(found, key=lambda one: (one.pod.namespace, one.pod.name, one.container)))


def rewritten(pods: Iterable[PodSeen], since: str) -> tuple[Telling, ...]:
    """What became of requests, told on what controls the pods.

    A Deployment's author never sees the webhook's warning: it goes to the ReplicaSet's controller.

    Args:
        pods: All pods.
        since: Pods that are older were told of before.
    """
    said: dict[tuple[str, str, str], Telling] = {}
    for pod in pods:
        if not pod.owner or pod.finished or pod.created < since:
            continue
        for grant in pod.grants:
            if grant.resource and grant.request and grant.resource not in grant.request:
                telling = Telling(
                    about=pod.owner,
                    reason="GPUShareGranted",
                    message=f"container {grant.container} asked for {grant.request} and has "
                    f"{grant.resource} by SharingProfile {grant.profile}",
                    warning=False,
                )
                said[telling.key] = telling
    return tuple(telling for _, telling in sorted(said.items()))


def lost_namespaces(
    namespaces: Mapping[str, Mapping[str, str]], profiles: Iterable[ProfileSeen]
) -> tuple[Telling, ...]:
    """Namespaces whose profile does not exist: their GPU pods are refused."""
    known = {one.name for one in profiles} | set(builtin_profiles())
    return tuple(
        Telling(
            about={"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": name},
            reason="ProfileNotFound",
            message=f"label {PROFILE_LABEL} names SharingProfile {labels[PROFILE_LABEL]}, which "
            "does not exist: pods that ask for GPUs are refused here; create it, or correct the "
            "label",
        )
        for name, labels in sorted(namespaces.items())
        if labels.get(PROFILE_LABEL) and labels[PROFILE_LABEL] not in known
    )


def _policy(labels: Mapping[str, str]) -> str:
    return labels.get(PROFILE_LABEL) or labels.get(MODE_LABEL) or ""


def _slips(pod: PodSeen, policy: str, lenient: set[str]) -> Iterator[Slipped]:
    granted = {(one.container, one.resource) for one in pod.grants}
    for container, resource in pod.asks:
        if (container, resource) in granted or policy in lenient:
            continue
        vendors = resource == GPU or resource.startswith("nvidia.com/")
        if vendors and not policy:
            continue  # a namespace without a policy is none of our business
        slip = Slip.GPU if vendors else Slip.SHARE
        yield Slipped(pod=pod, container=container, resource=resource, slip=slip, profile=policy)
