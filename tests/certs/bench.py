"""Replicas of a TLS server whose certificates live in a real API server."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry

from certs.bundle import Bundle
from certs.cluster import Cluster, Place
from certs.context import HotContext
from certs.keeper import Keeper, Pace
from certs.metrics import CertsMetrics
from certs.probe import probe
from certs.schedule import RotationSettings
from certs.secret import Stored, read_secret
from embedded.apiserver.server import ApiServer
from sharing.cluster.client import Client
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from sharing.errors import GpuSharingError

NAME = "gpu-sharing-webhook.gpu-sharing.svc"
PLACE = Place(configurations=("gpu-sharing",))
QUICK = RotationSettings(
    names=(NAME, "localhost"),
    life=timedelta(days=30),
    propagation=timedelta(seconds=0.1),
    settle=timedelta(seconds=0.4),
    overlap=timedelta(seconds=0.5),
)
PACE = Pace(poll_s=0.1, jitter_s=0.01, patience_s=10.0)


def configuration(kind: str, entries: int) -> dict[str, Any]:
    service = {"namespace": "gpu-sharing", "name": "gpu-sharing-webhook", "path": "/admit"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "gpu-sharing"},
        "webhooks": [
            {
                "name": f"w{index}.gpu.sharing",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"service": service},
                "failurePolicy": "Ignore",
                "rules": [
                    {
                        "apiGroups": ["example.test"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["things"],
                    }
                ],
            }
            for index in range(entries)
        ],
    }


@dataclass
class Replica:
    """One server with its keeper."""

    keeper: Keeper
    context: HotContext
    registry: CollectorRegistry
    offset: list[timedelta]
    port: int = 0
    server: asyncio.Server | None = None
    task: asyncio.Task[None] | None = None

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"gpu_sharing_certs_{name}", labels)


@dataclass
class Bench:
    """The API server, our objects in it, and replicas."""

    server: ApiServer
    client: Client
    kubeconfig: Path
    chance: random.Random
    replicas: list[Replica] = field(default_factory=list)
    recorder: EventRecorder | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for replica in self.replicas:
            await self.kill(replica)

    async def install(self) -> None:
        """What the chart brings: a namespace, an empty Secret, configurations without trust."""
        await self.client.create(
            NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE.namespace}},
        )
        await self.create_secret()
        await self.client.create(
            MUTATING_WEBHOOKS, configuration("MutatingWebhookConfiguration", 2)
        )
        await self.client.create(
            VALIDATING_WEBHOOKS, configuration("ValidatingWebhookConfiguration", 1)
        )

    async def create_secret(self) -> None:
        metadata = {"name": PLACE.secret, "namespace": PLACE.namespace}
        await self.client.create(
            SECRETS, {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
        )

    def replica(self, settings: RotationSettings = QUICK) -> Replica:
        """A replica that does nothing by itself yet."""
        offset = [timedelta()]

        def clock() -> datetime:
            return datetime.now(UTC) + offset[0]

        context = HotContext(clock)
        registry = CollectorRegistry()
        keeper = Keeper(
            Cluster(self.client, PLACE, clock=clock),
            context,
            settings,
            metrics=CertsMetrics(registry),
            recorder=self.recorder,
            pace=PACE,
            chance=self.chance,
        )
        made = Replica(keeper, context, registry, offset)
        self.replicas.append(made)
        return made

    async def start(self, settings: RotationSettings = QUICK) -> Replica:
        """A replica that listens and keeps its certificate."""
        made = self.replica(settings)

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        made.server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=made.context.outer)
        made.port = made.server.sockets[0].getsockname()[1]
        made.task = asyncio.create_task(made.keeper.run())
        return made

    async def kill(self, replica: Replica) -> None:
        if replica.task is not None:
            replica.task.cancel()
            with suppress(asyncio.CancelledError):
                await replica.task
            replica.task = None
        if replica.server is not None:
            replica.server.close()
            await replica.server.wait_closed()
            replica.server = None

    async def until(self, accept: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        """Poll until something holds; what it was about, if it never does."""
        try:
            async with asyncio.timeout(timeout_s):
                while not accept():  # noqa: ASYNC110 - several things are polled, no one event
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"never: {what}") from None

    async def stored(self) -> Stored:
        secret = await self.client.get(SECRETS, PLACE.secret, namespace=PLACE.namespace)
        return read_secret(secret)

    async def bundles(self) -> list[Bundle]:
        """What each entry of each configuration trusts now."""
        found = []
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            item = await self.client.get(kind, "gpu-sharing")
            for entry in item["webhooks"]:
                pem = base64.b64decode(entry["clientConfig"].get("caBundle", ""))
                found.append(Bundle.salvage(pem))
        return found

    async def call(self, replica: Replica) -> None:
        """What an API server does: a handshake verified by each live bundle."""
        for authorities in await self.bundles():
            await probe("127.0.0.1", replica.port, name=NAME, authorities=authorities)

    async def is_well(self, replica: Replica) -> bool:
        try:
            await self.call(replica)
        except GpuSharingError:
            return False
        return True
