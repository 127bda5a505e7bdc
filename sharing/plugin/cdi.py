"""CDI specs: the files by which a container runtime learns what a device name means.

One CDI device for each device id; a container with several whole GPUs gets one combined device,
since two devices that set the same variable clash without a word. A device is on disk before the
kubelet can hand it out, and stays while a pod may restart with it.

Source: CDI specification, https://github.com/cncf-tags/container-device-interface, SPEC.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from sharing.errors import shown
from sharing.plugin.binding import (
    SHARES_ENV,
    ContainerEdits,
    EditSettings,
    Hook,
    Mount,
    ShareBinding,
    container_edits,
)
from sharing.plugin.errors import PluginError
from sharing.plugin.simulatedfiles import MAJOR, minor_of

KIND: Final = "gpu.sharing/share"
VERSION: Final = "0.5.0"
"""The first that knows ``hostPath``; containerd 1.7 refuses files that name a later one."""
COMBINED_PREFIX: Final = "gpus-"
FILE_PREFIX: Final = "gpu.sharing-share_"

_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_DIGEST_CHARACTERS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiDevice:
    """One entry of a spec file."""

    name: str
    edits: ContainerEdits

    @property
    def qualified_name(self) -> str:
        """As the kubelet hands it to the container runtime."""
        return f"{KIND}={self.name}"


def device_name(device_ids: Sequence[str]) -> str:
    """The CDI device of a container with these ids, whatever their order.

    Raises:
        PluginError: An id cannot stand in a CDI name.
    """
    ids = sorted(_checked(device_id) for device_id in device_ids)
    if len(ids) == 1:
        return ids[0]
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()
    return f"{COMBINED_PREFIX}{digest[:_DIGEST_CHARACTERS]}"


def cdi_device(bindings: Sequence[ShareBinding], settings: EditSettings) -> CdiDevice:
    """The one CDI device of a container that holds these shares.

    Raises:
        PluginError: A device id cannot stand in a CDI name.
    """
    return CdiDevice(
        name=device_name([binding.device_id for binding in bindings]),
        edits=container_edits(bindings, settings),
    )


def spec_files(
    bindings: Sequence[ShareBinding],
    combinations: Sequence[frozenset[str]],
    settings: EditSettings,
) -> dict[str, bytes]:
    """Content by file name: one file for each GPU, one for each combination that is known whole.

    Raises:
        PluginError: A device id cannot stand in a CDI name.
    """
    by_gpu: dict[str, list[ShareBinding]] = {}
    known = {binding.device_id: binding for binding in bindings}
    for binding in sorted(known.values(), key=lambda binding: binding.device_id):
        by_gpu.setdefault(binding.gpu_uuid, []).append(binding)
    files = {
        file_name(gpu_uuid): spec([cdi_device([one], settings) for one in shares], settings)
        for gpu_uuid, shares in sorted(by_gpu.items())
    }
    for ids in combinations:
        if ids <= known.keys():
            device = cdi_device([known[one] for one in sorted(ids)], settings)
            files[file_name(device.name)] = spec([device], settings)
    return files


def file_name(name: str) -> str:
    """The spec file of a GPU or of a combined device; only such files are ever ours.

    Raises:
        PluginError: The name cannot be that of a file.
    """
    return f"{FILE_PREFIX}{_checked(name)}.json"


def _checked(name: str) -> str:
    if not _DEVICE_NAME.fullmatch(name):
        raise PluginError(
            "CDI device",
            f"id {shown(name)} cannot be part of its name",
            expected="letters, digits and _ . : - between a letter or digit at each end",
            example="GPU-7b2f9f1c-0b6e-4a50-a3a5-3d1b6e2f9a10::0",
        )
    return name


def spec(devices: Sequence[CdiDevice], settings: EditSettings) -> bytes:
    """A spec file; equal devices give equal bytes."""
    document = {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [
            {"name": device.name, "containerEdits": _edits(device.edits, settings)}
            for device in devices
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def combinations_in(document: bytes) -> tuple[frozenset[str], ...]:
    """The sets of device ids of the combined devices in a spec file of ours.

    A file that is not ours to read yields nothing: anybody may write into that folder.
    """
    try:
        devices = orjson.loads(document)["devices"]
        return tuple(
            frozenset(_environment(device)[SHARES_ENV].split(","))
            for device in devices
            if str(device["name"]).startswith(COMBINED_PREFIX)
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _environment(device: Mapping[str, Any]) -> dict[str, str]:
    entries = device["containerEdits"]["env"]
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _edits(edits: ContainerEdits, settings: EditSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"env": [f"{name}={value}" for name, value in edits.env]}
    if edits.device_nodes:
        found["deviceNodes"] = [_node(path, settings) for path in edits.device_nodes]
    if edits.mounts:
        found["mounts"] = [_mount(mount) for mount in edits.mounts]
    if edits.hooks:
        found["hooks"] = [_hook(hook) for hook in edits.hooks]
    return found


def host_path(path: str, dev_root: str) -> str:
    """Where a device file of a container lies on the host."""
    return path if dev_root == "/" else dev_root.rstrip("/") + path


def _node(path: str, settings: EditSettings) -> dict[str, Any]:
    node = {"path": path, "permissions": "rw"}
    if settings.simulated and (minor := minor_of(path)) is not None:
        return node | {"type": "c", "major": MAJOR, "minor": minor}
    on_host = host_path(path, settings.dev_root)
    return node if on_host == path else node | {"hostPath": on_host}


def _mount(mount: Mount) -> dict[str, Any]:
    options = ["ro" if mount.read_only else "rw", "nosuid", "nodev", "rbind", "rprivate"]
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": options,
    }


def _hook(hook: Hook) -> dict[str, Any]:
    found: dict[str, Any] = {"hookName": hook.name, "path": hook.path}
    if hook.args:
        found["args"] = list(hook.args)
    if hook.env:
        found["env"] = list(hook.env)
    return found
