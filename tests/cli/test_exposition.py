"""Probes and metrics of agent and controller: reached by whatever the cluster speaks."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from cli.exposition import exposed
from sharing.errors import UnavailableError


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_a_port_is_open_to_both_families() -> None:
    port, ready = free_port(), asyncio.Event()
    hosts = ["127.0.0.1", *(["[::1]"] if has_ipv6() else [])]
    async with exposed(CollectorRegistry(), ready, port) as opened, aiohttp.ClientSession() as ask:
        assert opened == port
        for host in hosts:
            async with ask.get(f"http://{host}:{port}/livez") as answer:
                assert answer.status == 200
            async with ask.get(f"http://{host}:{port}/readyz") as answer:
                assert answer.status == 503


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"port {port}: cannot be opened: "):
            async with exposed(CollectorRegistry(), asyncio.Event(), port):
                pass
