"""One pod on its node, from admission to removal.

A task for each pod. It wakes up when the pod changes, a device's health changes, a
container ends or a retry is due; brings the containers to where they should be; and writes
the status if it changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from embedded.kubelet.admission import RefusedError
from embedded.kubelet.clock import Clock, timestamp
from embedded.kubelet.podresources import Resident
from embedded.kubelet.podspec import Member, Role, is_done, members_of, phase_of, restarts
from embedded.kubelet.podstatus import Standing, pod_ip, rejected, status_of
from embedded.kubelet.runtime import Phase
from embedded.kubelet.starting import Starter
from embedded.scheduler.amounts import Amounts
from embedded.scheduler.demand import demand_of
from sharing.cluster.backoff import Backoff
from sharing.cluster.client import PatchType
from sharing.cluster.errors import ApiError, ConflictError, NotFoundError
from sharing.cluster.kind import PODS

if TYPE_CHECKING:
    from sharing.cluster.client import Client
    from sharing.cluster.events import EventRecorder

_log: Final = structlog.get_logger()
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What a pod's life needs from its kubelet.

    Attributes:
        client: For status and removal.
        starter: Starts containers.
        clock: Time.
        events: For ``kubectl describe``.
        admit: Admits a pod; raises RefusedError.
        release: Strikes what a pod holds from the books.
        health: Health of a device of a resource.
        retry_s: How long a container that could not start waits.
    """

    client: Client
    starter: Starter
    clock: Clock
    events: EventRecorder
    admit: Callable[[Mapping[str, Any]], Any]
    release: Callable[[str], None]
    health: Callable[[str, str], str | None]
    retry_s: float


class PodLife:
    """One pod on its node."""

    def __init__(self, pod: dict[str, Any], surface: Surface) -> None:
        self.pod = pod
        self.uid = str(pod["metadata"]["uid"])
        self.admitted = False
        self.demand: Amounts = demand_of(pod["spec"])
        """What it needs in all; a spec's resources do not change."""
        self._surface = surface
        self._runtime = surface.starter.runtime
        self._started_at = (pod.get("status") or {}).get("startTime") or timestamp()
        self._written: dict[str, Any] = {}
        self._wake = asyncio.Event()
        self._told: set[tuple[str, str]] = set()

    @property
    def holds(self) -> bool:
        """Whether it is admitted and not finished."""
        return self.admitted and phase_of(self.pod, self._runtime.of(self.uid)) not in _FINISHED

    @property
    def resident(self) -> Resident:
        """What PodResources tells about it."""
        metadata = self.pod["metadata"]
        return Resident(
            namespace=str(metadata.get("namespace")),
            name=str(metadata["name"]),
            uid=self.uid,
            containers=tuple(
                one.name
                for one in sorted(members_of(self.pod), key=lambda one: one.role is not Role.APP)
                if one.role is not Role.INIT
            ),
        )

    def update(self, pod: dict[str, Any]) -> None:
        """Take a newer version of the pod."""
        self.pod = pod
        self._wake.set()

    def device_changed(self, resource: str) -> None:
        """Look again if this pod holds devices of the resource."""
        ledger = self._surface.starter.admission.ledger
        if any(resource in ledger.of(self.uid, one.name) for one in members_of(self.pod)):
            self._wake.set()

    def finish(self, container: str, exit_code: int) -> bool:
        """End one container, or all app containers for an empty name; whether any ran."""
        running = [
            one.name
            for one in members_of(self.pod)
            if (one.name == container if container else one.role is Role.APP)
            and self._runtime.get(self.uid, one.name).phase is Phase.RUNNING
        ]
        for name in running:
            self._runtime.finish(self.uid, name, exit_code)
        self._wake.set()
        return bool(running)

    async def run(self) -> None:
        """Live until the pod is removed; returns then, or when it was refused."""
        if not self._leaving():
            try:
                await self._surface.admit(self.pod)
            except RefusedError as error:
                await self._refuse(error)
                await self._until_leaving()
                await self._remove()
                return
            self.admitted = True
        while not self._leaving():
            self._wake.clear()
            settled = await self._sync()
            if not self.holds:
                self._surface.release(self.uid)
            await self._report()
            await self._rest(settled=settled)
        await self._remove()

    def _leaving(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    async def _until_leaving(self) -> None:
        while not self._leaving():
            self._wake.clear()
            await self._wake.wait()

    async def _rest(self, *, settled: bool) -> None:
        """Wait for news, or for the next try where a container could not start."""
        if settled:
            await self._wake.wait()
            return
        tasks = {
            asyncio.ensure_future(self._wake.wait()),
            asyncio.ensure_future(self._surface.clock.sleep(self._surface.retry_s)),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- containers

    async def _sync(self) -> bool:
        """Start what should run, in order; whether nothing has to be tried again."""
        settled = True
        for member in members_of(self.pod):
            container = self._runtime.get(self.uid, member.name)
            if container.phase is Phase.RUNNING or (
                member.role is Role.INIT and is_done(container)
            ):
                continue
            if container.phase is Phase.EXITED and not restarts(self.pod, member, container):
                if member.role is Role.INIT:
                    return True
                continue
            if not await self._start(member):
                settled = False
                if member.role is not Role.APP:
                    return False
        self._end_sidecars()
        return settled

    async def _start(self, member: Member) -> bool:
        if not await self._surface.starter.start(self.pod, member):
            waiting = self._runtime.get(self.uid, member.name)
            self._tell("Failed", f"Error: {waiting.message}", warning=True)
            return False
        self._tell("Started", f"Started container {member.name}")
        if member.role is Role.INIT:
            # Nothing runs in it, so it is done at once.
            self._runtime.finish(self.uid, member.name, 0)
        return True

    def _end_sidecars(self) -> None:
        """Once all app containers have ended for good, sidecars are stopped."""
        members = members_of(self.pod)
        apps = [self._runtime.get(self.uid, one.name) for one in members if one.role is Role.APP]
        if all(one.phase is Phase.EXITED for one in apps):
            for one in members:
                if one.role is Role.SIDECAR:
                    self._runtime.finish(self.uid, one.name, 0)

    # -- telling

    async def _refuse(self, error: RefusedError) -> None:
        _log.warning(
            "pod was refused", pod=self.pod["metadata"]["name"], reason=error.reason, why=str(error)
        )
        self._surface.release(self.uid)
        self._tell(error.reason, str(error), warning=True)
        await self._write(rejected(error.reason, str(error), now=timestamp()))

    async def _report(self) -> None:
        standing = Standing(
            containers=self._runtime.of(self.uid),
            holdings=lambda name: self._surface.starter.admission.ledger.of(self.uid, name),
            health=self._surface.health,
            host_ip=self._surface.starter.address,
            pod_ip=pod_ip(self.uid),
            started_at=self._started_at,
            now=timestamp(),
        )
        status = status_of(self.pod, standing)
        # The pod that comes back by the watch may be older than what was written.
        if _timeless(status) != _timeless(self._written):
            await self._write(status)

    async def _write(self, status: dict[str, Any]) -> None:
        """Write the status, for as long as it takes; nothing to do where the pod is gone."""
        metadata = self.pod["metadata"]
        waits = Backoff().waits()
        while True:
            try:
                await self._surface.client.patch(
                    PODS,
                    str(metadata["name"]),
                    {"metadata": {"uid": self.uid}, "status": status},
                    namespace=str(metadata["namespace"]),
                    patch_type=PatchType.STRATEGIC,
                    subresource="status",
                )
            except (NotFoundError, ConflictError):
                return
            except ApiError as error:
                _log.warning("pod status was not written", pod=metadata["name"], error=str(error))
                await self._surface.clock.sleep(next(waits))
            else:
                self._written = status
                return

    def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        if warning and (reason, message) in self._told:
            return
        self._told.add((reason, message))
        self._surface.events.record(self.pod, reason, message, warning=warning)

    async def _remove(self) -> None:
        """End the containers, strike the books, and remove the pod from the API."""
        metadata = self.pod["metadata"]
        name, namespace = str(metadata["name"]), str(metadata["namespace"])
        self.forget()
        waits = Backoff().waits()
        while True:
            try:
                await self._surface.client.delete(
                    PODS, name, namespace=namespace, grace_s=0, uid=self.uid
                )
            except (NotFoundError, ConflictError):
                return
            except ApiError as error:
                _log.warning("pod was not removed", pod=name, error=str(error))
                await self._surface.clock.sleep(next(waits))
            else:
                return

    def forget(self) -> None:
        """End the containers and strike the books; the pod is gone or going."""
        metadata = self.pod["metadata"]
        self.admitted = False
        self._surface.release(self.uid)
        self._runtime.remove(str(metadata["namespace"]), str(metadata["name"]), self.uid)


def _timeless(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without the times of its conditions."""
    plain = dict(status)
    plain["conditions"] = [
        {key: value for key, value in one.items() if key != "lastTransitionTime"}
        for one in status.get("conditions") or []
    ]
    return plain
