from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from embedded.apiserver import ApiServer
from tests.support.apiserver import Client
from tests.support.apiserver_webhook import Webhook, webhook_server


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def api(server: ApiServer, session: aiohttp.ClientSession) -> Client:
    return Client(server.url, session)


@pytest.fixture
async def hook() -> AsyncIterator[Webhook]:
    async with webhook_server("gpu-sharing.system.svc") as running:
        yield running
