"""What goes on by itself: ending namespaces, and dependents whose owner is gone.

In a real cluster these are the namespace controller and the garbage collector.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from embedded.apiserver.calls import SYSTEM, Call
from embedded.apiserver.deletion import DeleteOptions, delete
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, entries, meta, name_of, namespace_of
from embedded.apiserver.registry import Registry
from embedded.apiserver.status import StatusError
from embedded.apiserver.store import RevisionConflictError

_log = structlog.get_logger()

_Place = tuple[str, str, str, str]  # group, plural, namespace, name
_NOT_FOUND: Final = 404


class Lifecycle:
    """Follows the writes of a registry and finishes what they begin.

    Args:
        registry: Whose writes are followed.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dependents: dict[str, set[_Place]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()
        registry.after_write.append(self._written)

    async def stop(self) -> None:
        """End what is under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def resume(self) -> None:
        """Go on with the namespaces that were being ended."""
        kind = self._registry.kinds.named("namespaces")
        for obj in self._registry.store.objects(kind.qualified):
            if meta(obj).get("deletionTimestamp"):
                self._spawn(self._empty_namespace(name_of(obj)))

    def orphan(self, obj: Json) -> None:
        """Let the dependents of an object live on after it."""
        self._dependents.pop(str(meta(obj).get("uid")), None)

    def _written(self, kind: ResourceKind, old: Json | None, new: Json | None) -> None:
        place = (kind.group, kind.plural, namespace_of(new or old or {}), name_of(new or old or {}))
        before, after = _owners(old), _owners(new)
        for uid in before - after:
            self._dependents[uid].discard(place)
        for uid in after - before:
            self._dependents[uid].add(place)
        if new is None and old is not None:
            self._removed(kind, old)
        elif kind.qualified == "namespaces" and meta(new or {}).get("deletionTimestamp"):
            self._spawn(self._empty_namespace(name_of(new or {})))

    def _removed(self, kind: ResourceKind, old: Json) -> None:
        doomed = self._dependents.pop(str(meta(old).get("uid")), set())
        for place in sorted(doomed):
            self._spawn(self._delete_dependent(place, str(meta(old).get("uid"))))
        if kind.namespaced:
            self._finish_namespace(namespace_of(old))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background deletion failed", error=str(task.exception()))

    async def _delete_dependent(self, place: _Place, owner_uid: str) -> None:
        group, plural, namespace, name = place
        try:
            kind = self._registry.kinds.named(plural, group)
        except LookupError:
            return
        obj = self._registry.store.get(kind.qualified, namespace, name)
        if obj is None or any(uid in self._alive(obj) for uid in _owners(obj) - {owner_uid}):
            return
        await self._delete(kind, namespace, name)

    def _alive(self, obj: Json) -> set[str]:
        """Uids of the owners of an object that still exist."""
        found = set()
        for owner in entries(obj, "metadata", "ownerReferences"):
            kind = self._registry.kinds.of_object(
                str(owner.get("apiVersion")), str(owner.get("kind"))
            )
            if kind is None:
                continue
            namespace = namespace_of(obj) if kind.namespaced else ""
            held = self._registry.store.get(kind.qualified, namespace, str(owner.get("name")))
            if held is not None and meta(held).get("uid") == owner.get("uid"):
                found.add(str(owner["uid"]))
        return found

    async def _empty_namespace(self, namespace: str) -> None:
        for kind in self._registry.kinds:
            if not kind.namespaced or "delete" not in kind.verbs:
                continue
            for obj in self._registry.store.objects(kind.qualified, namespace):
                if not meta(obj).get("deletionTimestamp"):
                    await self._delete(kind, namespace, name_of(obj))
        self._finish_namespace(namespace)

    async def _delete(self, kind: ResourceKind, namespace: str, name: str) -> None:
        call = Call(user=SYSTEM)
        try:
            await delete(self._registry, call, kind, namespace, name, DeleteOptions())
        except StatusError as refusal:
            if refusal.code != _NOT_FOUND:
                _log.warning(
                    "object was not deleted",
                    kind=kind.kind,
                    namespace=namespace,
                    name=name,
                    reason=refusal.message,
                )

    def _finish_namespace(self, namespace: str) -> None:
        """Remove a namespace that is ending and holds nothing any more."""
        kind = self._registry.kinds.named("namespaces")
        obj = self._registry.store.get("namespaces", "", namespace)
        if obj is None or not meta(obj).get("deletionTimestamp") or meta(obj).get("finalizers"):
            return
        store = self._registry.store
        if any(store.objects(resource, namespace) for resource in store.resources()):
            return
        try:
            self._registry.remove_now(kind, obj)
        except RevisionConflictError:
            self._spawn(self._empty_namespace(namespace))


def _owners(obj: Json | None) -> set[str]:
    if obj is None:
        return set()
    return {str(owner.get("uid")) for owner in meta(obj).get("ownerReferences") or ()}
