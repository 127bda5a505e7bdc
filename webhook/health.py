"""Probes and metrics, in plain HTTP on a port of their own.

Liveness depends on nothing but the event loop: a restart cures neither a broken certificate nor
an API server that is away. Readiness names what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from webhook.connection import SERVER_HEADER
from webhook.listener import Listener
from webhook.metrics import Metrics
from webhook.settings import ServerSettings

Check = Callable[[], str]
"""Why the program is not ready, or an empty text."""


class HealthServer:
    """Serves ``/livez``, ``/readyz`` and ``/metrics``."""

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, checks: Mapping[str, Check]
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._checks = dict(checks)
        self._listener = Listener(self._respond, settings, lambda _: None)
        self._port = 0

    @property
    def port(self) -> int:
        """The port that is open."""
        return self._port

    async def start(self) -> None:
        """Open the port.

        Raises:
            UnavailableError: The port cannot be had.
        """
        port = self._settings.health_port or 0
        self._port = await self._listener.listen(self._settings.health_host, port, None)

    async def start_locally(self, name: str) -> None:
        """Answer other processes of this machine instead, by the name of an abstract socket."""
        await self._listener.listen_locally(name)

    async def close(self) -> None:
        """End now."""
        await self._listener.close()

    def reasons(self) -> tuple[str, ...]:
        """Why the program is not ready, one line a check; empty when it is."""
        found = ((name, check()) for name, check in self._checks.items())
        return tuple(f"{name}: {reason}" for name, reason in found if reason)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        status, body, kind = self._page(request.path)
        return web.Response(
            body=body, status=status, content_type=kind, headers={"Server": SERVER_HEADER}
        )

    def _page(self, path: str) -> tuple[int, bytes, str]:
        if path == "/livez":
            return 200, b"ok\n", "text/plain"
        if path == "/readyz":
            reasons = self.reasons()
            text = "\n".join(reasons or ("ok",)) + "\n"
            return 503 if reasons else 200, text.encode(), "text/plain"
        if path == "/metrics":
            return 200, self._metrics.render(), "text/plain"
        return 404, b"there are /livez, /readyz and /metrics\n", "text/plain"
