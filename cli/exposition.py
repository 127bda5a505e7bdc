"""Probes and metrics of a program that serves nothing else, in plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sharing.errors import UnavailableError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@asynccontextmanager
async def exposed(
    registry: CollectorRegistry, ready: asyncio.Event, port: int | None
) -> AsyncIterator[int]:
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` while the body runs; yields the port.

    It is 0 where nothing is served.

    Args:
        registry: What ``/metrics`` shows.
        ready: What ``/readyz`` says.
        port: Where; 0 for any free one, None for nowhere.

    Raises:
        UnavailableError: The port cannot be had.
    """
    if port is None:
        yield 0
        return
    from aiohttp import web
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if ready.is_set():
            return web.Response(text="ok\n")
        return web.Response(text="not ready yet\n", status=503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    app = web.Application()
    app.add_routes(
        [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "0.0.0.0", port)
        try:
            await site.start()
        except OSError as error:
            raise UnavailableError(
                f"port {port}",
                f"cannot be opened: {error.strerror}",
                fix="choose another one",
                example="--metrics-port 9401",
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
