"""One leader at a time, whatever the API server does to its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.controller.election import Election, LeaseSettings

SETTINGS = LeaseSettings(namespace="default", duration_s=3.0, renew_s=0.6, retry_s=0.05)


@dataclass
class LeaseDesk:
    """An API server with one Lease, which may stop answering writes."""

    lease: dict[str, Any] | None = None
    version: int = 0
    silent: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            if self.lease is None:
                return web.json_response({"kind": "Status", "code": 404}, status=404)
            return web.json_response(self.lease)
        self.asked += 1
        if self.silent.is_set():
            await self.over.wait()
        self.version += 1
        self.lease = await request.json()
        assert self.lease is not None
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return web.json_response(self.lease)


@pytest.fixture
async def desk() -> AsyncIterator[tuple[LeaseDesk, Client]]:
    made = LeaseDesk()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with Client(credentials.at(url)) as client:
        yield made, client
    made.over.set()
    await runner.cleanup()


async def test_a_leader_that_gets_no_answer_stops_before_another_may_begin(
    desk: tuple[LeaseDesk, Client],
) -> None:
    server, client = desk
    election = Election(client, "one", SETTINGS)
    await election.win()
    last_renewal = asyncio.get_running_loop().time()
    server.silent.set()

    async with asyncio.timeout(5.0):
        await election.keep()

    assert asyncio.get_running_loop().time() - last_renewal < SETTINGS.duration_s
    assert server.asked >= 2


async def test_a_lease_without_a_spec_is_taken(desk: tuple[LeaseDesk, Client]) -> None:
    server, client = desk
    server.lease = {
        "metadata": {"name": "x", "namespace": "default", "resourceVersion": "7"},
        "spec": None,
    }

    async with asyncio.timeout(5.0):
        await Election(client, "one", SETTINGS).win()

    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == "one"
