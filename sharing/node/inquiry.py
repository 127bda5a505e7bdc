"""Who holds a device that the kubelet is about to hand out: its own word, in the midst of it.

Kubelets hand one device to two pods if somebody lists PodResources while they admit a pod
(kubernetes#137534). An error from Allocate fails the pod for good, so only what is certain counts:

- The kubelet's checkpoint and the last list say who *may* hold a device. Both may be old.
- ``Get`` of PodResources says what such a pod holds in the kubelet's memory now. Before a kubelet
  assigns anything, it strikes out what has ended, so whoever still has the device there lives.
  ``Get`` reads and changes nothing; ``List`` is what makes a kubelet lose count, and is not asked.
- A pod that asks for its own device again is not taken for another: a kubelet allocates only for
  a container that has nothing yet, and regular init containers, whose devices are given on, are
  not told by ``Get``.

Source: kubernetes 1.34 to 1.37, pkg/kubelet/cm/devicemanager/manager.go (``UpdateAllocatedDevices``
before ``devicesToAllocate``), pkg/kubelet/apis/podresources/server_v1.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import structlog

from sharing.errors import UnavailableError
from sharing.node.checkpoint import Entry, PodName
from sharing.node.held import Hold
from sharing.node.podresources import PodResources

_log: Final = structlog.get_logger()
_MOST_S: Final = 0.5
"""A kubelet waits for Allocate without a limit; we do not keep it longer than this."""
_MOST_PODS: Final = 8
"""A kubelet answers a hundred calls a second at most, and ten at once."""


def suspects(
    resource: str,
    device_ids: Collection[str],
    *,
    entries: Iterable[Entry],
    listed: Iterable[Hold],
    pods: Mapping[str, PodName] | None,
) -> tuple[PodName, ...]:
    """The pods that may hold one of these devices.

    Args:
        resource: The devices' extended resource.
        device_ids: The devices.
        entries: The kubelet's checkpoint; it may name pods that have ended.
        listed: What PodResources listed last.
        pods: Pods of this node that are not finished, by uid; None if nobody can tell.
    """
    wanted = frozenset(device_ids)
    found = {
        PodName(namespace=hold.holder.namespace, name=hold.holder.pod)
        for hold in listed
        if hold.resource == resource and hold.device_id in wanted and hold.holder is not None
    }
    for entry in entries:
        pod = (pods or {}).get(entry.pod_uid)
        if pod is not None and entry.resource == resource and wanted & set(entry.device_ids):
            found.add(pod)
    return tuple(sorted(found, key=lambda one: (one.namespace, one.name)))


def holders(resource: str, device_ids: Collection[str], holds: Iterable[Hold]) -> dict[str, str]:
    """Who holds these devices, in words, by device id."""
    return {
        hold.device_id: f"container {hold.holder.container} of {hold.holder}"
        for hold in holds
        if hold.resource == resource and hold.device_id in device_ids and hold.holder is not None
    }


class Inquiry:
    """Asks the kubelet who holds a device, where there is reason to.

    Args:
        kubelet: Its PodResources and checkpoint.
        pods: Pods of this node that are not finished, by uid; None if nobody can tell.
    """

    def __init__(
        self, kubelet: PodResources, pods: Callable[[], Mapping[str, PodName] | None]
    ) -> None:
        self._kubelet = kubelet
        self._pods = pods
        self._said = ""

    async def who_holds(self, resource: str, device_ids: Collection[str]) -> Mapping[str, str]:
        """Which of these devices a container holds now for certain, and who that is."""
        try:
            async with asyncio.timeout(_MOST_S):
                found = await self._ask(resource, device_ids)
        except TimeoutError:
            self._say(f"the kubelet did not answer within {_MOST_S} s")
        except UnavailableError as error:
            self._say(str(error))
        else:
            self._said = ""
            return found
        return {}

    async def _ask(self, resource: str, device_ids: Collection[str]) -> Mapping[str, str]:
        entries = await self._kubelet.assigned()
        listed, pods = self._kubelet.listed, self._pods()
        asked = suspects(resource, device_ids, entries=entries, listed=listed, pods=pods)
        found: dict[str, str] = {}
        for pod in asked[:_MOST_PODS]:
            found |= holders(resource, device_ids, await self._kubelet.holds_of(pod))
        return found

    def _say(self, reason: str) -> None:
        """Log it once; a share is handed out then as the kubelet says."""
        if reason != self._said:
            _log.warning("kubelet was not asked who holds a share", reason=reason)
        self._said = reason
