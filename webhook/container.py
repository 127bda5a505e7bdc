"""A pod's containers as we look at them: app containers and init containers, sidecars included.

Ephemeral containers can ask for nothing and are guarded elsewhere (``guard``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_LISTS: Final = ("containers", "initContainers")


class Container(NamedTuple):
    """One container, raw. A tuple, since every review makes one for each container."""

    name: str
    """Empty where it has none; the API server refuses that later."""
    path: str
    """JSON pointer inside the pod: ``/spec/containers/0``."""
    raw: dict[str, Any]
    is_init: bool
    """Whether it is an init container or a sidecar."""

    @property
    def field(self) -> str:
        """The path as people write it: ``spec.containers[0]``."""
        _, _, holder, index = self.path.split("/")
        return f"spec.{holder}[{index}]"

    @property
    def label(self) -> str:
        """The container as messages call it."""
        return f"container {self.name or self.field}"


def containers_of(pod: dict[str, Any]) -> list[Container]:
    """The pod's containers in order, app containers first; what is no container is left out."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return []
    found = []
    for holder in _LISTS:
        listed = spec.get(holder)
        if isinstance(listed, list):
            for index, raw in enumerate(listed):
                if isinstance(raw, dict):
                    name = raw.get("name")
                    text = name if isinstance(name, str) else ""
                    path = f"/spec/{holder}/{index}"
                    found.append(Container(text, path, raw, holder == "initContainers"))
    return found


def mapping(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A map inside a map; empty where it is absent, null or something else."""
    value = holder.get(key)
    return value if isinstance(value, dict) else {}
