"""Leader election: one holder of a Lease works, the others wait.

Time is judged by this process's own clock alone: a lease counts as abandoned when it was seen
unchanged for its whole duration, whatever its timestamps say, so clocks need not agree.

Source: k8s.io/client-go/tools/leaderelection.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from sharing.cluster.client import Client
from sharing.cluster.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from sharing.cluster.kind import LEASES

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Which Lease, and how fast it changes hands."""

    namespace: str = "gpu-sharing"
    name: str = "gpu-sharing-controller"
    duration_s: float = 15.0
    """A lease that was not renewed for so long may be taken."""
    renew_s: float = 10.0
    """A leader that could not renew for so long stops working; less than ``duration_s``."""
    retry_s: float = 2.0


class Election:
    """One candidate.

    Args:
        client: The connection.
        identity: Who we are; unique among the candidates.
        settings: The Lease.
    """

    def __init__(self, client: Client, identity: str, settings: LeaseSettings) -> None:
        self._client = client
        self._identity = identity
        self._settings = settings
        self._seen: tuple[str, float] = ("", 0.0)
        """Version of the lease, and when it was first seen on our clock."""
        self._renewed = 0.0
        """When we last renewed it, on the event loop's clock."""

    async def win(self) -> None:
        """Return once we hold the lease."""
        while True:
            if await self._renew():
                _log.info("leadership was won", identity=self._identity)
                return
            await asyncio.sleep(self._settings.retry_s * random.uniform(1.0, 1.2))

    async def keep(self) -> None:
        """Renew the lease; returns when it is lost.

        A server that does not answer is not waited for: another one may hold the lease by then.
        """
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout_at(self._renewed + self._settings.renew_s):
                    await asyncio.sleep(self._settings.retry_s)
                    await self._renew()
        _log.warning("leadership was lost", identity=self._identity)

    async def resign(self) -> None:
        """Give the lease back, so that the next one need not wait."""
        try:
            lease = await self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(LEASES, lease)
        except ApiError as error:
            _log.warning("leadership was not given back", error=str(error))

    async def _renew(self) -> bool:
        """Try to take or renew the lease; the others count from when we asked, at the earliest."""
        asked = asyncio.get_running_loop().time()
        if await self._try():
            self._renewed = asked
            return True
        return False

    async def _try(self) -> bool:
        try:
            lease = await self._get()
            if lease is None:
                await self._client.create(LEASES, self._fresh())
                return True
            if not self._may_take(lease):
                return False
            await self._client.replace(LEASES, self._taken(lease))
        except (AlreadyExistsError, ConflictError):
            return False
        except ApiError as error:
            _log.warning("lease was not renewed", error=str(error))
            return False
        return True

    async def _get(self) -> dict[str, Any] | None:
        try:
            lease = await self._client.get(
                LEASES, self._settings.name, namespace=self._settings.namespace
            )
        except NotFoundError:
            return None
        return {**lease, "spec": lease.get("spec") or {}}

    def _may_take(self, lease: dict[str, Any]) -> bool:
        spec, version = lease["spec"], str(lease["metadata"].get("resourceVersion"))
        if spec.get("holderIdentity") in (self._identity, "", None):
            return True
        if self._seen[0] != version:
            self._seen = (version, time.monotonic())
        duration_s = spec.get("leaseDurationSeconds") or self._settings.duration_s
        return time.monotonic() - self._seen[1] > float(duration_s)

    def _fresh(self) -> dict[str, Any]:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._settings.name, "namespace": self._settings.namespace},
            "spec": {**self._claim(), "acquireTime": _now(), "leaseTransitions": 0},
        }

    def _taken(self, lease: dict[str, Any]) -> dict[str, Any]:
        spec = lease["spec"]
        changed = spec.get("holderIdentity") != self._identity
        news = {"acquireTime": _now(), "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1}
        return {**lease, "spec": {**spec, **(news if changed else {}), **self._claim()}}

    def _claim(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._settings.duration_s)),
            "renewTime": _now(),
        }


def _now() -> str:
    """MicroTime of the Kubernetes API."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
