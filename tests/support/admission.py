"""A webhook served over real HTTPS, and what callers of it need."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import trustme

from certs.cluster import utc_now
from certs.context import HotContext
from certs.leaf import Leaf
from webhook.metrics import Metrics
from webhook.policies import Policies
from webhook.server import PATH, AdmissionServer
from webhook.settings import ServerSettings
from webhook.snapshot import Snapshot

RETRIES = 10
"""How often an API server asks again after a 503 with Retry-After (client-go, with_retry.go)."""
JSON = {"Content-Type": "application/json"}
MPS = Snapshot(policies=Policies(namespaces={"team-a": {"gpu.sharing/mode": "mps"}}))


def leaf_of(issued: trustme.LeafCert) -> Leaf:
    """A certificate of the test's authority, as the server takes it."""
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return Leaf.from_pem(chain, issued.private_key_pem.bytes())


def pod(annotations: dict[str, str] | None = None, gpu: str = "1") -> dict[str, Any]:
    """A pod that asks for a GPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "annotations": annotations or {}},
        "spec": {
            "containers": [
                {"name": "main", "image": "app:1", "resources": {"limits": {"nvidia.com/gpu": gpu}}}
            ]
        },
    }


def review(
    made: Any, *, uid: str = "u-1", namespace: str = "team-a", **request: Any
) -> dict[str, Any]:
    """The API server's question about a pod that is created."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "userInfo": {"username": "admin", "groups": ["system:authenticated"]},
            "dryRun": False,
            "object": made,
            "oldObject": None,
            **request,
        },
    }


@dataclass
class Served:
    """A webhook that is being served, and its authority."""

    server: AdmissionServer
    metrics: Metrics
    context: HotContext
    authority: trustme.CA
    current: list[Snapshot | None]
    """The snapshot that the server sees, replaceable."""
    session: aiohttp.ClientSession = field(init=False)

    @property
    def url(self) -> str:
        """Where reviews go."""
        return f"https://localhost:{self.server.port}{PATH}"

    def trusting(self) -> ssl.SSLContext:
        """A client's TLS context that trusts the authority."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    async def ask(self, body: Any) -> dict[str, Any]:
        """The server's answer to a review, which has to come with status 200."""
        return await ask_patiently(self.session, self.url, body)

    async def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of the answer to any bytes."""
        sent = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(self.url, data=io.BytesIO(body), headers=sent) as response:
            return response.status, dict(response.headers), await response.text()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare TLS connection."""
        return await asyncio.open_connection(
            "localhost", self.server.port, ssl=self.trusting(), server_hostname="localhost"
        )

    def count(self, outcome: str) -> float:
        """How many calls ended so, by the server's own metrics."""
        value = self.metrics.registry.get_sample_value(
            "gpu_sharing_webhook_reviews_total", {"outcome": outcome}
        )
        return value or 0.0


async def ask_patiently(session: aiohttp.ClientSession, url: str, body: Any) -> dict[str, Any]:
    """The answer to a review, asked for as an API server does: again where it is told to."""
    for _ in range(RETRIES):
        async with session.post(url, json=body) as response:
            wait_s = response.headers.get("Retry-After")
            if response.status != 503 or wait_s is None:
                assert response.status == 200, await response.text()
                answer: dict[str, Any] = await response.json()
                return answer
        await asyncio.sleep(float(wait_s))
    raise AssertionError(f"{url} turned a review away {RETRIES} times")


@asynccontextmanager
async def serving(
    authority: trustme.CA, snapshot: Snapshot | None = MPS, **settings: Any
) -> AsyncIterator[Served]:
    """A webhook on a free port, with a client, both gone at the end.

    It sheds no load unless a test asks for that: the machine of a test may be busy.
    """
    context = HotContext(utc_now)
    context.swap(leaf_of(authority.issue_cert("localhost")))
    current = [snapshot]
    metrics = Metrics()
    chosen = ServerSettings(host="127.0.0.1", port=0, **{"most_lag_s": 60.0, **settings})
    server = AdmissionServer(lambda: current[0], chosen, metrics, context.outer)
    await server.start()
    served = Served(server, metrics, context, authority, current)
    connector = aiohttp.TCPConnector(ssl=served.trusting(), family=socket.AF_INET)
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            served.session = session
            yield served
    finally:
        await server.close()


async def until(holds: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Return when a condition holds that nothing announces."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
