"""Openings: what of a pod chooses devices past the device plugin, with no privilege at all.

Annotations that a runtime or one of its plugins turns into devices, and mounts that NVIDIA's
runtime reads as a list of GPUs. A share brings its own devices, so nobody needs them beside one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.errors import shown
from webhook.container import Container, mapping
from webhook.errors import PolicyError

DEVICE_ANNOTATIONS: Final = (
    "cdi.k8s.io/",
    "cdi-devices.noderesource.dev",
    "cdi-devices.nri.io",
    "devices.gke.io/",
    "devices.noderesource.dev",
    "devices.nri.io",
    "io.kubernetes.cri-o.Devices",
    "mounts.noderesource.dev",
    "mounts.nri.io",
    "nvidia.cdi.k8s.io/",
)
"""Beginnings of keys that inject devices or mounts.

Sources: Container Device Interface, annotations; containerd/nri, plugins/device-injector;
NVIDIA Container Toolkit, internal/nri and nvidia-container-runtime.modes.cdi.annotation-prefixes;
CRI-O, allowed_annotations; GKE, NRI device injector.
"""
KAI_AMOUNTS: Final = (".gpu-memory.request", ".gpu-memory.limit")
"""Ends of keys under ``nvidia.cdi.k8s.io/`` that ask KAI Scheduler for memory (KAI#1505)."""
DRIVER_MOUNTS: Final = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")
"""Mounts there choose GPUs.

Source: NVIDIA Container Toolkit, accept-nvidia-visible-devices-as-volume-mounts.
"""
_DRIVER_MOUNT: Final = "nvidia-container-devices"
"""A part of both, so that most paths need no closer look."""


def check_openings(pod: Mapping[str, Any], containers: Iterable[Container]) -> None:
    """Refuse what chooses GPUs past the device plugin.

    Raises:
        PolicyError: The pod has such a thing; it is named.
    """
    _check_annotations(mapping(mapping(pod, "metadata"), "annotations"))
    for container in containers:
        check_mounts(container.label, container.field, container.raw)


def injects_devices(key: str, value: object) -> bool:
    """Whether an annotation makes a runtime add devices to a container."""
    if not key.startswith(DEVICE_ANNOTATIONS):
        return False
    # A device of the Container Device Interface is called vendor/class=name.
    amount = key.endswith(KAI_AMOUNTS) and isinstance(value, str) and "=" not in value
    return not (key.startswith("nvidia.cdi.k8s.io/") and amount)


def _check_annotations(annotations: Mapping[str, Any]) -> None:
    for key, value in annotations.items():
        if injects_devices(key, value):
            raise PolicyError(
                f"metadata.annotations[{key}]",
                "it injects devices past the device plugin",
                fix="remove it; a share brings its own devices",
                example="nvidia.com/gpu: 1",
            )


def check_mounts(label: str, field: str, raw: Mapping[str, Any]) -> None:
    """Refuse mounts of one container, of whatever kind, that choose GPUs.

    Args:
        label: The container as messages call it.
        field: Its path as people write it.
        raw: The container.

    Raises:
        PolicyError: It has one; it is named.
    """
    mounts = raw.get("volumeMounts")
    for index, mount in enumerate(mounts if isinstance(mounts, list) else ()):
        path = mount.get("mountPath") if isinstance(mount, dict) else None
        if isinstance(path, str) and _DRIVER_MOUNT in path and below(path, DRIVER_MOUNTS):
            raise PolicyError(
                f"{label}: {field}.volumeMounts[{index}].mountPath",
                f"{shown(path)} chooses GPUs past the device plugin",
                fix="remove the mount; a share brings its own devices",
                example="nvidia.com/gpu: 1",
            )


def clean(path: str) -> str:
    """A path as the kernel sees it: absolute, one slash between names, no dots.

    The kubelet takes relative ones from the root, and ``//`` in front means no more than ``/``.
    """
    return posixpath.normpath("/" + path.lstrip("/"))


def below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders or lies below one."""
    cleaned = clean(path)
    return any(cleaned == folder or cleaned.startswith(folder + "/") for folder in folders)
