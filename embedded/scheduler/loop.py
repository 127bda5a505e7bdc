"""Reads pods and nodes from watches, decides, binds; tries again when anything changes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from embedded.scheduler.decision import Decision, Room, choose, rooms_of
from embedded.scheduler.preemption import preempt
from embedded.scheduler.views import Node, Pod
from sharing.cluster.backoff import Backoff
from sharing.cluster.cache import Cache, Change
from sharing.cluster.client import PatchType
from sharing.cluster.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import NAMESPACES, NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from sharing.cluster.client import Client

DEFAULT_NAME: Final = "default-scheduler"
_log: Final = structlog.get_logger()


class Scheduler:
    """One scheduler; an async context manager that schedules inside.

    Args:
        client: The connection.
        name: Pods with this ``schedulerName`` are its own.
        sync_timeout_s: How long the first lists may take.
    """

    def __init__(
        self, client: Client, *, name: str = DEFAULT_NAME, sync_timeout_s: float = 30.0
    ) -> None:
        self._client = client
        self._name = name
        self._sync_timeout_s = sync_timeout_s
        self._pods = Cache(client, PODS, Pod.of)
        self._nodes = Cache(client, NODES, Node.of)
        self._namespaces = Cache(client, NAMESPACES, _labels)
        self._events = EventRecorder(client, name)
        self._bound: dict[str, str] = {}
        """Nodes by uid of pods that were bound here and not yet seen so in the watch."""
        self._told: dict[str, str] = {}
        """The last message by uid of pods that wait."""
        self._nominated: dict[str, str] = {}
        """Nodes by uid of pods for which others are leaving."""
        self._wake = asyncio.Event()
        self._stale = True
        """Whether nodes changed, or pods ended, since rooms were counted."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._events)
            for cache in (self._pods, self._nodes, self._namespaces):
                stack.callback(cache.on_change(self._changed))
                await stack.enter_async_context(cache)
            for cache in (self._pods, self._nodes, self._namespaces):
                await cache.wait_synced(timeout_s=self._sync_timeout_s)
            task = asyncio.create_task(self._run(), name=self._name)
            stack.push_async_callback(_ended, task)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def _changed(self, change: Change[Any]) -> None:
        self._wake.set()
        if not isinstance(change.new, Pod):
            self._stale = True

    async def _run(self) -> None:
        waits = Backoff().waits()
        while True:
            self._wake.clear()
            try:
                await self._pass()
            except ApiError as error:
                _log.warning("scheduling was interrupted", error=str(error))
                await asyncio.sleep(next(waits))
                continue
            waits = Backoff().waits()
            await self._wake.wait()

    async def _pass(self) -> None:
        """Place every pod that waits, the most important and oldest first."""
        pods = self._pods.values()
        self._forget(pods)
        waiting = sorted(
            (pod for pod in pods if self._is_ours(pod)),
            key=lambda pod: (-pod.priority, pod.created, pod.namespace, pod.name),
        )
        namespaces = {name: labels for (_, name), labels in self._namespaces.items()}
        rooms: tuple[Room, ...] = ()
        self._stale = True
        for pod in waiting:
            if self._stale:
                self._stale, rooms = False, self._rooms()
            decision = choose(pod, rooms, namespaces=namespaces)
            node = decision.node
            if node and not await self._bind(pod, node):
                continue
            if not node:
                await self._tell(pod, decision)
                node = await self._make_room(pod, rooms, namespaces)
            # The next pod finds this one's share taken, or kept for it; counting all pods
            # anew for each would be quadratic.
            rooms = tuple(
                Room(node=room.node, pods=(*room.pods, pod)) if room.node.name == node else room
                for room in rooms
            )

    async def _make_room(
        self, pod: Pod, rooms: tuple[Room, ...], namespaces: Mapping[str, Mapping[str, str]]
    ) -> str:
        """Remove less important pods for one that waits; the node it waits for, if any."""
        kept = self._nominated.get(pod.uid, "")
        leaving = [one for room in rooms if room.node.name == kept for one in room.pods]
        if any(one.deleted and one.priority < pod.priority for one in leaving):
            return kept
        way = preempt(pod, rooms, namespaces=namespaces)
        if way is None:
            self._nominated.pop(pod.uid, None)
            return ""
        for victim in way.victims:
            message = f"Preempted by pod {pod.uid} on node {way.node}"
            self._events.record(_reference(victim), "Preempted", message)
            with suppress(NotFoundError, ConflictError):
                await self._client.delete(
                    PODS, victim.name, namespace=victim.namespace, uid=victim.uid
                )
        self._nominated[pod.uid] = way.node
        await self._patch_status(pod, {"nominatedNodeName": way.node})
        return way.node

    def _is_ours(self, pod: Pod) -> bool:
        return (
            not pod.node
            and not pod.finished
            and not pod.deleted
            and pod.uid not in self._bound
            and (pod.spec.get("schedulerName") or DEFAULT_NAME) == self._name
            and not pod.spec.get("schedulingGates")
        )

    def _rooms(self) -> tuple[Room, ...]:
        placed = (
            _on(pod, self._bound[pod.uid]) if pod.uid in self._bound else pod
            for pod in self._pods.values()
        )
        return rooms_of(self._nodes.values(), placed)

    def _forget(self, pods: tuple[Pod, ...]) -> None:
        waiting = {pod.uid for pod in pods if not pod.node}
        self._bound = {uid: node for uid, node in self._bound.items() if uid in waiting}
        self._told = {uid: said for uid, said in self._told.items() if uid in waiting}
        self._nominated = {u: node for u, node in self._nominated.items() if u in waiting}

    async def _bind(self, pod: Pod, node: str) -> bool:
        self._bound[pod.uid] = node
        try:
            await self._client.bind(pod.name, namespace=pod.namespace, node=node, uid=pod.uid)
        except ApiError as error:
            del self._bound[pod.uid]
            if isinstance(error, UnreachableError | ServerError | TooManyRequestsError):
                raise
            # Deleted, bound by somebody else, or refused by a policy: this pod's own case.
            _log.warning("pod was not bound", pod=pod.title, node=node, error=str(error))
            self._events.record(_reference(pod), "FailedScheduling", str(error), warning=True)
            return False
        self._told.pop(pod.uid, None)
        message = f"Successfully assigned {pod.title} to {node}"
        self._events.record(_reference(pod), "Scheduled", message)
        return True

    async def _tell(self, pod: Pod, decision: Decision) -> None:
        """Write why a pod waits; once, not at each try."""
        if self._told.get(pod.uid) == decision.message:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": decision.message,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if not await self._patch_status(pod, {"conditions": [condition]}):
            return
        self._told[pod.uid] = decision.message
        message = decision.message
        self._events.record(_reference(pod), "FailedScheduling", message, warning=True)

    async def _patch_status(self, pod: Pod, status: dict[str, Any]) -> bool:
        """Write parts of a pod's status; whether the pod was still there."""
        try:
            await self._client.patch(
                PODS,
                pod.name,
                {"metadata": {"uid": pod.uid}, "status": status},
                namespace=pod.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="status",
            )
        except (NotFoundError, ConflictError) as error:
            _log.warning("pod is gone before it was told", pod=pod.title, error=str(error))
            return False
        return True


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _on(pod: Pod, node: str) -> Pod:
    return replace(pod, node=node)


def _labels(item: dict[str, Any]) -> dict[str, str]:
    labels = (item.get("metadata") or {}).get("labels") or {}
    return {str(key): str(value) for key, value in labels.items()}


def _reference(pod: Pod) -> dict[str, str]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }
