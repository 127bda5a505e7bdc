"""The server of few words, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from sharing.cluster import credentials
from sharing.cluster.client import Client
from tests.support.apidesk import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    made.end_watch()
    await runner.cleanup()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with Client(credentials.at(desk.url), user_agent="test/1") as made:
        yield made
