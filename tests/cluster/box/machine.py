"""The machine as a box sees it: mounts, cgroups, network, boot id; and what a reboot forgets.

Nothing here outlives the namespaces of the box, but what lies in its folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.cluster.box import configuration
from tests.cluster.box.cgroups import remove_tree
from tests.cluster.box.spec import NodeSpec
from tests.cluster.waiting import until

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
BRIDGE: Final = "node0"
_PREFIX_LENGTH: Final = 24
_CGROUPS: Final = Path("/sys/fs/cgroup")
_POD_CGROUPS: Final = ("kubepods", "k8s.io")
_POD_BRIDGE: Final = "pods0"
_REMOVAL_TIMEOUT_S: Final = 10.0


class Machine:
    """Sets up what the programs of a node stand on.

    Args:
        spec: The node.
        run: Runs a command and raises if it fails.
    """

    def __init__(self, spec: NodeSpec, run: Callable[..., None]) -> None:
        self._spec = spec
        self._run = run

    def set_up(self) -> None:
        """Everything, once, in new namespaces."""
        hierarchies = _hierarchies()
        self._run("mount", "-t", "sysfs", "sysfs", "/sys")
        self._run("mount", "-t", "tmpfs", "tmpfs", _CGROUPS)
        for names in hierarchies:
            folder = _CGROUPS / names.removeprefix("name=")
            folder.mkdir()
            options = f"none,{names}" if "=" in names else names
            self._run("mount", "-t", "cgroup", "-o", options, "cgroup", folder)
        for disk in ("/var/lib", "/var/log"):  # CNI and the kubelet have fixed folders in both
            self._run("mount", "-t", "tmpfs", "tmpfs", disk)
        for name in ("kubelet", "containerd", "cni", "etcd"):
            Path("/var/lib", name).mkdir(mode=0o700)
        self._run("mount", "--bind", self._spec.kubelet_dir, "/var/lib/kubelet")
        self._new_boot_id()
        self._run("mount", "--bind", self._spec.boot_id_file, BOOT_ID)
        self._mount_run()
        self._network()

    def _mount_run(self) -> None:
        self._run("mount", "-t", "tmpfs", "tmpfs", "/run")
        for name in ("cdi", "cni", "pod-logs", "static-pods"):
            Path("/run", name).mkdir()
        self._run("mount", "--bind", self._spec.cdi_dir, "/run/cdi")
        Path("/run/cni/10-pods.conflist").write_text(configuration.cni(self._spec))

    def _network(self) -> None:
        socket.sethostname(self._spec.node)
        address = f"{self._spec.address}/{_PREFIX_LENGTH}"
        self._run("ip", "link", "set", "lo", "up")
        self._run("ip", "link", "add", BRIDGE, "type", "bridge")
        self._run("ip", "address", "add", address, "dev", BRIDGE)
        self._run("ip", "link", "set", BRIDGE, "up")
        self._run("ip", "route", "add", "default", "dev", BRIDGE)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # between nodes and their pods

    def _new_boot_id(self) -> None:
        # In place: the file is mounted over the kernel's.
        self._spec.boot_id_file.write_text(f"{uuid.uuid4()}\n")

    def reboot(self) -> None:
        """Forget what lies in memory: mounts of pods, /run, pod network, cgroups; a new boot id.

        The processes must be gone. Disks stay, and so does the node's own network, since the
        control plane may run on.
        """
        for mount in _mounts_below("/var/lib/kubelet", "/var/lib/containerd", "/run"):
            self._run("umount", "--lazy", mount)
        self._run("umount", "--lazy", "/run")
        for entry in self._spec.cdi_dir.iterdir():  # /run/cdi lies in memory too
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self._mount_run()
        if Path("/sys/class/net", _POD_BRIDGE).exists():
            self._run("ip", "link", "delete", _POD_BRIDGE)
        self._remove_pod_cgroups()
        self._new_boot_id()

    def _remove_pod_cgroups(self) -> None:
        trees = [hierarchy / name for hierarchy in _CGROUPS.iterdir() for name in _POD_CGROUPS]
        until(
            "the pods' cgroups are removed",
            lambda: all(remove_tree(tree) for tree in trees),
            timeout_s=_REMOVAL_TIMEOUT_S,
        )


def _hierarchies() -> list[str]:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return [line.split(":")[1] for line in lines if not line.startswith("0:")]


def _mounts_below(*tops: str) -> list[str]:
    """Mount points strictly below some folders, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    below = [point for point in points if any(point.startswith(f"{top}/") for top in tops)]
    return sorted(below, key=lambda point: -point.count("/"))


def environment(spec: NodeSpec) -> None:
    """What all programs inside inherit: the programs on PATH, no folder of a person."""
    folders = sorted({str(path.parent) for path in spec.programs.values()})
    os.environ["PATH"] = ":".join((*folders, os.environ.get("PATH", os.defpath)))
    os.environ["HOME"] = "/run"
    os.environ["KUBECACHEDIR"] = "/run/kubectl"
    for name in ("KUBECONFIG", "XDG_CACHE_HOME", "TMPDIR"):
        with contextlib.suppress(KeyError):
            del os.environ[name]
