"""What each tier needs from a machine, and what of it is missing here.

    python -m tests.cluster.needs

says what this machine lacks for a whole node, programs left out, and fails then. It takes a
tenth of a second, so that nobody builds programs for a machine that cannot run them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from tests.cluster import programs
from tests.cluster.box import cgroups

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
    Tier.NODE: (*programs.NODE, programs.KUBECTL),
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
    return _programs_lacking(tier) + machine_lacks(tier)


def machine_lacks(tier: Tier) -> list[str]:
    """What of it is not a program of Kubernetes."""
    lacks = [f"{tool} (Debian: util-linux, iproute2)" for tool in _TOOLS[tier] if not _has(tool)]
    return lacks if lacks or tier is not Tier.NODE else _node_lacks()


def _programs_lacking(tier: Tier) -> list[str]:
    if tier is not Tier.CONTROL_PLANE and (version := programs.asked_version()):
        return [
            (
                f"a whole Kubernetes {version}: of other versions there is an API server only "
                f"(unset {programs.VERSION_SWITCH})"
            )
        ]
    absent = programs.missing(_PROGRAMS[tier])
    return [f"{', '.join(absent)} ({programs.how_to_build()})"] if absent else []


def _has(tool: str) -> bool:
    return shutil.which(tool) is not None


def _node_lacks() -> list[str]:
    if os.geteuid() != 0:
        return ["root, for namespaces and mounts"]
    lacks = []
    if not is_static(BUSYBOX):
        lacks.append(f"a static {BUSYBOX} (Debian: busybox-static)")
    if not any(line.startswith("memory\t") for line in _read("/proc/cgroups")):
        lacks.append("cgroups (a kernel with CONFIG_CGROUPS)")
    if not any(" - cgroup " in line for line in _read("/proc/self/mountinfo")):
        lacks.append(
            "cgroup v1 hierarchies below /sys/fs/cgroup (a machine, or a container that is given "
            "the host's, booted with systemd.unified_cgroup_hierarchy=0)"
        )
    return lacks or list(_refused())


def _read(path: str) -> list[str]:
    return Path(path).read_text("utf-8", "replace").splitlines()


_UNSHARE: Final = ("unshare", "--mount", "--cgroup", "--net", "--uts", "--ipc", "--pid", "--fork")
_PROBES: Final = (
    ("new namespaces", "true"),
    ("a file system of its own", "mount -t tmpfs tmpfs /tmp"),
    (
        "overlayfs, for containers",
        (
            "mount -t tmpfs tmpfs /tmp && mkdir /tmp/l /tmp/u /tmp/w /tmp/m && mount -t overlay"
            " overlay -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w /tmp/m"
        ),
    ),
    ("a network bridge", "ip link add gs0 type bridge"),
    ("a virtual network cable", "ip link add gs0 type veth peer name gs1"),
    ("sysfs of a new network", "mount -t sysfs sysfs /sys"),
)
"""What a box does to the machine, tried in namespaces that end with the try."""
_PROBE_TIMEOUT_S: Final = 30


@cache
def _refused() -> tuple[str, ...]:
    """What of a box's start this machine does not let us do, each with its words."""
    found = []
    for what, script in _PROBES:
        command = [*_UNSHARE, "--mount-proc", "--", "sh", "-c", script]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S
        )
        if done.returncode:
            words = " ".join(done.stderr.split()) or f"exit {done.returncode}"
            found.append(f"the right to make {what} (it says: {words}; a privileged machine)")
        if found and what == _PROBES[0][0]:
            break  # the others need them
    return tuple(found) or _cgroups_refused()


def _cgroups_refused() -> tuple[str, ...]:
    try:
        group = cgroups.Group.create()
    except OSError as error:
        return (f"the right to make cgroups ({error}; a privileged machine)",)
    group.remove()
    return ()


def is_static(program: Path) -> bool:
    """Whether a program exists and asks for no dynamic loader."""
    return program.is_file() and _ELF_INTERPRETER not in program.read_bytes()[:4096]


if __name__ == "__main__":
    if lacking := machine_lacks(Tier.NODE):
        sys.exit(f"a node for tests cannot run on this machine, missing: {'; '.join(lacking)}")
