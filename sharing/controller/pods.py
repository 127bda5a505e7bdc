"""Pods as the controller reads them: what they asked, what they were granted, whose they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sharing.errors import ResourceNameError
from sharing.names import GRANTS_ANNOTATION
from sharing.shareclass import parse_resource_name

_FINISHED: Final = ("Succeeded", "Failed")
_CONTAINERS: Final = ("initContainers", "containers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """One line of a pod's record. It is the pod's own word: good for counting, never a proof."""

    profile: str
    resource: str
    container: str = ""
    request: str = ""
    """What was asked, as its author wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """A pod, as far as it has to do with GPUs."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    created: str = ""
    """As Kubernetes writes it, so that two of them compare by their order."""
    finished: bool = False
    grants: tuple[Granted, ...] = ()
    asks: tuple[tuple[str, str], ...] = ()
    """(container, GPU resource) for each that it names."""
    owner: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Reference to the object that controls it; empty if none does."""

    @property
    def reference(self) -> Mapping[str, str]:
        """Names the pod, for Events."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }


def seen_pod(item: Mapping[str, Any]) -> PodSeen:
    """What the controller keeps of a pod."""
    metadata = item.get("metadata") or {}
    spec = item.get("spec") or {}
    return PodSeen(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        node=str(spec.get("nodeName") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        finished=(item.get("status") or {}).get("phase") in _FINISHED
        or bool(metadata.get("deletionTimestamp")),
        grants=grants_of(metadata.get("annotations") or {}),
        asks=tuple(_asks(spec)),
        owner=_owner(metadata),
    )


def grants_of(annotations: Mapping[str, Any]) -> tuple[Granted, ...]:
    """Each grant in a pod's record; empty where it has none that reads."""
    text = annotations.get(GRANTS_ANNOTATION)
    if not isinstance(text, str):
        return ()
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    listed = entries if isinstance(entries, list) else []
    return tuple(
        Granted(
            profile=str(one.get("profile", "")),
            resource=str(one.get("resource", "")),
            container=str(one.get("container", "")),
            request=str(one.get("request", "")),
        )
        for one in listed
        if isinstance(one, dict)
    )


def is_gpu_resource(name: str) -> bool:
    """Whether a resource is a GPU or a share of one."""
    try:
        return parse_resource_name(name) is not None
    except ResourceNameError:
        return True  # under our prefix, and no class of ours


def _asks(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in _CONTAINERS:
        for container in _mappings(spec.get(part)):
            resources = _mapping(container.get("resources"))
            names: set[str] = set()
            for kind in ("limits", "requests"):
                amounts = _mapping(resources.get(kind))
                names |= {str(name) for name, amount in amounts.items() if str(amount) != "0"}
            for name in sorted(names):
                if is_gpu_resource(name):
                    yield str(container.get("name") or ""), name


def _mapping(item: object) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else {}


def _mappings(items: object) -> Iterable[Mapping[str, Any]]:
    return [one for one in items if isinstance(one, Mapping)] if isinstance(items, list) else []


def _owner(metadata: Mapping[str, Any]) -> dict[str, str]:
    for one in _mappings(metadata.get("ownerReferences")):
        if one.get("controller"):
            named = {key: str(one.get(key) or "") for key in ("apiVersion", "kind", "name", "uid")}
            if one.get("kind") == "Node":
                return named
            return {**named, "namespace": str(metadata.get("namespace") or "")}
    return {}
