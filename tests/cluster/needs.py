"""What each tier needs from a machine, and what of it is missing here."""

from __future__ import annotations

import os
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.cluster import programs

BUSYBOX: Final = Path("/bin/busybox")
SWITCH: Final = "GPU_SHARING_CLUSTER"
REQUIRE: Final = "REQUIRE_CLUSTER"
_ELF_INTERPRETER: Final = b"/ld-linux"


class Tier(StrEnum):
    """How much of a cluster a test needs."""

    CONTROL_PLANE = "control plane"
    """etcd and API server."""
    NODE = "node"
    """Everything, down to containers."""
    SCALE = "scale"
    """Control plane and scheduler, with nodes that exist as objects only."""


_PROGRAMS: Final[dict[Tier, tuple[str, ...]]] = {
    Tier.CONTROL_PLANE: programs.CONTROL_PLANE,
    Tier.NODE: programs.NODE,
    Tier.SCALE: (*programs.CONTROL_PLANE, "kube-scheduler"),
}
_TOOLS: Final[dict[Tier, tuple[str, ...]]] = {
    Tier.CONTROL_PLANE: ("setpriv",),
    Tier.NODE: ("setpriv", "unshare", "nsenter", "mount", "umount", "ip"),
    Tier.SCALE: ("setpriv",),
}


def wanted() -> bool:
    """Whether this run shall use real programs at all."""
    return required() or os.environ.get(SWITCH) == "1"


def required() -> bool:
    """Whether a missing tier is a failure."""
    return os.environ.get(REQUIRE) == "1"


def missing(tier: Tier) -> list[str]:
    """What has to be brought to this machine for a tier, each with its cure."""
    lacks = [f"{tool} (Debian: util-linux, iproute2)" for tool in _TOOLS[tier] if not _has(tool)]
    if absent := programs.missing(_PROGRAMS[tier]):
        lacks.append(f"{', '.join(absent)} (make cluster-programs)")
    if tier is Tier.NODE:
        lacks += _node_lacks()
    return lacks


def _has(tool: str) -> bool:
    return shutil.which(tool) is not None


def _node_lacks() -> list[str]:
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root, for namespaces and mounts")
    if not is_static(BUSYBOX):
        lacks.append(f"a static {BUSYBOX} (Debian: busybox-static)")
    if " - cgroup " not in Path("/proc/self/mountinfo").read_text():
        lacks.append("cgroup v1 hierarchies")
    return lacks


def is_static(program: Path) -> bool:
    """Whether a program exists and asks for no dynamic loader."""
    return program.is_file() and _ELF_INTERPRETER not in program.read_bytes()[:4096]
