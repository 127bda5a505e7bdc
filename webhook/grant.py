"""Grants: what the webhook gave one container, and the record of it on the pod.

The record names containers, never positions, since other webhooks insert containers before ours
(HAMi#654). It holds what was asked in the author's own words, so that a second pass over our own
output decides from the same request and changes nothing. It is an explanation, never a proof:
every pass decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from sharing.shareclass import ShareClass

_LONGEST: Final = 256 * 1024
"""Kubernetes takes no more of all annotations together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One container's share."""

    container: str
    share_class: ShareClass
    resource: str
    """The class's resource name."""
    count: int = 1
    """Above 1 for whole GPUs only."""
    request: str
    """What was asked, as its author wrote it: ``nvidia.com/gpu: 250m``."""
    resources: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The GPU resources that the container named before we rewrote them."""
    profile: str
    """The SharingProfile that decided."""
    reason: str
    """Why it became this class."""
    least_memory_mib: int | None = None
    """What shares of the class must have on the pod's node, where the pod was bound to that."""

    def to_json(self) -> dict[str, Any]:
        """The grant as one member of the record."""
        least = self.least_memory_mib
        return {
            "container": self.container,
            "resource": self.resource,
            "count": self.count,
            "request": self.request,
            "resources": dict(self.resources),
            "profile": self.profile,
            "reason": self.reason,
            **({} if least is None else {"leastMemoryMiB": least}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a pod's record says about one container. Claimed by the pod, so never a fact."""

    resource: str
    count: int
    request: str
    resources: Mapping[str, str] = field(hash=False)
    least_memory_mib: int | None = None


def render_grants(grants: Iterable[Grant]) -> str:
    """The value of the annotation ``status.gpu.sharing/grants``; same grants, same bytes."""
    return orjson.dumps([grant.to_json() for grant in grants]).decode()


def read_record(text: object) -> Mapping[str, Recorded]:
    """The record by container, or as much of it as can be read; anything else claims nothing."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return {}
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(entries, list):
        return {}
    recorded = {}
    for entry in entries:
        claim = _claim(entry)
        if claim is not None:
            recorded[entry["container"]] = claim
    return recorded


def _claim(entry: object) -> Recorded | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("container"), str):
        return None
    resource, request, resources = (
        entry.get("resource"),
        entry.get("request"),
        entry.get("resources"),
    )
    count = entry.get("count")
    if not isinstance(resource, str) or not isinstance(request, str) or type(count) is not int:
        return None
    if not isinstance(resources, dict):
        return None
    texts = {key: value for key, value in resources.items() if isinstance(value, str)}
    if len(texts) != len(resources):
        return None
    least = entry.get("leastMemoryMiB")
    return Recorded(
        resource=resource,
        count=count,
        request=request,
        resources=texts,
        least_memory_mib=least if type(least) is int else None,
    )
