"""A pod of the node, as far as the agent has to know it (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sharing.node.checkpoint import PodName

_FINISHED: Final = ("Succeeded", "Failed")
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_STATIC_UID: Final = "kubernetes.io/config.mirror"
"""A static pod's object is a mirror with a uid of its own; the kubelet, its checkpoint and its
cgroups go by this one. Source: kubernetes, pkg/kubelet/types, ``ConfigMirrorAnnotationKey``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """A pod as the agent reads it; a change of its phase is a reason to look at the holders."""

    uid: str
    name: PodName
    phase: str
    static_uid: str = ""
    """What a mirror pod says that its static pod is called; anybody may claim it."""
    containers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Names of its containers by the runtime's id; no reason to look at anything."""

    @property
    def finished(self) -> bool:
        """Whether all of its containers have ended for good."""
        return self.phase in _FINISHED


def seen_pod(item: Mapping[str, Any]) -> PodSeen:
    """What the agent keeps of a pod on its node."""
    metadata = item.get("metadata") or {}
    status = item.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return PodSeen(
        uid=str(metadata.get("uid") or ""),
        static_uid=str(annotations.get(_STATIC_UID) or ""),
        name=PodName(
            namespace=str(metadata.get("namespace") or ""), name=str(metadata.get("name") or "")
        ),
        phase=str(status.get("phase") or ""),
        containers=dict(_containers(status)),
    )


def by_uid(pods: Iterable[PodSeen]) -> dict[str, PodName]:
    """The pods that are not finished, by what the kubelet calls them.

    A claim to be a static pod never hides the pod that has the uid.
    """
    living = [one for one in pods if not one.finished]
    claimed = {one.static_uid: one.name for one in living if one.static_uid}
    return claimed | {one.uid: one.name for one in living}


def _containers(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Ids come as ``containerd://<64 digits>``."""
    for key in _STATUSES:
        for one in status.get(key) or ():
            _, scheme, digits = str(one.get("containerID") or "").partition("://")
            if scheme and digits:
                yield digits, str(one.get("name") or "")
