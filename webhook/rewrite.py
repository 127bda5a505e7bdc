"""The patch's part inside containers: resources, and what a container may see of the GPUs.

Other resources, unknown fields and the order of everything are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.errors import InputError
from webhook.container import Container, mapping
from webhook.patch import PatchOperation, add, escape, remove, remove_members, replace, set_members
from webhook.resources import amount_of, is_gpu_key

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_VOID: Final = {"name": VISIBLE_DEVICES, "value": "void"}
"""``void`` mounts nothing of the driver. Source: NVIDIA Container Toolkit documentation."""
_HARMLESS: Final = ("void", "none")
LEGACY_VARIABLE: Final = "CUDA_VERSION"
"""Without NVIDIA_VISIBLE_DEVICES beside it, all GPUs: so old CUDA images speak.

Source: NVIDIA Container Toolkit, internal/config/image, IsLegacy."""
DECIDED_BY_SHARE: Final = frozenset(
    {
        VISIBLE_DEVICES,
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
    }
)
"""What binds a container to its share; the kubelet sets it, and a pod's own value would win over
a device plugin's. Source: kubelet, container environment after device plugin environment."""


def give_share(
    container: Container, members: Mapping[str, str], foreign: Iterable[str] = ()
) -> list[PatchOperation]:
    """Make a container's GPU resources exactly these.

    Args:
        container: The container.
        members: Amounts by resource name, as texts.
        foreign: Names of other systems' resources, which go.
    """
    gone = frozenset(foreign)
    resources = container.raw.get("resources")
    path = f"{container.path}/resources"
    if not isinstance(resources, dict):
        return [add(path, {"limits": dict(members)})]
    limits, requests = resources.get("limits"), resources.get("requests")
    if not isinstance(limits, dict):
        operations = [add(f"{path}/limits", dict(members))]
    else:
        operations = _amend(f"{path}/limits", limits, members, gone)
    if isinstance(requests, dict) and any(is_gpu_key(key) or key in gone for key in requests):
        # The API server defaults missing requests from limits, but keeps the ones that are there.
        operations += _amend(f"{path}/requests", requests, members, gone)
    return operations


def _amend(
    path: str, current: Mapping[str, Any], members: Mapping[str, str], gone: frozenset[str]
) -> list[PatchOperation]:
    operations = [
        remove(f"{path}/{escape(key)}")
        for key in current
        if (is_gpu_key(key) or key in gone) and key not in members
    ]
    for key, text in members.items():
        if key not in current:
            operations.append(add(f"{path}/{escape(key)}", text))
        elif current[key] != text and not _same(current[key], text):
            operations.append(replace(f"{path}/{escape(key)}", text))
    return operations


def _same(value: object, text: str) -> bool:
    """Whether a member says the amount already: 1, "1" and "1000m" do not differ."""
    try:
        return amount_of(value) == amount_of(text)
    except InputError:
        return False


def drop(container: Container, names: Iterable[str]) -> Iterable[PatchOperation]:
    """Take resources off a container that has no share."""
    resources, listed = mapping(container.raw, "resources"), list(names)
    for part in ("limits", "requests"):
        yield from remove_members(
            f"{container.path}/resources/{part}", mapping(resources, part), listed
        )


def clear_environment(container: Container) -> tuple[list[PatchOperation], list[str]]:
    """Take out what the share decides; the operations, and the names that were taken out."""
    listed = container.raw.get("env")
    if not isinstance(listed, list):
        return [], []
    found = [
        (index, entry["name"])
        for index, entry in enumerate(listed)
        if isinstance(entry, dict) and _name(entry) in DECIDED_BY_SHARE
    ]
    operations = [remove(f"{container.path}/env/{index}") for index, _ in reversed(found)]
    return operations, sorted({name for _, name in found})


def hide_gpus(container: Container, *, always: bool) -> list[PatchOperation]:
    """Let a container without a share see no GPU.

    An explicit value beats the image's and envFrom's. The first entry is replaced in place, with
    whatever source it had; further entries of the name go (nvidia-container-toolkit#1165).

    Args:
        container: The container.
        always: Whether to write the variable where the container does not set it.
    """
    listed = container.raw.get("env")
    path = f"{container.path}/env"
    if not isinstance(listed, list):
        return [add(path, [dict(_VOID)])] if always else []
    found = [
        index
        for index, entry in enumerate(listed)
        if isinstance(entry, dict) and _name(entry) == VISIBLE_DEVICES
    ]
    if not found:
        return [add(f"{path}/-", dict(_VOID))] if always else []
    operations = [remove(f"{path}/{index}") for index in reversed(found[1:])]
    if not _harmless(listed[found[0]]):
        operations.append(replace(f"{path}/{found[0]}", dict(_VOID)))
    return operations


def may_see_gpus(container: Container) -> bool:
    """Whether a container that does not name its devices may be given all of them.

    Nobody can see here what envFrom brings.
    """
    listed = container.raw.get("env")
    entries = listed if isinstance(listed, list) else ()
    return bool(container.raw.get("envFrom")) or any(
        isinstance(entry, dict) and entry.get("name") == LEGACY_VARIABLE for entry in entries
    )


def _harmless(entry: dict[str, Any]) -> bool:
    value = entry.get("value", "")
    hidden = isinstance(value, str) and value in _HARMLESS
    return hidden and not entry.get("valueFrom")


def _name(entry: dict[str, Any]) -> str:
    name = entry.get("name")
    return name if isinstance(name, str) else ""


def annotate(
    holder: Mapping[str, Any], members: Mapping[str, str], removed: Iterable[str] = ()
) -> Iterable[PatchOperation]:
    """Set and remove annotations of an object, one by one.

    Args:
        holder: The pod, pod template or workload.
        members: What to set.
        removed: Keys to take off, where they are.
    """
    metadata = holder.get("metadata")
    if not isinstance(metadata, dict):
        if members:
            yield add("/metadata", {"annotations": dict(members)})
        return
    current = metadata.get("annotations")
    if isinstance(current, dict):
        yield from remove_members("/metadata/annotations", current, removed)
    yield from set_members("/metadata/annotations", current, members)
