"""A real API server, the chart's objects in it, and replicas of the webhook behind its Service.

Replicas are processes of this machine with the chart's service account and nothing more. The API
server finds them as in a cluster: a Service, EndpointSlices, and a connection to one of those that
are ready, so it asks for the Service's name and verifies it by ``caBundle``.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from benchmarks.certificates.counts import ApiCounts
from benchmarks.certificates.endpoints import Endpoints
from benchmarks.certificates.load import Load
from benchmarks.certificates.observer import Observer
from benchmarks.certificates.process import END_S, Replica, own_address
from benchmarks.certificates.replica import NAMESPACE, SERVICE
from benchmarks.certificates.times import ASKED, Times
from benchmarks.cluster import inventory
from certs.cluster import Cluster, Place
from certs.secret import Stored, read_secret
from sharing.cluster.client import Client
from sharing.cluster.errors import NotFoundError
from sharing.cluster.kind import MUTATING_WEBHOOKS, NAMESPACES, NODES, SECRETS, Kind
from sharing.names import MANAGED_LABEL, MODE_LABEL
from tests.cluster.controlplane import ControlPlane
from tests.cluster.daemons import start_process, tail
from tests.cluster.ports import free_ports
from tests.cluster.rights import MANIFESTS, chart_identities
from tests.cluster.waiting import eventually

API_FLAGS: Final = (
    "--enable-aggregator-routing=true",
    "--enable-priority-and-fairness=false",
)
"""The API server goes to the EndpointSlices' addresses by itself, for there is no kube-proxy here;
and it lets callers wait for nothing but the webhook."""
TENANT: Final = "team-a"
NODE: Final = "node-a"
SERVICES: Final = Kind(kind="Service", plural="services")
_START_S: Final = 240.0
_LATE_S: Final = 0.5
"""How long after SIGTERM the API server hears of it; a kubelet and a controller take less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a replica ended that was told to."""

    name: str
    status: int
    took_s: float
    """From SIGTERM on."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """Everything; an async context manager.

    Attributes:
        plane: etcd and API server, running.
        folder: For files of the scene.
        times: Of the replicas' rotations.
        account: Kubeconfig of the chart's service account for the webhook.
        ends: How the replicas ended that were retired.
        drain_delay_s: How long a replica serves on after SIGTERM; as the chart says.
        drain_timeout_s: How long it then waits for connections; as the chart says.
        environment: Of replicas that are given none.
    """

    plane: ControlPlane
    folder: Path
    times: Times = ASKED
    drain_delay_s: float = 5.0
    drain_timeout_s: float = 100.0
    environment: Mapping[str, str] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    host: str = field(default_factory=own_address)
    admin: Client = field(init=False)
    endpoints: Endpoints = field(init=False)
    observer: Observer = field(init=False)
    counts: ApiCounts = field(init=False)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    account: Path = field(init=False)
    _number: int = 0
    _burials: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        access = self.plane.access
        self.admin = Client.from_kubeconfig(access.kubeconfig())
        await self._stack.enter_async_context(self.admin)
        self.endpoints = Endpoints(self.admin)
        self.observer = Observer(self.admin, self.running)
        self.counts = ApiCounts(access)
        self.account = (await asyncio.to_thread(chart_identities, access))["webhook"]
        await self._install()
        self.accompany(self.endpoints.run(), self.observer.run(), self.counts.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._burials:
            await _end(task)
        for one in self.replicas:
            one.send(signal.SIGKILL)
        await self._stack.aclose()
        for one in self.replicas:
            one.process.wait(END_S)

    def accompany(self, *work: Any) -> None:
        """Let coroutines run until the scene ends; one that fails makes the end fail."""
        for each in work:
            task = asyncio.ensure_future(each)
            self._stack.push_async_callback(_end, task)

    async def _install(self) -> None:
        """The chart's objects that the webhook needs, each made unless it is there."""
        await inventory.define(self.admin)
        labels = {MODE_LABEL: "mps"}
        await self.admin.create(NAMESPACES, {"metadata": {"name": TENANT, "labels": labels}})
        await self.admin.create(
            NODES, {"metadata": {"name": NODE, "labels": {MANAGED_LABEL: "true"}}}
        )
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.admin.patch(NODES, NODE, status, subresource="status")
        await inventory.publish(self.admin, [NODE])
        for manifest in yaml.safe_load_all(MANIFESTS.read_text("utf-8")):
            kind = manifest["kind"] if manifest else ""
            if kind == "Service" and manifest["metadata"]["name"] == SERVICE:
                await self.admin.create(SERVICES, manifest, namespace=NAMESPACE)
            elif kind == "MutatingWebhookConfiguration":
                await self.admin.create(MUTATING_WEBHOOKS, manifest)

    # -- replicas

    def running(self) -> list[Replica]:
        """Those whose process lives."""
        return [one for one in self.replicas if one.is_running]

    def start(
        self, *, arm: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Replica:
        """Start one more; it is not ready yet.

        Args:
            arm: The trigger at which it dies, see ``replica``.
            environment: Of the process.
        """
        self._number += 1
        name = f"{SERVICE}-{self._number}"
        port, health_port = free_ports(2)
        times = self.times.save(self.folder / f"{name}.times.json")
        options = {
            "--kubeconfig": self.account,
            "--times": times,
            "--arm": arm or self.folder / "never",
            "--host": self.host,
            "--port": port,
            "--health-port": health_port,
            "--drain-delay": self.drain_delay_s,
            "--drain-timeout": self.drain_timeout_s,
        }
        words = [str(word) for option in options.items() for word in option]
        process = start_process(
            [sys.executable, "-m", "benchmarks.certificates.replica", *words],
            self.plane.logs / f"{name}.log",
            environment=self.environment if environment is None else environment,
        )
        return self.adopt(
            Replica(name=name, host=self.host, port=port, health_port=health_port, process=process)
        )

    def adopt(self, replica: Replica) -> Replica:
        """Let a process that was started otherwise stand behind the Service."""
        self.replicas.append(replica)
        self.endpoints.add(replica)
        return replica

    async def start_ready(
        self, count: int = 1, *, environment: Mapping[str, str] | None = None
    ) -> list[Replica]:
        """Start some at once and wait until the API server was told that all are ready."""
        made = [self.start(environment=environment) for _ in range(count)]
        await self.until_ready(*made)
        return made

    async def until_ready(self, *wanted: Replica, timeout_s: float = _START_S) -> None:
        """Wait until the API server was told that these are ready."""
        names = {one.name for one in wanted}

        async def look() -> bool:
            for one in wanted:
                assert one.is_running, f"{one.name} ended: {self.said(one)}"
            return names <= set(self.endpoints.ready())

        try:
            await eventually(f"{sorted(names)} are ready", look, timeout_s=timeout_s)
        except AssertionError as error:
            error.add_note("\n".join(map(self.said, wanted)))
            raise

    def said(self, one: Replica) -> str:
        """The end of a replica's log."""
        return tail(self.plane.logs, one.name)

    async def roll(self, old: Replica, *, environment: Mapping[str, str] | None = None) -> Replica:
        """Replace one as a Deployment does: the new one is ready before the old one is told.

        The old one takes its time to end; nobody waits for it.
        """
        (fresh,) = await self.start_ready(environment=environment)
        self.retire(old)
        return fresh

    def retire(self, one: Replica) -> None:
        """End one as a kubelet does, without waiting; see ``all_buried``."""
        one.is_retired = True

        async def bury() -> None:
            began_s = asyncio.get_running_loop().time()
            one.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(_LATE_S)  # the API server hears of it late
            one.is_terminating = True
            status = await one.ended(self.drain_delay_s + self.drain_timeout_s + END_S)
            took_s = asyncio.get_running_loop().time() - began_s
            if not one.is_killed:
                self.ends.append(Ended(name=one.name, status=status, took_s=took_s))
            await self.forget(one)

        self._burials.append(asyncio.create_task(bury(), name=f"end of {one.name}"))

    async def all_buried(self) -> list[Ended]:
        """Wait for the end of all that were retired; how they ended."""
        await asyncio.gather(*self._burials)
        self._burials = []
        return self.ends

    def serving(self) -> list[Replica]:
        """Those that run and were not told to end."""
        return [one for one in self.running() if not (one.is_terminating or one.is_retired)]

    async def forget(self, one: Replica) -> None:
        """A replica that has ended is gone from the Service too."""
        if one in self.replicas:
            self.replicas.remove(one)
        await self.endpoints.remove(one)

    # -- what the replicas keep

    def load(self, *, rate: float, connections: int = 16) -> Load:
        """Callers that have not begun."""
        access = self.plane.access
        context = ssl.create_default_context(cafile=str(access.ca))
        pair = access.authority.client("load", "load", ("system:masters",))
        context.load_cert_chain(pair.certificate, pair.key)
        return Load(access.server, context, namespace=TENANT, rate=rate, connections=connections)

    async def stored(self) -> Stored:
        """What the Secret holds."""
        try:
            name = Place().secret
            return read_secret(await self.admin.get(SECRETS, name, namespace=NAMESPACE))
        except NotFoundError:
            return read_secret(None)

    async def rotate(self, *, timeout_s: float = 240.0) -> None:
        """Ask for a rotation and wait until the new certificate is current."""
        before = await self.stored()
        wish = f"{id(before)}-{len(self.observer.served)}-{asyncio.get_running_loop().time()}"
        await Cluster(self.admin, Place()).ask(wish)

        async def look() -> bool:
            now = await self.stored()
            return now.answered == wish and now.next is None and now.current != before.current

        await eventually("the certificate is rotated", look, timeout_s=timeout_s)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
