"""Guard rails: what a pod may not have beside a share.

A container that is privileged, or sees the host's processes or device folders, sees every GPU of
its node; then shares mean nothing. The webhook is not the boundary (an image can hold anything),
but what a pod says openly is refused here, with the container's name (HAMi#2138).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.api.profile import SharingProfile
from sharing.errors import shown
from webhook.container import Container, mapping
from webhook.errors import PolicyError
from webhook.openings import below, check_mounts, check_openings, clean
from webhook.rewrite import DECIDED_BY_SHARE, LEGACY_VARIABLE

_CAPABILITIES: Final = frozenset(
    {"ALL", "BPF", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO"}
)
"""Each opens other containers' devices or the kernel. IPC_LOCK and the like are harmless, and so
is SYS_PTRACE without the host's processes: kubectl gives it to every debug container.

Source: kubernetes/kubectl, pkg/cmd/debug/profiles.go, the profile "general".
"""
_HOST_PATHS: Final = (
    "/dev",
    "/etc/cdi",
    "/etc/containerd",
    "/etc/crio",
    "/etc/kubernetes",
    "/etc/nvidia-container-runtime",
    "/proc",
    "/run",
    "/sys/fs/cgroup",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/gpu-sharing",
    "/var/lib/kubelet",
    "/var/run",
)
_HARMLESS_PATHS: Final = ("/dev/shm", "/dev/infiniband", "/dev/hugepages")  # noqa: S108  the host's
_DEVICE_TYPES: Final = ("CharDevice", "BlockDevice")
DEBUG_VARIABLES: Final = DECIDED_BY_SHARE | {
    LEGACY_VARIABLE,
    "NVIDIA_DRIVER_CAPABILITIES",
    "CUDA_VISIBLE_DEVICES",
}
"""What a debug container may not set beside a share."""


def check_pod(
    pod: Mapping[str, Any], containers: Iterable[Container], profile: SharingProfile
) -> None:
    """Refuse what would make shares of this pod's node meaningless.

    Raises:
        PolicyError: The pod has such a thing; it is named.
    """
    spec, listed = mapping(pod, "spec"), list(containers)
    check_openings(pod, listed)
    if spec.get("nodeName"):
        raise PolicyError(
            "spec.nodeName",
            f"{shown(spec['nodeName'])} bypasses the scheduler, which counts shares",
            fix="choose the node by nodeSelector or node affinity",
            example="nodeSelector: {kubernetes.io/hostname: node-1}",
        )
    if profile.spec.privileged == "allow":
        return
    for container in listed:
        _check_privileges(container.label, container.field, container.raw, profile)
    _check_host(spec, profile)


def _check_privileges(
    label: str, field: str, raw: Mapping[str, Any], profile: SharingProfile
) -> None:
    security = mapping(raw, "securityContext")
    if security.get("privileged") is True:
        raise _privileged(f"{label}: {field}.securityContext.privileged", "true", profile)
    added = mapping(security, "capabilities").get("add")
    for capability in added if isinstance(added, list) else ():
        # Runtimes take names in any case. Source: containerd, CRI, WithCapabilities.
        if isinstance(capability, str) and _plain(capability) in _CAPABILITIES:
            where = f"{label}: {field}.securityContext.capabilities.add"
            raise _privileged(where, capability, profile)


def _plain(capability: str) -> str:
    return capability.upper().removeprefix("CAP_")


def _check_host(spec: Mapping[str, Any], profile: SharingProfile) -> None:
    for field in ("hostPID", "hostIPC"):
        if spec.get(field) is True:
            raise _privileged(f"spec.{field}", "true", profile)
    volumes = spec.get("volumes")
    for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        host = volume.get("hostPath") if isinstance(volume, dict) else None
        path = host.get("path") if isinstance(host, dict) else None
        if not isinstance(host, dict) or not isinstance(path, str):
            continue
        if _opens_devices(path) or host.get("type") in _DEVICE_TYPES:
            raise _privileged(f"spec.volumes[{index}].hostPath.path", path, profile)


def _opens_devices(path: str) -> bool:
    """Whether a host path is one of the guarded folders, below one, or above one."""
    if below(path, _HARMLESS_PATHS):
        return False
    above = clean(path).rstrip("/") + "/"
    return below(path, _HOST_PATHS) or any(guarded.startswith(above) for guarded in _HOST_PATHS)


def _privileged(where: str, value: str, profile: SharingProfile) -> PolicyError:
    return PolicyError(
        where,
        f"{shown(value)} opens all GPUs of the node, beside a share of one "
        f"(profile {profile.name}, privileged: deny)",
        expected="a pod with a share to hold no more than its share",
        fix="remove it, or run it in a pod without a GPU",
        example="securityContext: {privileged: false}",
    )


def check_debug_containers(
    pod: Mapping[str, Any], before: Mapping[str, Any], profile: SharingProfile
) -> None:
    """Refuse a new debug container that would see more GPUs than the pod's own share.

    Only containers that this request adds count, so that an old one never blocks a new one.

    Raises:
        PolicyError: A new container has such a thing; it is named.
    """
    old = {name for name, _, _ in _ephemeral(before)}
    for name, field, raw in _ephemeral(pod):
        if name in old:
            continue
        label = f"debug container {name or field}"
        listed = raw.get("env")
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            variable = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(variable, str) and variable in DEBUG_VARIABLES:
                raise _debug(f"{label}: {field}.env[{index}]", variable)
        if raw.get("envFrom"):
            raise _debug(f"{label}: {field}.envFrom", "envFrom")
        check_mounts(label, field, raw)
        if profile.spec.privileged == "deny":
            _check_privileges(label, field, raw, profile)


def _ephemeral(pod: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    listed = mapping(pod, "spec").get("ephemeralContainers")
    return [
        (str(raw.get("name") or ""), f"spec.ephemeralContainers[{index}]", raw)
        for index, raw in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(raw, dict)
    ]


def _debug(where: str, what: str) -> PolicyError:
    return PolicyError(
        where,
        f"{what} can open GPUs that the pod has no share of",
        fix="leave it out; a debug container shares the pod's namespaces as it is",
        example="kubectl debug POD --image=busybox --target=CONTAINER",
    )
