"""Nodes that exist as objects only: hundreds of them, for what a scheduler and a webhook cost.

In place of their kubelets one loop marks bound pods Running, lets deleted ones go and renews the
nodes' leases. It runs in a thread of its own, since tests come with an event loop for each.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import GoneError, NotFoundError
from sharing.cluster.kind import LEASES, NODES, PODS
from sharing.cluster.watching import EventType

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_PERIOD_S: Final = 10.0
"""As often as a kubelet does."""
_LEASE_LIFE_S: Final = 40
_AT_ONCE: Final = 32
_START_TIMEOUT_S: Final = 120.0
_END_TIMEOUT_S: Final = 30.0


class Fleet:
    """A number of nodes and what stands for their kubelets; a context manager.

    Args:
        kubeconfig: Somebody who may do everything.
        count: How many nodes, ``fleet-0`` and so on.
        capacity: Of each node; cpu, memory and pods have defaults.
        labels: Of each node.
        lease_period_s: Within which each lease is renewed once.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *,
        count: int,
        capacity: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        lease_period_s: float = LEASE_PERIOD_S,
    ) -> None:
        self._pause_s = lease_period_s / count
        self._kubeconfig = kubeconfig
        self.names = tuple(f"fleet-{number}" for number in range(count))
        self._capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", **capacity}
        self._labels = dict(labels or {})
        self._ready: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._ended: Future[None] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="fleet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(_START_TIMEOUT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(RuntimeError):  # the loop ended by itself; its error is raised below
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._ended.result(_END_TIMEOUT_S)

    def _live(self) -> None:
        """The thread; what goes wrong is raised where somebody waits for us."""
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as error:  # noqa: BLE001
            for waited in (self._ready, self._ended):
                if not waited.done():
                    waited.set_exception(error)
        else:
            self._ended.set_result(None)
        finally:
            self._loop.close()

    async def _run(self) -> None:
        async with Client.from_kubeconfig(self._kubeconfig, user_agent="fleet") as client:
            self._client = client
            await _all(self._create(name) for name in self.names)
            async with asyncio.TaskGroup() as group:
                loops = (
                    group.create_task(self._renew()),
                    group.create_task(self._serve(group)),
                )
                self._ready.set_result(None)
                await self._stopping.wait()
                for each in loops:
                    each.cancel()
            await self._remove()

    async def _create(self, name: str) -> None:
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **self._labels}},
            "status": {
                "capacity": self._capacity,
                "allocatable": self._capacity,
                "conditions": conditions,
            },
        }
        lease = {
            "metadata": {"name": name},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": _LEASE_LIFE_S,
                "renewTime": _now(),
            },
        }
        await self._client.create(NODES, node)
        await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)

    async def _remove(self) -> None:
        """Take the nodes away and what is bound to them, which would fill the next fleet."""
        bound = (await self._client.list(PODS, field_selector="spec.nodeName!="))["items"]
        ours = [pod["metadata"] for pod in bound if pod["spec"]["nodeName"] in self.names]
        await _all(self._let_go(metadata) for metadata in ours)
        await _all(self._delete(name) for name in self.names)

    async def _delete(self, name: str) -> None:
        await self._client.delete(NODES, name)
        await self._client.delete(LEASES, name, namespace=LEASE_NAMESPACE)

    async def _renew(self) -> None:
        """Renew the leases evenly over the period, so that no second has all of them."""
        while True:
            for name in self.names:
                patch = {"spec": {"renewTime": _now()}}
                await self._client.patch(LEASES, name, patch, namespace=LEASE_NAMESPACE)
                await asyncio.sleep(self._pause_s)

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        """See every bound pod, and do for it what its kubelet would."""
        limit = asyncio.Semaphore(_AT_ONCE)
        async for pod in self._bound_pods():
            if work := self._work_for(pod):
                await limit.acquire()
                task = group.create_task(work)
                task.add_done_callback(lambda _: limit.release())

    async def _bound_pods(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            with suppress(GoneError):
                listed = await self._client.list(PODS, field_selector="spec.nodeName!=")
                for pod in listed["items"]:
                    yield pod
                version = listed["metadata"]["resourceVersion"]
                async for event in self._client.watch(
                    PODS, resource_version=version, field_selector="spec.nodeName!="
                ):
                    if event.type in {EventType.ADDED, EventType.MODIFIED}:
                        yield event.item

    def _work_for(self, pod: Mapping[str, Any]) -> Coroutine[Any, Any, None] | None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return self._let_go(metadata)
        if pod["status"].get("phase") == "Pending":
            return self._mark_running(pod)
        return None

    async def _mark_running(self, pod: Mapping[str, Any]) -> None:
        now = _now()
        ready = [{"type": kind, "status": "True"} for kind in ("ContainersReady", "Ready")]
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ]
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": ready,
            "containerStatuses": containers,
        }
        metadata = pod["metadata"]
        with suppress(NotFoundError):  # deleted meanwhile
            await self._client.patch(
                PODS,
                metadata["name"],
                {"status": status},
                namespace=metadata["namespace"],
                subresource="status",
                patch_type=PatchType.STRATEGIC,
            )

    async def _let_go(self, metadata: Mapping[str, Any]) -> None:
        with suppress(NotFoundError):
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], grace_s=0
            )


async def _all(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Do many things, a bounded number at once."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Coroutine[Any, Any, Any]) -> None:
        async with limit:
            await each

    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(one(each))


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
