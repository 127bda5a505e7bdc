"""From API objects to what the controller decides by; what is malformed says so and is kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sharing.api.layout import GpuLayoutSpec
from sharing.api.model import parse_model
from sharing.api.node import Condition, GpuNodeSpec, GpuNodeStatus
from sharing.api.profile import parse_profile
from sharing.controller.layouts import MARK, LayoutSeen
from sharing.controller.profiles import ProfileSeen
from sharing.errors import InputError

_CONDITIONS: TypeAdapter[tuple[Condition, ...]] = TypeAdapter(tuple[Condition, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNodeSeen:
    """A GPUNode as the controller reads it."""

    version: str
    mark: str
    spec: GpuNodeSpec | None
    """None where it cannot be understood; its agent says what is wrong."""
    status: GpuNodeStatus
    generation: int | None = None

    @property
    def trouble(self) -> str:
        """Why its agent says that it is not ready, or that it has yet to see the newest spec."""
        if self.generation is not None and self.status.observed_generation != self.generation:
            return "its agent has not taken in the newest spec yet"
        for one in self.status.conditions:
            if one.type == "Ready" and one.status != "True":
                return one.message or one.reason
        return ""


def seen_gpu_node(item: Mapping[str, Any]) -> GpuNodeSeen:
    """What the controller keeps of a GPUNode."""
    metadata = item.get("metadata") or {}
    subject = f"GPUNode {metadata.get('name')}"
    spec, status = None, GpuNodeStatus()
    with suppress(InputError):
        spec = parse_model(GpuNodeSpec, item.get("spec") or {}, subject)
    with suppress(InputError):
        status = parse_model(GpuNodeStatus, item.get("status") or {}, subject)
    return GpuNodeSeen(
        version=str(metadata.get("resourceVersion") or ""),
        mark=str((metadata.get("annotations") or {}).get(MARK) or ""),
        spec=spec,
        status=status,
        generation=metadata.get("generation"),
    )


def seen_layout(item: Mapping[str, Any]) -> LayoutSeen:
    """What the controller keeps of a GPULayout."""
    metadata = item.get("metadata") or {}
    name = str(metadata.get("name") or "")
    spec, complaint = None, ""
    try:
        spec = parse_model(GpuLayoutSpec, item.get("spec") or {}, f"GPULayout {name}")
    except InputError as error:
        complaint = str(error)
    return LayoutSeen(
        name=name,
        generation=metadata.get("generation"),
        spec=spec,
        complaint=complaint,
        conditions=_conditions(item),
    )


def seen_profile(item: Mapping[str, Any]) -> ProfileSeen:
    """What the controller keeps of a SharingProfile."""
    metadata = item.get("metadata") or {}
    spec, complaint = None, ""
    try:
        spec = parse_profile(item).spec
    except InputError as error:
        complaint = str(error)
    return ProfileSeen(
        name=str(metadata.get("name") or ""),
        generation=metadata.get("generation"),
        spec=spec,
        complaint=complaint,
        conditions=_conditions(item),
        told=dict(item.get("status") or {}),
    )


def seen_labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a Node or Namespace."""
    return dict((item.get("metadata") or {}).get("labels") or {})


def _conditions(item: Mapping[str, Any]) -> tuple[Condition, ...]:
    try:
        return _CONDITIONS.validate_python((item.get("status") or {}).get("conditions") or ())
    except ValidationError:
        return ()  # ours to write: they are replaced
