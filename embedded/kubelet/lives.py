"""The pods of one node and the tasks that they live in."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from embedded.kubelet.podlife import PodLife, Surface
from sharing.cluster.cache import Change
from sharing.errors import QuantityError

_log: Final = structlog.get_logger()
_FINISHED: Final = ("Succeeded", "Failed")


class Lives:
    """All pods that a kubelet has seen and not yet removed, by uid."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._lives: dict[str, PodLife] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def changed(self, change: Change[dict[str, Any]]) -> None:
        """Take a change of the watch. A pod may be replaced by one of the same name."""
        if change.old is not None:
            old_uid = str(change.old["metadata"]["uid"])
            if change.new is None or str(change.new["metadata"]["uid"]) != old_uid:
                self._gone(old_uid)
        if change.new is not None:
            self.seen(change.new)

    def seen(self, pod: dict[str, Any]) -> None:
        """Take a pod as it is now; one that has finished before is left alone."""
        uid = str(pod["metadata"]["uid"])
        if uid in self._lives:
            self._lives[uid].update(pod)
            return
        finished = (pod.get("status") or {}).get("phase") in _FINISHED
        if finished and not pod["metadata"].get("deletionTimestamp"):
            self._surface.release(uid)
            return
        title = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        try:
            life = PodLife(pod, self._surface)
        except QuantityError as error:
            _log.warning("pod was left alone", pod=title, error=str(error))
            return
        task = asyncio.create_task(life.run(), name=f"pod {title}")
        task.add_done_callback(lambda ended: _report_fault(ended, title))
        self._lives[uid], self._tasks[uid] = life, task

    def find(self, namespace: str, name: str) -> PodLife | None:
        """The pod of this name; None if the node has none."""
        for life in self._lives.values():
            if (life.resident.namespace, life.resident.name) == (namespace, name):
                return life
        return None

    def holding(self) -> tuple[PodLife, ...]:
        """Pods that are admitted and not finished."""
        return tuple(life for life in self._lives.values() if life.holds)

    def admitted(self, uid: str) -> None:
        """Count a pod among those that hold something, from this moment on."""
        if uid in self._lives:
            self._lives[uid].admitted = True

    def device_changed(self, resource: str) -> None:
        """Wake the pods that hold devices of a resource."""
        for life in self._lives.values():
            life.device_changed(resource)

    async def end(self) -> None:
        """End all tasks; pods and containers stay as they are."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lives, self._tasks = {}, {}

    def _gone(self, uid: str) -> None:
        life, task = self._lives.pop(uid, None), self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()
        if life is not None:
            life.forget()


def _report_fault(task: asyncio.Task[None], pod: str) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        _log.error("pod was abandoned by a fault", pod=pod, exc_info=fault)
