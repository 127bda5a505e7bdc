"""The kubelet of one node, put together: start, stop, restart, reboot, look inside."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from embedded.errors import EmbeddedError
from embedded.kubelet import checkpoint
from embedded.kubelet.admission import Admission
from embedded.kubelet.clock import Clock, SystemClock
from embedded.kubelet.devices import DeviceTable
from embedded.kubelet.ledger import Ledger
from embedded.kubelet.lives import Lives
from embedded.kubelet.noderegistry import NodeRegistry
from embedded.kubelet.nodestatus import Offer
from embedded.kubelet.plugins import Plugins
from embedded.kubelet.podlife import Surface
from embedded.kubelet.podresources import PodResources, Resident
from embedded.kubelet.runtime import Phase, Runtime
from embedded.kubelet.settings import Settings
from embedded.kubelet.starting import Starter
from sharing.cluster.cache import Cache, whole
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import PODS

if TYPE_CHECKING:
    from embedded.kubelet.view import ContainerView
    from sharing.cluster.client import Client

_log: Final = structlog.get_logger()


class Kubelet:
    """One node's kubelet; an async context manager.

    Args:
        client: The connection to the API server; it stays open.
        settings: How it is set up.
        clock: Time.

    Raises:
        EmbeddedError: If the folder's path is too long for sockets.
    """

    def __init__(self, client: Client, settings: Settings, *, clock: Clock | None = None) -> None:
        settings.check()
        self.settings = settings
        self.runtime = Runtime(settings.views)
        self.ledger = Ledger()
        self.table = DeviceTable()
        self._client = client
        self._clock = clock or SystemClock()
        self._admitting = asyncio.Lock()
        self._lives: Lives | None = None
        self._health: dict[tuple[str, str], str] = {}
        self._stack: AsyncExitStack | None = None
        self._plugins: Plugins | None = None
        self._node: NodeRegistry | None = None
        self._surface: Surface | None = None

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start: checkpoint, sockets, node, pods; returns when the node is ready.

        Raises:
            ApiError: If the API server refuses or does not answer.
            UnavailableError: If the first lists take too long.
        """
        async with AsyncExitStack() as stack:
            await self._build(stack)
            self._stack = stack.pop_all()

    async def _build(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        settings.plugin_folder.mkdir(parents=True, exist_ok=True)
        self.table = DeviceTable()
        resources = self._read_checkpoint()
        plugins = Plugins(
            settings.plugin_folder,
            self.table,
            self._clock,
            self._devices_changed,
            grace_s=settings.grace_s,
            dial_timeout_s=settings.dial_timeout_s,
            keyed_by_resource=settings.keyed_by_resource,
        )
        plugins.expect(resources)
        self._plugins = plugins
        node = NodeRegistry(
            self._client,
            name=settings.name,
            machine=settings.machine,
            labels=settings.labels,
            offer=self._offer,
            clock=self._clock,
            beat_s=settings.beat_s,
        )
        self._node = node
        await node.register()
        await plugins.start()
        stack.push_async_callback(plugins.stop)
        pod_resources = PodResources(
            settings.pod_resources_socket.parent,
            lambda: self.ledger,
            lambda: self.table,
            self._residents,
            tells_one=settings.tells_one_pod,
        )
        await pod_resources.start()
        stack.push_async_callback(pod_resources.stop)
        await stack.enter_async_context(node.cache)
        await node.cache.wait_synced(timeout_s=settings.sync_timeout_s)
        await node.announce()
        task = asyncio.create_task(node.run(), name=f"node {settings.name}")
        stack.push_async_callback(_ended, task)
        events = EventRecorder(self._client, "kubelet", instance=settings.name)
        await stack.enter_async_context(events)
        self._surface = self._make_surface(plugins, events)
        await self._follow_pods(stack)

    def _make_surface(self, plugins: Plugins, events: EventRecorder) -> Surface:
        settings = self.settings
        admission = Admission(
            plugins=plugins,
            table=self.table,
            ledger=self.ledger,
            save=self._save,
            align=settings.align_numa,
            seed=settings.seed or settings.name,
        )
        starter = Starter(
            client=self._client,
            admission=admission,
            runtime=self.runtime,
            cdi_folders=settings.cdi_folders,
            node=settings.name,
            address=settings.machine.address,
        )
        return Surface(
            client=self._client,
            starter=starter,
            clock=self._clock,
            events=events,
            admit=self._admit,
            release=self._release,
            health=self._device_health,
            retry_s=settings.retry_s,
        )

    async def _follow_pods(self, stack: AsyncExitStack) -> None:
        selector = f"spec.nodeName={self.settings.name}"
        pods = Cache(self._client, PODS, whole, field_selector=selector)
        assert self._surface is not None  # noqa: S101 - made right before
        lives = Lives(self._surface)
        self._lives = lives
        stack.push_async_callback(lives.end)
        await stack.enter_async_context(pods)
        await pods.wait_synced(timeout_s=self.settings.sync_timeout_s)
        present = sorted(
            pods.values(),
            key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", _title(pod)),
        )
        uids = {str(pod["metadata"]["uid"]) for pod in present}
        for uid in self.ledger.pods():
            if uid not in uids:
                self.ledger.release(uid)
        self.runtime.keep(uids)
        self._save()
        for pod in present:
            lives.seen(pod)
        stack.callback(pods.on_change(lives.changed))

    async def stop(self) -> None:
        """End the process; containers run on, the node object stays as it is."""
        if self._stack is not None:
            stack, self._stack = self._stack, None
            await stack.aclose()

    async def restart(self, *, remove_folder: bool = False) -> None:
        """Stop and start again; containers run on.

        Args:
            remove_folder: Lose the socket folder with the checkpoint in between.
        """
        await self.stop()
        if remove_folder:
            shutil.rmtree(self.settings.plugin_folder, ignore_errors=True)
        await self.start()

    async def reboot(self) -> None:
        """Stop, end every container, start again with the checkpoint."""
        await self.stop()
        self.runtime.kill_all()
        await self.start()

    async def lose(self) -> None:
        """Stop, and let the node be marked and tainted as one that fell silent."""
        node = self._node
        await self.stop()
        if node is not None:
            await node.lose()

    # -- looking in

    def view(self, namespace: str, pod: str, container: str) -> ContainerView | None:
        """What a container sees; None if it never started here."""
        life = self._lives.find(namespace, pod) if self._lives else None
        return self.runtime.view(life.uid, container) if life else None

    def lose_count(self) -> None:
        """Take all that is held for free until something ends or an allocation fails.

        What kubelets do to what they assign while somebody lists PodResources
        (kubernetes#137534); the books stay right, only the count is wrong.
        """
        assert self._surface is not None  # noqa: S101 - made at the start
        self._surface.starter.admission.forgotten.update(
            (resource, device)
            for _, _, resource, holding in self.ledger.entries()
            for device in holding.devices
        )

    async def finish(
        self, namespace: str, pod: str, *, container: str = "", exit_code: int = 0
    ) -> None:
        """End a pod's app containers, or one container, with an exit code.

        What follows is up to the pod's restart policy.

        Raises:
            EmbeddedError: If the pod has no such container that runs.
        """
        life = self._lives.find(namespace, pod) if self._lives else None
        if life is None or not life.finish(container, exit_code):
            what = f"container {container} of it" if container else "it"
            raise EmbeddedError(f"pod {namespace}/{pod}", f"{what} does not run on this node")

    def _residents(self) -> list[Resident]:
        return [life.resident for life in self._lives.holding()] if self._lives else []

    # -- pods

    async def _admit(self, pod: Mapping[str, Any]) -> None:
        assert self._surface is not None  # noqa: S101 - lives exist only with it
        assert self._node is not None  # noqa: S101 - as above
        assert self._lives is not None  # noqa: S101 - as above
        uid = str(pod["metadata"]["uid"])
        admission = self._surface.starter.admission
        # One pod after the other, as upstream: a plugin that hangs holds up all of them.
        async with self._admitting:
            await admission.assign(
                pod, lambda name: self.runtime.get(uid, name).phase is Phase.RUNNING
            )
            others = [life.demand for life in self._lives.holding() if life.uid != uid]
            admission.check_fit(pod, others, self._node.view())
            self._lives.admitted(uid)

    def _release(self, uid: str) -> None:
        if self.ledger.release(uid):
            if self._surface is not None:
                self._surface.starter.admission.forgotten.clear()
            with suppress(OSError):  # the folder was removed; the next start finds no pod
                self._save()

    # -- devices

    def _offer(self) -> Offer:
        return Offer(capacity=self.table.capacity(), allocatable=self.table.allocatable())

    def _devices_changed(self, resource: str) -> None:
        try:
            self._save()
        except OSError as error:
            _log.warning("checkpoint was not written", error=str(error))
        if self._node is not None:
            self._node.wake()
        if self._lives is not None:
            self._lives.device_changed(resource)

    def _device_health(self, resource: str, device: str) -> str | None:
        """Health of a held device; an empty list leaves what was told before."""
        devices = self.table.get(resource)
        if devices.all:
            self._health[resource, device] = devices.health(device)
        return self._health.get((resource, device), "Unknown")

    def _read_checkpoint(self) -> tuple[str, ...]:
        try:
            self.ledger, resources = checkpoint.read(self.settings.plugin_folder)
        except EmbeddedError as error:
            _log.warning("checkpoint was ignored", error=str(error))
            self.ledger, resources = Ledger(), ()
        return resources

    def _save(self) -> None:
        checkpoint.write(self.settings.plugin_folder, self.ledger, self.table)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _title(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace')}/{metadata['name']}"
