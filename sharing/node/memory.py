"""What the agent knows across its own restarts: the last wanted state and what it served.

With it the agent needs no API server to start: after a reboot it restores the layouts that were
wanted last, and it knows which MPS daemons were its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from sharing.api.layout import LayoutSpec
from sharing.api.model import parse_model
from sharing.api.node import GpuNodeSpec
from sharing.errors import InputError
from sharing.layout import GpuLayout
from sharing.node import record
from sharing.node.acquaintance import Acquaintance
from sharing.node.health import Ailment
from sharing.node.retreat import Retreat

KIND: Final = "memory"
_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One node's memory."""

    wanted: GpuNodeSpec | None = None
    """The last GPUNode.spec; None if none was ever seen."""
    applied: Mapping[str, GpuLayout] = field(default_factory=dict)
    """The layout that each GPU last served, by UUID."""
    ailments: Mapping[str, Ailment] = field(default_factory=dict)
    """Faults that are not over, by GPU UUID: a restart does not whitewash a GPU."""
    gpus: Mapping[str, Acquaintance] = field(default_factory=dict)
    """The GPUs that are known by sight, by UUID."""
    retreats: Mapping[str, Retreat] = field(default_factory=dict)
    """Layouts that could not be made, by GPU UUID: a restart does not try them at once."""

    def save(self, path: Path) -> None:
        """Write it; see ``record.write``."""
        content: dict[str, Any] = {
            "wanted": None if self.wanted is None else _plain(self.wanted),
            "applied": {
                uuid: _plain(LayoutSpec.from_layout(layout))
                for uuid, layout in sorted(self.applied.items())
            },
            "ailments": {uuid: one.to_json() for uuid, one in sorted(self.ailments.items())},
            "gpus": {
                uuid: {
                    "pciBusId": one.pci_bus_id,
                    "day": one.day,
                    "profiles": dict(sorted(one.profiles.items())),
                }
                for uuid, one in sorted(self.gpus.items())
            },
            "retreats": {
                uuid: {
                    "layout": _plain(LayoutSpec.from_layout(one.layout)),
                    "reason": one.reason,
                    "until": one.until,
                    "times": one.times,
                }
                for uuid, one in sorted(self.retreats.items())
            },
        }
        record.write(path, KIND, content)


def recall(path: Path) -> Memory:
    """The memory of the last agent on this node; empty if there is none or it cannot be read."""
    content = record.recover(path, KIND)
    if content is None:
        return Memory()
    try:
        wanted = content["wanted"]
        return Memory(
            wanted=None if wanted is None else parse_model(GpuNodeSpec, wanted, "wanted"),
            applied={str(uuid): _layout(uuid, raw) for uuid, raw in content["applied"].items()},
            ailments={
                str(uuid): Ailment.from_json(raw) for uuid, raw in content["ailments"].items()
            },
            gpus={str(uuid): _acquaintance(raw) for uuid, raw in content.get("gpus", {}).items()},
            retreats={
                str(uuid): _retreat(uuid, raw) for uuid, raw in content.get("retreats", {}).items()
            },
        )
    except (InputError, KeyError, TypeError, AttributeError, ValueError) as error:
        # Its checksum is right, so another version of this program wrote it.
        _log.warning("memory was not understood", path=str(path), error=str(error))
        return Memory()


def _acquaintance(raw: Mapping[str, Any]) -> Acquaintance:
    return Acquaintance(
        pci_bus_id=str(raw["pciBusId"]),
        day=int(raw["day"]),
        profiles={str(name): int(enum) for name, enum in raw["profiles"].items()},
    )


def _retreat(uuid: str, raw: Mapping[str, Any]) -> Retreat:
    return Retreat(
        layout=_layout(uuid, raw["layout"]),
        reason=str(raw["reason"]),
        until=float(raw["until"]),
        times=int(raw["times"]),
    )


def _layout(uuid: str, raw: Mapping[str, Any]) -> GpuLayout:
    return parse_model(LayoutSpec, raw, f"GPU {uuid}").to_layout()


def _plain(model: GpuNodeSpec | LayoutSpec) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
