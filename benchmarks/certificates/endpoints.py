"""The webhook's Service, as a kubelet and the EndpointSlice controller keep it.

Service and EndpointSlices are real objects, and the API server chooses among them by itself
(``--enable-aggregator-routing``), as it would have kube-proxy choose: at each new connection. What
this module plays is who says that a replica is ready: the kubelet that asks ``/readyz``, and the
controller that writes what the kubelet found.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import aiohttp

from benchmarks.certificates.replica import NAMESPACE, SERVICE
from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import Kind

ENDPOINT_SLICES: Final = Kind(
    kind="EndpointSlice", plural="endpointslices", group="discovery.k8s.io"
)
PERIOD_S: Final = 0.25
"""Between two probes; a kubelet with the chart's probe takes 2 s."""
_TIMEOUT_S: Final = 2.0
_FAILURES: Final = 16
"""So many in a row make a replica unready: after 4 s, as with the chart's probe."""


class Backend(Protocol):
    """What stands behind the Service."""

    name: str
    host: str
    port: int
    health_port: int
    is_terminating: bool

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""


@dataclass(slots=True)
class _Followed:
    backend: Backend
    failures: int = 0
    is_ready: bool = False
    written: dict[str, Any] = field(default_factory=dict)


class Endpoints:
    """Follows backends and tells the API server.

    Args:
        client: An administrator.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._followed: dict[str, _Followed] = {}

    def add(self, backend: Backend) -> None:
        """Follow a replica that was started."""
        self._followed[backend.name] = _Followed(backend)

    async def remove(self, backend: Backend) -> None:
        """Forget a replica that has ended."""
        self._followed.pop(backend.name, None)
        with suppress(ApiError):
            await self._client.delete(ENDPOINT_SLICES, backend.name, namespace=NAMESPACE)

    def ready(self) -> list[str]:
        """Those that the API server was told are ready."""
        return [name for name, one in self._followed.items() if one.is_ready]

    async def run(self) -> None:
        """Probe and tell until cancelled."""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)
        ) as session:
            while True:
                await asyncio.gather(*(self._look(session, one) for one in self._now()))
                await asyncio.sleep(PERIOD_S)

    def _now(self) -> list[_Followed]:
        return list(self._followed.values())

    async def _look(self, session: aiohttp.ClientSession, one: _Followed) -> None:
        if not one.backend.is_running or one.backend.is_terminating:
            one.is_ready = False
        elif await self._says_ready(session, one.backend):
            one.failures, one.is_ready = 0, True
        else:
            one.failures += 1
            one.is_ready &= one.failures < _FAILURES
        wanted = _slice(one)
        # An API server that is away is told later, as a controller would.
        with suppress(ApiError):
            if wanted != one.written and one.backend.name in self._followed:
                await self._write(wanted)
                one.written = wanted

    async def _says_ready(self, session: aiohttp.ClientSession, backend: Backend) -> bool:
        try:
            async with session.get(f"http://127.0.0.1:{backend.health_port}/readyz") as response:
                return response.ok
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _write(self, wanted: dict[str, Any]) -> None:
        try:
            name = wanted["metadata"]["name"]
            await self._client.patch(ENDPOINT_SLICES, name, wanted, namespace=NAMESPACE)
        except NotFoundError:
            await self._client.create(ENDPOINT_SLICES, wanted, namespace=NAMESPACE)


def _slice(one: _Followed) -> dict[str, Any]:
    backend = one.backend
    conditions = {
        "ready": one.is_ready,
        "serving": one.is_ready or (backend.is_running and backend.is_terminating),
        "terminating": backend.is_terminating,
    }
    labels = {"kubernetes.io/service-name": SERVICE}
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {"name": backend.name, "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "reviews", "port": backend.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [backend.host], "conditions": conditions}],
    }
