"""What a pod asks, in its author's words, for a report (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sharing.names import PREFIX

_GPU_PREFIXES: Final = ("nvidia.com/gpu", "nvidia.com/mig-", f"{PREFIX}/")


def asked(manifest: Mapping[str, Any]) -> str:
    """The GPU keys and resources that a manifest names; ``no GPU`` if there are none."""
    return ", ".join(_parts(manifest)) or "no GPU"


def _parts(manifest: Mapping[str, Any]) -> Iterator[str]:
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    for key, value in annotations.items():
        if key.partition("/")[0] == PREFIX or key.partition("/")[0].endswith(f".{PREFIX}"):
            yield f"{key}: {value}"
    spec = manifest.get("spec") or {}
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            name, quantity = gpu_resource(container)
            if name is not None:
                yield f"{name}: {quantity} in {container['name']}"


def gpu_resource(container: Mapping[str, Any]) -> tuple[str | None, str]:
    """The GPU resource in a container's limits and its quantity."""
    limits = (container.get("resources") or {}).get("limits") or {}
    for name, quantity in sorted(limits.items()):
        named = name.startswith(_GPU_PREFIXES) or name.partition("/")[0].endswith(f".{PREFIX}")
        if named and name != f"{PREFIX}/milli-gpu":
            return name, str(quantity)
    return None, ""
