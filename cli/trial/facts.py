"""What happened in a trial, as it was read back: from the API server, the kubelet and NVML.

Nothing in these values is taken from the scenario or computed by the product's decision code,
so that a difference between what we say and what is shows up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """One container that got devices, or asked for them."""

    name: str
    resource: str | None
    """The extended resource in its limits at the API server."""
    device_ids: tuple[str, ...]
    """What the kubelet's PodResources say it holds; what it saw, if it has ended."""
    gpus: tuple[int, ...]
    """Indices of the GPUs behind the devices, on its node."""
    sees: Mapping[str, str]
    """Environment about GPUs inside the container, CDI edits included."""
    device_nodes: tuple[str, ...]
    mounts: tuple[str, ...]
    """Mount points beyond those that every container has."""
    why: str
    """The reason that the webhook recorded on the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """One pod, from its manifest to its node."""

    key: str
    about: str
    asked: str
    verdict: str
    """allow (unchanged), patch (changed) or deny."""
    code: int
    message: str
    """The refusal, or why it is not running."""
    warnings: tuple[str, ...]
    phase: str | None
    node: str | None
    containers: tuple[ContainerFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFacts:
    """One share as the kubelet counts it, and who holds it."""

    device_id: str
    resource: str
    memory_mib: int
    holder: str | None
    """``namespace/pod/container``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU: what NVML shows, and what the kubelet counts on it."""

    node: str
    index: int
    uuid: str
    board: str
    layout: str
    """The layout in GPUNode status."""
    observed: str
    """What NVML itself shows: MIG instances with placement, or the compute mode."""
    shares: tuple[ShareFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of a trial."""

    pods: tuple[PodFacts, ...]
    gpus: tuple[GpuFacts, ...]
    elapsed_s: Mapping[str, float]
    """Seconds that each stage took."""

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON values."""
        plain: dict[str, Any] = orjson.loads(orjson.dumps(asdict(self)))
        return plain
