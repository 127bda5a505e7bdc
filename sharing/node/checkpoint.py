"""The kubelet's own file of assignments: what PodResources leaves out.

PodResources does not list regular init containers, yet they hold their devices. The checkpoint
names pods by uid only and keeps finished ones until the next assignment, so an entry counts as
long as its pod exists, or while nobody can tell.

Source: kubernetes, pkg/kubelet/cm/devicemanager/checkpoint; observed on Kubernetes 1.37.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sharing.errors import UnavailableError
from sharing.node.held import Hold, Holder

FILE_NAME: Final = "kubelet_internal_checkpoint"
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Devices that a container was assigned."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodName:
    """A pod of this node that is not finished."""

    namespace: str
    name: str


def read(folder: Path) -> tuple[Entry, ...]:
    """The entries of the checkpoint in the kubelet's device-plugin folder; none if there is none.

    Raises:
        UnavailableError: The file cannot be read or understood.
    """
    path = folder / FILE_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES)
        listed = json.loads(raw)["Data"]["PodDeviceEntries"] or []
        return tuple(_entry(one) for one in listed)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(
            f"kubelet checkpoint {path}",
            f"cannot be read: {error!r}",
            fix="nothing that a pod may hold is changed meanwhile; restart the kubelet",
        ) from error


class Checkpoint:
    """The checkpoint, read again only when the kubelet has written it anew.

    Args:
        folder: The kubelet's device-plugin folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: tuple[tuple[int, int, int], tuple[Entry, ...]] | None = None

    def entries(self) -> tuple[Entry, ...]:
        """What it says now; see :func:`read`.

        Raises:
            UnavailableError: The file cannot be read or understood.
        """
        try:
            found = (self._folder / FILE_NAME).stat()
        except OSError:
            return read(self._folder)
        written = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._known is None or self._known[0] != written:
            self._known = written, read(self._folder)
        return self._known[1]


def unlisted(
    entries: Iterable[Entry], listed: Iterable[Hold], pods: Mapping[str, PodName] | None
) -> tuple[Hold, ...]:
    """The holds that the checkpoint knows and PodResources does not list.

    Args:
        entries: The checkpoint.
        listed: What PodResources lists.
        pods: Pods of this node that are not finished, by uid; None if nobody can tell.
    """
    known = {(hold.resource, hold.device_id) for hold in listed}
    found = []
    for entry in entries:
        pod = None if pods is None else pods.get(entry.pod_uid)
        if pods is not None and pod is None:
            continue
        holder = _holder(pod, entry.container)
        found += [
            Hold(device_id=device_id, resource=entry.resource, holder=holder)
            for device_id in entry.device_ids
            if (entry.resource, device_id) not in known
        ]
    return tuple(found)


def _holder(pod: PodName | None, container: str) -> Holder | None:
    if pod is None:
        return None
    return Holder(namespace=pod.namespace, pod=pod.name, container=container)


def _entry(raw: Mapping[str, Any]) -> Entry:
    by_node: Mapping[str, list[str]] = raw["DeviceIDs"]
    ids = {str(device_id) for devices in by_node.values() for device_id in devices}
    return Entry(
        pod_uid=str(raw["PodUID"]),
        container=str(raw["ContainerName"]),
        resource=str(raw["ResourceName"]),
        device_ids=tuple(sorted(ids)),
    )
