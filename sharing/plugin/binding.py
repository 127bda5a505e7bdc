"""What binds a container to its share: the values that become CDI edits or an Allocate answer.

The agent makes one binding for each share from what it read back from the driver; everything
here is a function of that value, so the same share always binds in the same way.

A CDI edit beats a pod's own env, and the pod's env beats what Allocate returns. Whatever must
hold (visible devices, MPS directory and limits) is therefore part of :func:`container_edits`.
Source: CDI specification 0.5, "containerEdits"; observed on Kubernetes 1.37 with containerd.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sharing.mode import Mode

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the place that CUDA looks for, not a scratch file
"""MPS clients and servers meet in it; both sides must see the same one."""

MODE_ENV: Final = "GPU_SHARING_MODE"
RESOURCE_ENV: Final = "GPU_SHARING_RESOURCE"
MEMORY_ENV: Final = "GPU_SHARING_MEMORY_MIB"
THREADS_ENV: Final = "GPU_SHARING_THREAD_PERCENTAGE"
SHARES_ENV: Final = "GPU_SHARING_SHARES"
DEVICES_ENV: Final = "GPU_SHARING_DEVICES"
FILES_ENV: Final = "GPU_SHARING_FILES"
FILES_FOLDER: Final = "/etc/gpu-sharing/shares"
"""Where a container finds a file for each of its shares."""


class Visibility(StrEnum):
    """What ``NVIDIA_VISIBLE_DEVICES`` says to NVIDIA's container runtime."""

    UUID = "uuid"
    """The runtime injects driver libraries and the devices of these UUIDs."""
    VOID = "void"
    """The runtime stays out; our own edits carry driver libraries and devices (pure CDI)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsBinding:
    """How a container reaches its GPU's MPS daemon, and what it may use there.

    The limits may only tighten what the daemon itself enforces (its ceiling); a process that
    unsets them falls back to the ceiling, never beyond it.
    """

    pipe_dir: str
    """The daemon's pipe directory; the same path on the host and inside the container."""
    memory_limit_mib: int
    thread_percentage: int
    """Of the GPU's threads, 1 to 100."""
    shm_dir: str | None = None
    """The daemon's private shared memory; None where it uses the container's own (host IPC)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBinding:
    """One share as the kubelet and the container runtime have to know it."""

    device_id: str
    resource: str
    """Extended resource name of its share class."""
    visible: str
    """What the container sees: UUID of the GPU, or of the MIG device."""
    mode: Mode
    memory_mib: int
    gpu_uuid: str
    """The physical GPU, also where ``visible`` is a MIG device."""
    device_nodes: tuple[str, ...] = ()
    """Device files inside a container, MIG capability files included; absolute paths."""
    numa_node: int | None = None
    healthy: bool = True
    mps: MpsBinding | None = None
    info_file: str | None = None
    """The file on the host that tells user code of the share; see ``sharefile``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A host folder or file inside the container, at the same path unless said otherwise."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """An OCI hook of the driver's own CDI spec, passed through."""

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What a container gets; sorted, so that equal edits are equal bytes."""

    env: tuple[tuple[str, str], ...] = ()
    device_nodes: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EditSettings:
    """What is the same for all shares of a node."""

    visibility: Visibility = Visibility.UUID
    dev_root: str = "/"
    """Where the device files lie on the host, if not below ``/`` (a containerised driver)."""
    simulated: bool = False
    """Whether the device files are those of simulated GPUs, which no host has."""
    driver: ContainerEdits = ContainerEdits()
    """Driver libraries, control device nodes and hooks for runtimes without NVIDIA's own."""


def container_edits(
    bindings: Sequence[ShareBinding], settings: EditSettings | None = None
) -> ContainerEdits:
    """What a container that holds these shares gets.

    Several bindings are several whole GPUs: one set of edits, because two CDI devices that set
    the same variable clash without a word.
    """
    settings = settings or EditSettings()
    ordered = sorted(bindings, key=lambda binding: binding.device_id)
    nodes = {node for binding in ordered for node in binding.device_nodes}
    env = _env(ordered, settings.visibility) | dict(settings.driver.env)
    mounts = {
        mount for binding in ordered for mount in (*_mps_mounts(binding), *_file_mounts(binding))
    }
    return ContainerEdits(
        env=tuple(sorted(env.items())),
        device_nodes=tuple(sorted(nodes | set(settings.driver.device_nodes))),
        mounts=tuple(
            sorted(mounts | set(settings.driver.mounts), key=lambda mount: mount.container_path)
        ),
        hooks=settings.driver.hooks,
    )


def _env(bindings: Sequence[ShareBinding], visibility: Visibility) -> dict[str, str]:
    """Variables of the runtime, of CUDA and of user code.

    ``CUDA_VISIBLE_DEVICES`` is left alone: the device files and the runtime keep other GPUs away,
    and frameworks exist that read it as numbers and fail on a UUID.
    """
    visible = ",".join(binding.visible for binding in bindings)
    first = bindings[0]
    env = {
        "NVIDIA_VISIBLE_DEVICES": visible if visibility is Visibility.UUID else "void",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        MODE_ENV: first.mode.value,
        RESOURCE_ENV: first.resource,
        MEMORY_ENV: str(sum(binding.memory_mib for binding in bindings)),
        SHARES_ENV: ",".join(binding.device_id for binding in bindings),
        DEVICES_ENV: visible,
    }
    files = [mount.container_path for binding in bindings for mount in _file_mounts(binding)]
    if files:
        env[FILES_ENV] = ",".join(files)
    if first.mps is not None:
        env |= {
            "CUDA_MPS_PIPE_DIRECTORY": first.mps.pipe_dir,
            # The container sees one device, so its ordinal is 0. Ordinals, not UUIDs: limits
            # by UUID were found not to apply (NVIDIA/k8s-device-plugin, 0.15.0-rc.2).
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={first.mps.memory_limit_mib}M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(first.mps.thread_percentage),
            THREADS_ENV: str(first.mps.thread_percentage),
        }
    return env


def file_name(device_id: str) -> str:
    """The name of a share's file; a colon parts the halves of a mount in too many tools."""
    return re.sub(r"[:/]+", "_", device_id) + ".json"


def _file_mounts(binding: ShareBinding) -> tuple[Mount, ...]:
    if binding.info_file is None:
        return ()
    path = f"{FILES_FOLDER}/{file_name(binding.device_id)}"
    return (Mount(host_path=binding.info_file, container_path=path, read_only=True),)


def _mps_mounts(binding: ShareBinding) -> tuple[Mount, ...]:
    if binding.mps is None:
        return ()
    pipe = Mount(host_path=binding.mps.pipe_dir, container_path=binding.mps.pipe_dir)
    if binding.mps.shm_dir is None:
        return (pipe,)
    return (pipe, Mount(host_path=binding.mps.shm_dir, container_path=SHARED_MEMORY))
