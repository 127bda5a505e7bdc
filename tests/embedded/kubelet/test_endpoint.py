"""A call to a plugin ends in words when its connection is cut, and no pod is lost by it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from embedded.kubelet.endpoint import Endpoint, PluginError
from sharing.plugin.proto import deviceplugin_pb2 as api
from tests.support.kubelet_plugin import ScriptedPlugin


@dataclass
class SlowPlugin(ScriptedPlugin):
    """Never answers Allocate, and says when it was asked."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def Allocate(  # noqa: N802 - the protocol's name
        self, request: api.AllocateRequest, context: Any
    ) -> api.AllocateResponse:
        del request, context
        self.asked.set()
        await asyncio.Event().wait()
        return api.AllocateResponse()


@pytest.fixture
async def connected() -> AsyncIterator[tuple[SlowPlugin, Endpoint]]:
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp") as name:
        folder = Path(name)
        plugin = SlowPlugin(folder, "vendor.com/thing", {"a": "Healthy"})
        await plugin.serve()
        endpoint = Endpoint(plugin.resource, folder / plugin.socket)
        await endpoint.dial(5.0)
        yield plugin, endpoint
        await endpoint.close()
        await plugin.close()


async def asking(plugin: SlowPlugin, endpoint: Endpoint) -> asyncio.Task[Any]:
    """A call to Allocate that has arrived."""
    task = asyncio.create_task(endpoint.allocate(["a"]))
    async with asyncio.timeout(5):
        await plugin.asked.wait()
    return task


async def test_a_call_whose_connection_is_closed_is_refused_and_not_lost(
    connected: tuple[SlowPlugin, Endpoint],
) -> None:
    task = await asking(*connected)

    await connected[1].close()

    async with asyncio.timeout(5):
        with pytest.raises(PluginError, match="code = Canceled"):
            await task


async def test_whoever_waits_for_a_call_can_still_be_ended(
    connected: tuple[SlowPlugin, Endpoint],
) -> None:
    task = await asking(*connected)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
