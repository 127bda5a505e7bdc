"""Which pod and container a process belongs to, by ``/proc/PID/cgroup`` (pure).

Each line is ``hierarchy:controllers:path``; cgroup v2 has one, ``0::path``. The kubelet and the
container runtime spell a pod's path in these ways, below whatever the node adds in front:

=========================  ===================================================================
systemd, containerd        ``kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope``
systemd, CRI-O             ``kubepods-pod<uid>.slice/crio-<id>.scope``
systemd, cri-dockerd       ``kubepods-besteffort-pod<uid>.slice/docker-<id>.scope``
cgroupfs                   ``kubepods/burstable/pod<uid>/<id>``
drivers that differ        ``kubepods-burstable-pod<uid>.slice:cri-containerd:<id>``
=========================  ===================================================================

A container with cgroups of its own to manage can make children of any name, another pod's too.
So places are listed from the outside in, and whoever asks takes the first pod that it knows; only
a node that is itself a container of an unknown pod is looked into further.

Source: kubernetes, pkg/kubelet/cm (cgroup names, systemd escapes ``-`` in a uid as ``_``);
containerd and CRI-O, runc's ``cgroupsPath``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

MOST_CHARACTERS: Final = 1 << 14
"""Of a file that counts; paths are at most 4 KiB, and only some twenty lines exist."""
_POD: Final = re.compile(
    r"(?:kubepods(?:-[a-z]+)?-)?pod([0-9A-Za-z_-]{8,64}?)(?:\.slice)?(?::([^/]{1,128}))?",
    re.ASCII,
)
_CONTAINER: Final = re.compile(
    r"(?:(?:cri-containerd|[a-z][a-z0-9]{0,30})[:-])?([0-9a-f]{64})(?:\.scope)?", re.ASCII
)
_PARENTS: Final = ("kubepods", "kubelet-kubepods")
_CLASSES: Final = ("burstable", "besteffort")
"""Of quality of service; guaranteed pods have no level of their own."""
_SLICE: Final = re.compile(r"(kubepods)(-[a-z]+)?-pod[^/]+\.slice", re.ASCII)
_PREFERRED: Final = ("", "memory", "devices", "pids", "name=systemd")
"""Which hierarchy is believed first; the empty one is cgroup v2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A pod's cgroup, or one of its containers'."""

    pod_uid: str
    """As the kubelet writes it into its checkpoint."""
    container_id: str = ""
    """The runtime's 64 digits; empty for a process outside of the pod's containers."""
    path: str = ""
    """The cgroup of the container, or of the pod, as this process names it."""


def places_of(text: str) -> tuple[Place, ...]:
    """The pods that a process lies in, from the outside in; empty for one of the node itself.

    Args:
        text: The content of ``/proc/PID/cgroup``; a part that makes no sense counts for nothing.
    """
    by_controller: dict[str, tuple[Place, ...]] = {}
    for line in text[:MOST_CHARACTERS].splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3 or not fields[0].isdecimal():  # noqa: PLR2004 - see above
            continue
        found = tuple(_places(fields[2]))
        for controller in fields[1].split(","):
            by_controller.setdefault(controller, found)
    ordered = [*_PREFERRED, *sorted(by_controller)]
    return next((by_controller[one] for one in ordered if by_controller.get(one)), ())


def known_place(places: tuple[Place, ...], known: Container[str]) -> Place | None:
    """The outermost place whose pod is known; None if none is."""
    return next((one for one in places if one.pod_uid in known), None)


def from_the_root(path: str) -> str:
    """A cgroup's path as the root of the hierarchy sees it; empty where that cannot be told.

    A slice's name says in which slices it lies (systemd.slice(5)); without systemd the levels
    above a namespace's root are not known inside.
    """
    if not path.startswith("/.."):
        return path
    parts = path.split("/")
    for number, part in enumerate(parts):
        match = _SLICE.fullmatch(part)
        if match is not None:
            above = ["kubepods.slice", *([f"kubepods{match[2]}.slice"] if match[2] else [])]
            return "/" + "/".join([*above, *parts[number:]])
    return ""


def _places(path: str) -> Iterator[Place]:
    parts = path.split("/")
    for number, part in enumerate(parts):
        match = _POD.fullmatch(part)
        if match is None or not _is_kubelets(parts[:number], part):
            continue
        inside = match[2] if match[2] is not None else "".join(parts[number + 1 : number + 2])
        container = _CONTAINER.fullmatch(inside.removesuffix(".scope"))
        depth = number + (2 if container and match[2] is None else 1)
        yield Place(
            pod_uid=_uid(match[1], part),
            container_id=container[1] if container else "",
            path="/".join(parts[:depth]),
        )


def _is_kubelets(before: list[str], part: str) -> bool:
    """Whether a pod's part stands where the kubelet puts pods; ``pod…`` alone may be anybody's.

    In a cgroup namespace of our own, paths of others begin with ``/..``, once for each level that
    we lie below the root, and what is above us has no name.
    """
    if part.startswith("kubepods") or any(one in _PARENTS for one in before[-2:]):
        return True
    named = [one for one in before if one not in ("", "..")]
    return ".." in before and all(one in _CLASSES for one in named)


def _uid(text: str, part: str) -> str:
    """Undo what systemd needs: it takes ``-`` for a level, so a uid has ``_`` there."""
    return text.replace("_", "-") if part.startswith("kubepods") else text
