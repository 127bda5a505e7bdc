"""What a node has of all that sharing its GPUs takes: driver, kubelet, folders, programs (values).

How it is looked at is in ``examination``, what it means in ``fitness``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSeen:
    """A folder that the agent needs."""

    path: str
    exists: bool = False
    writable: bool = False
    volatile: bool = False
    """Whether it is gone after a reboot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeen:
    """One GPU as the driver shows it."""

    index: int
    product: str
    in_catalogue: bool = True
    fault: str = ""
    mig_capable: bool = False
    foreign_pids: tuple[int, ...] = ()
    """Processes of no pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    """The Node as the API server has it."""

    trouble: str = ""
    managed: bool = False
    kubelet: str = ""
    runtime: str = ""
    """As the Node says it: ``containerd://2.0.4``."""
    gfd: bool = False
    """Whether GPU Feature Discovery has labelled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutfitSeen:
    """Everything that was looked at; empty texts where nothing was found."""

    simulated: bool = False
    driver_version: str = ""
    driver_trouble: str = ""
    gpus: tuple[GpuSeen, ...] = ()
    programs: frozenset[str] = frozenset()
    """Those of the programs asked for that can be run."""
    root: bool = False
    mig_right: bool = False
    """Whether the capability ``mig/config`` may be read."""
    host_pids: bool = False
    cgroup_version: int = 0
    """1, 2, or 0 where it cannot be told."""
    dmem: bool = False
    """Whether the kernel accounts GPU memory by cgroup."""
    missing_device_files: tuple[str, ...] = ()
    kubelet_answers: bool = False
    pod_resources_answer: bool = False
    checkpoint_trouble: str = ""
    sockets: FolderSeen = FolderSeen(path="")
    cdi: FolderSeen = FolderSeen(path="")
    state: FolderSeen = FolderSeen(path="")
    mps: FolderSeen = FolderSeen(path="")
    rival: str = ""
    mig_manager: str = ""
    announced: tuple[str, ...] = ()
    clock_synchronised: bool | None = None
    """None where the kernel does not tell."""
    cluster: ClusterSeen | None = None
    """None where no cluster was asked."""
