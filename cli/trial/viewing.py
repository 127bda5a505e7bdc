"""What a container sees of GPUs, and how a container on a real cluster is made to tell it (pure).

On an embedded cluster the kubelet says it. On a real one the container itself does: it prints its
environment, device files and mounts into its log and then sleeps, or ends if it is an init
container. What every container has is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_SEEN: Final = ("NVIDIA_", "CUDA_", "GPU_SHARING_")
_MARK: Final = "-- gpu-sharing trial: "
REFUSED: Final = " (refused)"
"""After a device file that is there and may not be opened for reading and writing."""
_DEVICES: Final = (
    "for file in /dev/nvidia* /dev/nvidia-caps/* /dev/dxg; do "
    '[ -e "$file" ] && [ ! -d "$file" ] || continue; '
    'case "$( (: <>"$file") 2>&1)" in '
    f"""*" not permitted" | *" denied") echo "$file{REFUSED}";; *) echo "$file";; esac; done"""
)
"""Other errors are the driver's word, as of a simulated GPU, which has none."""
_TELL: Final = (
    f'echo "{_MARK}env"; env; '
    f'echo "{_MARK}devices"; {_DEVICES}; '
    f'echo "{_MARK}mounts"; cat /proc/self/mountinfo; '
    f'echo "{_MARK}end"'
)
_SLEEP: Final = "trap 'exit 0' TERM; sleep 2147483647 & wait"
"""A first process that does not say so hears no SIGTERM."""
_GRACE_S: Final = 2
"""Not 0, by which the API server would forget pods before their kubelet has ended them."""
_MOUNT_POINT: Final = 4
"""Field of a line of ``/proc/<pid>/mountinfo``, from 0; ``proc(5)``."""
_EVERYBODYS: Final = (
    "/proc", "/sys", "/dev", "/dev/pts", "/dev/mqueue", "/dev/shm",  # noqa: S108 - a mount point
    "/dev/termination-log", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
)  # fmt: skip
_EVERYBODYS_BELOW: Final = ("/proc/", "/sys/", "/var/run/secrets/", "/run/secrets/")
_MANY: Final = "IfNotPresent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One container's view.

    Attributes:
        env: Variables that concern GPUs.
        device_nodes: Device files of GPUs, in order; ``REFUSED`` follows what may not be opened.
        mounts: Mount points beyond those that every container has, in order.
    """

    env: Mapping[str, str]
    device_nodes: tuple[str, ...]
    mounts: tuple[str, ...]


def seen(env: Mapping[str, str], device_nodes: Iterable[str], mounts: Iterable[str]) -> Seen:
    """The view of what concerns GPUs in all that a container has."""
    return Seen(
        env={name: value for name, value in sorted(env.items()) if name.startswith(_SEEN)},
        device_nodes=tuple(sorted(set(device_nodes))),
        mounts=tuple(sorted({path for path in mounts if _is_special(path)})),
    )


def telling(manifest: Mapping[str, Any], image: str) -> dict[str, Any]:
    """The pod with containers that run a small image and tell what they see.

    It ends at once when it is deleted.
    """
    spec = dict(manifest["spec"])
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [_telling(one, image, init=field != "containers") for one in spec[field]]
    return {**manifest, "spec": {**spec, "terminationGracePeriodSeconds": _GRACE_S}}


def _telling(container: Mapping[str, Any], image: str, *, init: bool) -> dict[str, Any]:
    ends = init and container.get("restartPolicy") != "Always"
    command = ["sh", "-c", _TELL if ends else f"{_TELL}; {_SLEEP}"]
    return {**container, "image": image, "imagePullPolicy": _MANY, "command": command}


def told(log: str) -> Seen | None:
    """The view that a container's log tells; None while it has not told all."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in log.splitlines():
        if line.startswith(_MARK):
            lines = sections[line.removeprefix(_MARK)] = []
        else:
            lines.append(line)
    if "end" not in sections:
        return None
    pairs = (line.partition("=") for line in sections["env"])
    mounts = (line.split() for line in sections["mounts"])
    return seen(
        {name: value for name, _, value in pairs},
        sections["devices"],
        (fields[_MOUNT_POINT] for fields in mounts if len(fields) > _MOUNT_POINT),
    )


def _is_special(path: str) -> bool:
    return path != "/" and path not in _EVERYBODYS and not path.startswith(_EVERYBODYS_BELOW)
