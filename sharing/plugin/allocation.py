"""What the kubelet hears when a container gets its shares; pure.

An error from Allocate fails the pod for good, with our text in its status. So errors are kept for
what can never work; what only has to be waited for is said from PreStartContainer instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sharing.errors import shown
from sharing.mode import Mode
from sharing.plugin.binding import ContainerEdits, Mount, ShareBinding, container_edits
from sharing.plugin.cdi import CdiDevice, cdi_device, host_path
from sharing.plugin.errors import HeldShareError, SeveralSharesError, UnknownShareError
from sharing.plugin.settings import AnswerSettings, Strategy

VOLUME_ROOT: Final = "/var/run/nvidia-container-devices"
"""The folder whose entries NVIDIA's runtime takes as the list of devices.

Source: NVIDIA container toolkit, ``accept-nvidia-visible-devices-as-volume-mounts``.
"""
ANNOTATION_PREFIX: Final = "cdi.k8s.io/gpu-sharing_"
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A device file that the kubelet itself adds to the container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAnswer:
    """What one container gets, before it becomes a message."""

    bindings: tuple[ShareBinding, ...]
    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    device_files: tuple[DeviceFile, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi_names: tuple[str, ...] = ()
    cdi: CdiDevice | None = None
    """Must be on disk before the answer is given; None where no runtime reads CDI."""


def allocate(
    resource: str,
    device_ids: Sequence[str],
    known: Mapping[str, ShareBinding],
    settings: AnswerSettings,
    *,
    held: Mapping[str, str] | None = None,
) -> ContainerAnswer:
    """The answer for one container.

    Args:
        resource: The extended resource that the container asked for.
        device_ids: What the kubelet chose.
        known: Every share of that resource that exists, by device id; unhealthy ones too, and
            those that are offered no longer but held.
        settings: How to answer.
        held: Which of these devices another container holds for certain, and who that is.

    Raises:
        AllocationError: An id is unknown or held, or the container wants more than one share.
    """
    ids = sorted(set(device_ids))
    unknown = [device_id for device_id in ids if device_id not in known]
    if unknown or not ids:
        raise UnknownShareError(
            f"resource {resource}",
            f"device {', '.join(map(shown, unknown)) or 'list is empty'} does not exist",
            expected=f"one of the {len(known)} shares that this node offers",
            fix="delete the pod so that its controller makes a new one; "
            "if it comes back, restart the kubelet so that it reads the list again",
        )
    bindings = tuple(known[device_id] for device_id in ids)
    if len(bindings) > 1 and any(one.mode is not Mode.EXCLUSIVE for one in bindings):
        raise SeveralSharesError(
            f"resource {resource}",
            f"a container asks for {len(bindings)} shares at once",
            expected="1, since shares of several GPUs do not add up",
            fix="take a larger size, or whole GPUs",
            example=f'limits: {{{resource}: "1"}}',
        )
    taken = {one: holder for one, holder in sorted((held or {}).items()) if one in ids}
    if taken:
        raise HeldShareError(
            f"resource {resource}",
            "the kubelet hands out what is held: "
            + ", ".join(f"share {one} by {holder}" for one, holder in taken.items()),
            expected="a share that nobody holds; kubelets lose count when PodResources is listed "
            "while they admit a pod (kubernetes#137534)",
            fix="delete the pod so that its controller makes a new one, which gets a free share; "
            "have exporters on this node list PodResources less often",
        )
    return _answer(bindings, settings)


def _answer(bindings: tuple[ShareBinding, ...], settings: AnswerSettings) -> ContainerAnswer:
    strategy = settings.strategy
    if strategy.uses_cdi:
        device = cdi_device(bindings, settings.edits)
        name = device.qualified_name
        if strategy is Strategy.CDI_CRI:
            return ContainerAnswer(bindings=bindings, cdi=device, cdi_names=(name,))
        key = ANNOTATION_PREFIX + hashlib.sha256(device.name.encode()).hexdigest()[:16]
        return ContainerAnswer(bindings=bindings, cdi=device, annotations=((key, name),))
    edits = container_edits(bindings, settings.edits)
    files = tuple(
        DeviceFile(host_path=host_path(path, settings.edits.dev_root), container_path=path)
        for path in edits.device_nodes
        if not settings.edits.simulated  # the kubelet takes files of the host only
    )
    if strategy is Strategy.ENVVAR:
        return ContainerAnswer(
            bindings=bindings, envs=edits.env, mounts=edits.mounts, device_files=files
        )
    return ContainerAnswer(
        bindings=bindings,
        envs=_with_visible(edits, VOLUME_ROOT),
        mounts=(*edits.mounts, *(_marker(binding) for binding in bindings)),
        device_files=files,
    )


def _with_visible(edits: ContainerEdits, value: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((dict(edits.env) | {_VISIBLE: value}).items()))


def _marker(binding: ShareBinding) -> Mount:
    """A mount whose name is the message; a pod can set variables, but not mount host files."""
    return Mount(host_path="/dev/null", container_path=f"{VOLUME_ROOT}/{binding.visible}")
