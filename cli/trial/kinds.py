"""Which objects a scenario may create (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sharing.cluster.kind import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GPU_LAYOUTS,
    GPU_NODES,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SHARING_PROFILES,
    Kind,
)
from sharing.errors import InputError, shown

_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version, kind.kind): kind
    for kind in (
        CONFIG_MAPS, DEPLOYMENTS, GPU_LAYOUTS, GPU_NODES, JOBS, NAMESPACES, PODS, RESOURCE_QUOTAS,
        SHARING_PROFILES,
    )
}  # fmt: skip


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """The kind of an object that a scenario may create.

    Raises:
        InputError: Such objects are not created by a scenario.
    """
    kind = _KINDS.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
    if kind is None:
        raise InputError(
            "scenario",
            f"objects of kind {shown(manifest.get('kind'))} in {shown(manifest.get('apiVersion'))} "
            "are not created by it",
            expected=", ".join(sorted(name for _, name in _KINDS)),
        )
    return kind
