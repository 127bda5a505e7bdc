"""Probes and metrics of a program that serves nothing else, in plain HTTP."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from sharing.errors import UnavailableError

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client import CollectorRegistry

_NO_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


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
        yield await _listen(runner, port)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int) -> int:
    """Accept connections by IPv4 and, unless any port will do, by IPv6; the port.

    A pod of a cluster that speaks one of them only is asked by that one.
    """
    from aiohttp import web

    opened = False
    for host in ("0.0.0.0", "::") if port else ("0.0.0.0",):
        try:
            await web.TCPSite(runner, host, port).start()
            opened = True
        except OSError as error:
            if error.errno in _NO_FAMILY and (opened or host != "::"):
                continue
            raise UnavailableError(
                f"port {port}",
                f"cannot be opened: {error.strerror}",
                fix="choose another one",
                example="--metrics-port 9401",
            ) from error
    return int(runner.addresses[0][1])
