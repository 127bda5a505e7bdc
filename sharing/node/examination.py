"""Looks at all that sharing a node's GPUs takes, changing nothing; see ``fitness``."""

from __future__ import annotations

import ctypes
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sharing.errors import DriverError, GpuSharingError
from sharing.node import checkpoint
from sharing.node.outfit import ClusterSeen, FolderSeen, GpuSeen, OutfitSeen
from sharing.node.processes import whereabouts
from sharing.node.rivals import answers, live_plugin
from sharing.node.settings import AgentSettings
from sharing.nvml.driver import Driver
from sharing.nvml.observed import ObservedGpu

PROGRAMS: Final = (
    "nvidia-ctk",
    "nvidia-container-runtime",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-smi",
    "unshare",
)
_DEVICE_FILES: Final = ("nvidiactl", "nvidia-uvm")
_INITIAL_PIDS: Final = 0xEFFFFFFC
"""Inode of the first pid namespace. Source: linux, include/linux/proc_ns.h, PROC_PID_INIT_INO."""
_VOLATILE: Final = ("tmpfs", "ramfs")
_TIME_ERROR: Final = 5
"""What adjtimex(2) returns while the clock is not synchronised."""
_TIMEX_BYTES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the kernel shows itself."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")


def look(
    settings: AgentSettings,
    *,
    cluster: ClusterSeen | None = None,
    roots: Roots | None = None,
    path: str | None = None,
) -> OutfitSeen:
    """What this node has. Blocks for a second or two at most.

    Args:
        settings: What the agent would be told.
        cluster: The Node as the API server has it, if it was asked.
        roots: Where the kernel shows itself.
        path: Where programs are looked for; ``PATH`` if None.
    """
    roots = roots or Roots()
    version, gpus, minors, trouble = _driver(settings.simulate)
    kubelet = settings.plugin_dir / "kubelet.sock"
    return OutfitSeen(
        simulated=settings.simulate is not None,
        driver_version=version,
        driver_trouble=trouble,
        gpus=gpus,
        programs=frozenset(one for one in PROGRAMS if shutil.which(one, path=path)),
        root=os.geteuid() == 0,
        mig_right=os.access(
            roots.proc / "driver/nvidia/capabilities/mig/config", os.R_OK, effective_ids=True
        ),
        host_pids=_inode(roots.proc / "self/ns/pid") == _INITIAL_PIDS,
        cgroup_version=_cgroup_version(roots.sys),
        dmem="dmem" in _text(roots.sys / "fs/cgroup/cgroup.controllers").split(),
        missing_device_files=() if settings.simulate else _missing(roots.dev, minors),
        kubelet_answers=answers(kubelet),
        pod_resources_answer=answers(settings.pod_resources_dir / "kubelet.sock"),
        checkpoint_trouble=_checkpoint_trouble(settings.plugin_dir),
        sockets=folder(settings.plugin_dir, roots.proc),
        cdi=folder(settings.cdi_dir or Path("/var/run/cdi"), roots.proc),
        state=folder(settings.state_dir, roots.proc),
        mps=folder(settings.mps_dir, roots.proc),
        rival=live_plugin(settings.plugin_dir),
        clock_synchronised=_clock_synchronised(),
        cluster=cluster,
    )


def _driver(
    simulate: Path | None,
) -> tuple[str, tuple[GpuSeen, ...], tuple[int, ...], str]:
    """Version, GPUs, their minor numbers, and why nothing can be said."""
    try:
        with Driver(simulate) as driver:
            node = driver.observe()
            gpus = tuple(_gpu(driver, gpu, simulate) for gpu in node.gpus)
    except GpuSharingError as error:  # no driver, or no simulated machine
        return "", (), (), str(error)
    minors = tuple(gpu.minor for gpu in node.gpus if gpu.readable)
    return node.driver_version, gpus, minors, ""


def _gpu(driver: Driver, gpu: ObservedGpu, simulate: Path | None) -> GpuSeen:
    pids: frozenset[int] = frozenset()
    fault = "" if gpu.fault is None else gpu.fault.reason
    if gpu.readable:
        try:
            pids = frozenset(one.pid for one in driver.processes(gpu.uuid))
        except DriverError as error:
            fault = str(error)
    places = whereabouts(simulate).of(pids)
    return GpuSeen(
        index=gpu.index,
        product=gpu.product,
        in_catalogue=gpu.in_catalogue,
        fault=fault,
        foreign_pids=tuple(pid for pid, found in sorted(places.items()) if not found),
    )


def folder(path: Path, proc: Path = Path("/proc")) -> FolderSeen:
    """A folder that the agent needs; one that can be made counts as writable."""
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    return FolderSeen(
        path=str(path),
        exists=path.is_dir(),
        writable=nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK, effective_ids=True),
        volatile=_filesystem(nearest, proc) in _VOLATILE,
    )


def _filesystem(path: Path, proc: Path) -> str:
    """The kind of file system that a path lies on; the longest mount point wins."""
    real, best, kind = path.resolve(), "", ""
    for line in _text(proc / "mounts").splitlines():
        fields = line.split()
        if len(fields) > 2 and real.is_relative_to(fields[1]) and len(fields[1]) >= len(best):  # noqa: PLR2004 - device, place, kind
            best, kind = fields[1], fields[2]
    return kind


def _missing(dev: Path, minors: tuple[int, ...]) -> tuple[str, ...]:
    names = (*_DEVICE_FILES, *(f"nvidia{minor}" for minor in minors))
    return tuple(f"/dev/{name}" for name in names if not (dev / name).exists())


def _cgroup_version(sys: Path) -> int:
    root = sys / "fs/cgroup"
    if (root / "cgroup.controllers").exists():
        return 2
    return 1 if (root / "memory").is_dir() or (root / "devices").is_dir() else 0


def _checkpoint_trouble(sockets: Path) -> str:
    try:
        checkpoint.read(sockets)
    except GpuSharingError as error:
        return str(error)
    return ""


def _clock_synchronised() -> bool | None:
    """Asks the kernel without changing anything. Source: adjtimex(2), ``modes`` 0."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else bool(state != _TIME_ERROR)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
