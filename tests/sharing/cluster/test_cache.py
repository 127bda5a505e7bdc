"""The cache against a server on the wire: sync, resume, relist, failure."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from sharing.cluster.backoff import Backoff
from sharing.cluster.cache import Cache, Change, whole
from sharing.cluster.client import Client
from sharing.cluster.kind import PODS
from sharing.errors import InputError, UnavailableError
from tests.support.apidesk import Desk, pod

FAST = Backoff(first_s=0.01, cap_s=0.05)


def version_of(item: dict[str, Any]) -> int:
    if item["metadata"]["labels"].get("bad") == "yes":
        raise InputError("pod", "is bad")
    if item["metadata"]["labels"].get("bad") == "very":
        raise KeyError("fault")
    return int(item["metadata"]["resourceVersion"])


@asynccontextmanager
async def followed(client: Client) -> AsyncIterator[tuple[Cache[int], asyncio.Queue[Change[int]]]]:
    cache = Cache(client, PODS, version_of, backoff=FAST)
    with cache.changes() as queue:
        async with cache, asyncio.timeout(20):
            await cache.wait_synced(timeout_s=10)
            yield cache, queue


async def take(queue: asyncio.Queue[Change[int]], count: int) -> list[Change[int]]:
    return [await queue.get() for _ in range(count)]


async def test_a_cache_holds_the_list_and_what_the_watch_tells(desk: Desk, client: Client) -> None:
    desk.items = [pod("x", 1), pod("y", 2)]
    desk.version = 2
    async with followed(client) as (cache, queue):
        assert cache.items() == ((("a", "x"), 1), (("a", "y"), 2))
        await take(queue, 2)
        desk.tell("MODIFIED", pod("x", 3))
        desk.tell("DELETED", pod("y", 4))
        desk.tell("ADDED", pod("z", 5))
        assert await take(queue, 3) == [
            Change(key=("a", "x"), old=1, new=3),
            Change(key=("a", "y"), old=2, new=None),
            Change(key=("a", "z"), old=None, new=5),
        ]
        assert cache.get("z", namespace="a") == 5
        assert cache.get("y", namespace="a") is None
        assert len(cache) == 2
        assert 0 <= cache.age_s() < 5
    assert desk.watches == ["2"]


async def test_a_watch_that_ends_is_resumed_where_it_ended(desk: Desk, client: Client) -> None:
    async with followed(client) as (_, queue):
        desk.tell("ADDED", pod("x", 7))
        await queue.get()
        desk.end_watch()
        await desk.until_watches(2)
        desk.tell("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
        desk.end_watch()
        await desk.until_watches(3)
    assert desk.watches == ["1", "7", "20"]
    assert sum(1 for seen in desk.seen if "limit" in seen.query) == 1


async def test_a_forgotten_version_leads_to_a_list_that_tells_the_difference(
    desk: Desk, client: Client
) -> None:
    desk.items = [pod("gone", 1), pod("same", 2), pod("changed", 3)]
    async with followed(client) as (cache, queue):
        await take(queue, 3)
        desk.items = [pod("same", 2), pod("changed", 8), pod("new", 9)]
        desk.version = 9
        desk.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        assert await take(queue, 3) == [
            Change(key=("a", "changed"), old=3, new=8),
            Change(key=("a", "gone"), old=1, new=None),
            Change(key=("a", "new"), old=None, new=9),
        ]
        assert cache.values() == (8, 9, 2)
        await desk.until_watches(2)
        assert desk.watches[-1] == "9"


async def test_a_server_that_is_away_is_waited_for(desk: Desk, client: Client) -> None:
    down = web.json_response({"kind": "Status", "code": 503, "message": "starting"}, status=503)
    desk.refuse = down
    cache = Cache(client, PODS, version_of, backoff=FAST)
    async with cache:
        assert cache.age_s() == math.inf
        with capture_logs() as logs:
            with pytest.raises(UnavailableError, match=r"not complete after 0.2 s: .*starting"):
                await cache.wait_synced(timeout_s=0.2)
            desk.refuse = None
            await cache.wait_synced(timeout_s=10)
        assert cache.error is None
    events = [log["event"] for log in logs]
    assert events == ["watch was interrupted", "watch goes on"], "once each, not at each try"


async def test_an_object_that_cannot_be_kept_is_left_out_and_told(
    desk: Desk, client: Client
) -> None:
    desk.items = [pod("bad", 1, bad="yes"), pod("good", 2)]
    with capture_logs() as logs:
        async with followed(client) as (cache, queue):
            assert cache.values() == (2,)
            await queue.get()
            desk.tell("MODIFIED", pod("good", 3, bad="very"))
            assert await queue.get() == Change(key=("a", "good"), old=2, new=None)
            desk.tell("MODIFIED", pod("good", 4))
            assert await queue.get() == Change(key=("a", "good"), old=None, new=4)
    assert [log["event"] for log in logs] == [
        "object was left out",
        "object was left out by a fault",
    ]


async def test_until_returns_once_the_store_satisfies(desk: Desk, client: Client) -> None:
    async with followed(client) as (cache, _):
        waiting = asyncio.create_task(cache.until(lambda store: len(store) == 2))
        desk.tell("ADDED", pod("x", 2))
        desk.tell("ADDED", pod("y", 3))
        await waiting
        assert cache.values() == (2, 3)


async def test_a_callback_is_not_called_after_it_was_ended(desk: Desk, client: Client) -> None:
    heard: list[Change[int]] = []
    async with followed(client) as (cache, queue):
        stop = cache.on_change(heard.append)
        desk.tell("ADDED", pod("x", 2))
        await queue.get()
        stop()
        desk.tell("ADDED", pod("y", 3))
        await queue.get()
    assert [change.key for change in heard] == [("a", "x")]


def test_whole_drops_the_field_managers_records() -> None:
    item = {"metadata": {"name": "x", "managedFields": [{}]}, "spec": {}}
    assert whole(item) == {"metadata": {"name": "x"}, "spec": {}}


def test_waits_double_up_to_the_cap_and_jitter_downwards() -> None:
    waits = Backoff(first_s=1, cap_s=5, spread=0).waits()
    assert [next(waits) for _ in range(5)] == [1, 2, 4, 5, 5]
    jittered = Backoff(first_s=1, cap_s=5, spread=0.5).waits()
    for nominal in (1, 2, 4, 5, 5):
        assert nominal / 2 <= next(jittered) <= nominal
