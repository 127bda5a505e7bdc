"""Which pod, by uid, holds which share (pure).

PodResources is the truth about holds and names pods; a process's cgroup names its pod by uid. The
API server and the kubelet's checkpoint know both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sharing.node.held import Hold
from sharing.node.usage import Seat

if TYPE_CHECKING:
    from sharing.node.checkpoint import Entry, PodName


def seats_of(
    holds: Iterable[Hold], entries: Iterable[Entry], pods: Mapping[str, PodName] | None
) -> tuple[Seat, ...]:
    """The holds with the uids of their pods; a hold whose pod has none that is known is left out.

    Args:
        holds: Who holds what.
        entries: The kubelet's checkpoint; it may name pods that have ended.
        pods: Pods of this node that are not finished, by uid; None if nobody can tell.
    """
    uids = {name: uid for uid, name in (pods or {}).items()}
    by_share: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        for device_id in entry.device_ids:
            by_share.setdefault((entry.resource, device_id), []).append(entry)
    seats = [
        seat
        for hold in holds
        for seat in _seats(hold, by_share.get((hold.resource, hold.device_id), []), uids)
    ]
    return tuple(sorted(set(seats)))


def _seats(hold: Hold, entries: Iterable[Entry], uids: Mapping[PodName, str]) -> Iterator[Seat]:
    holder = hold.holder
    named = None
    if holder is not None:
        named = next(
            (
                uid
                for name, uid in uids.items()
                if (name.namespace, name.name) == (holder.namespace, holder.pod)
            ),
            None,
        )
    if holder is not None and named is not None:
        yield Seat(device_id=hold.device_id, pod_uid=named, container=holder.container)
        return
    for entry in entries:
        if holder is None or entry.container == holder.container:
            yield Seat(device_id=hold.device_id, pod_uid=entry.pod_uid, container=entry.container)
