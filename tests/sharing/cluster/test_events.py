"""Events: written once, counted after, and never in the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from embedded.apiserver.server import ApiServer
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.eventflow import (
    Alike,
    Budget,
    EventPolicy,
    note_message,
    refilled,
    spent,
    wait_s,
)
from sharing.cluster.events import EventRecorder, reference
from sharing.cluster.kind import EVENTS, NAMESPACES
from tests.support.apidesk import Desk, pod, status
from tests.support.plugin_waiting import eventually

PATH = "/api/v1/namespaces/a/events"
FLOOD = EventPolicy(alike=3, burst=5, refill_s=0.01)


@pytest.fixture
async def cluster() -> AsyncIterator[Client]:
    """A client of an embedded API server that has namespace ``a``."""
    async with ApiServer() as server:
        token = server.kubeconfig()["users"][0]["user"]["token"]

        async def source() -> credentials.Access:
            return credentials.Access(
                server=server.url, origin="test", authorization=f"Bearer {token}"
            )

        async with Client(source) as client:
            await client.create(NAMESPACES, {"metadata": {"name": "a"}})
            yield client


async def written(client: Client) -> list[dict[str, Any]]:
    """All events of namespace ``a``, in order of their messages."""
    items = (await client.list(EVENTS, namespace="a"))["items"]
    return sorted(items, key=lambda item: str(item["message"]))


async def test_the_same_event_again_only_counts(desk: Desk, client: Client) -> None:
    desk.answer("POST", PATH, web.json_response({}))
    async with EventRecorder(client, "tester", instance="n1") as events:
        events.record(pod("p", 1), "Refused", "no room", warning=True)
        await events.drain()
        (first,) = desk.seen
        desk.answer("PATCH", f"{PATH}/{first.body['metadata']['name']}", web.json_response({}))
        events.record(pod("p", 2), "Refused", "no room", warning=True)
        events.record(pod("p", 2), "Refused", "other words")
        await events.drain()
    assert first.body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "a",
        "name": "p",
    }
    assert first.body["type"] == "Warning"
    assert first.body["source"] == {"component": "tester", "host": "n1"}
    assert [(seen.method, seen.body["count"]) for seen in desk.seen] == [
        ("POST", 1),
        ("PATCH", 2),
        ("POST", 1),
    ]
    assert desk.seen[2].body["metadata"]["name"] != first.body["metadata"]["name"]


async def test_an_event_that_aged_out_is_written_anew(desk: Desk, client: Client) -> None:
    desk.answer("POST", PATH, web.json_response({}))
    desk.refuse = status(404, "NotFound", "gone")
    async with EventRecorder(client, "tester") as events:
        for _ in range(2):
            events.record(pod("p", 1), "R", "m")
            await events.drain()
    assert [seen.method for seen in desk.seen] == ["POST", "PATCH", "POST"]
    assert desk.seen[2].body["count"] == 2


async def test_a_server_that_refuses_events_is_logged_and_the_next_one_is_tried(
    desk: Desk, client: Client
) -> None:
    desk.refuse = status(403, "Forbidden", "no events for you")
    with capture_logs() as logs:
        async with EventRecorder(client, "tester") as events:
            events.record(pod("p", 1), "R", "one")
            events.record(pod("p", 1), "R", "x" * 5000)
            await events.drain()
    assert [log["event"] for log in logs] == ["event was not written", "event was not written"]
    assert len(desk.seen[1].body["message"]) == 1024


async def test_too_many_events_are_dropped_and_told(client: Client) -> None:
    events = EventRecorder(client, "tester")
    with capture_logs() as logs:
        for number in range(1003):
            events.record(reference(pod(f"p{number}", 1)), "R", "m")
    assert [log["event"] for log in logs] == ["event was dropped"]


async def test_an_event_of_an_earlier_agent_is_counted_on(cluster: Client) -> None:
    for run in range(3):
        async with EventRecorder(cluster, "tester", instance=f"run-{run}") as events:
            for _ in range(run + 1):
                events.record(pod("p", 1), "GpuUnhealthy", "XID 79", warning=True)
            await events.drain()
    (event,) = await written(cluster)
    assert event["count"] == 1 + 2 + 3
    assert event["firstTimestamp"] <= event["lastTimestamp"]


async def test_the_rights_to_create_and_patch_are_enough(desk: Desk, client: Client) -> None:
    desk.answer("POST", PATH, status(409, "AlreadyExists", "there is one"))
    desk.refuse = web.json_response({"count": 41})
    with capture_logs() as logs:
        async with EventRecorder(client, "tester") as events:
            events.record(pod("p", 1), "R", "m")
            await events.drain()
    assert [seen.method for seen in desk.seen] == ["POST", "PATCH", "PATCH"]
    assert desk.seen[2].body["count"] == 42
    assert logs == []


async def test_events_that_are_alike_become_one_that_counts(cluster: Client) -> None:
    async with EventRecorder(cluster, "tester", policy=FLOOD) as events:
        for number in range(20):
            events.record(pod("p", 1), "LayoutBlocked", f"process {number:02} is in the way")
            events.record(pod("p", 1), "Other", "stands alone")
            events.record(pod("q", 1), "LayoutBlocked", "another object")
        await events.drain()
    found = [(item["message"], item["count"]) for item in await written(cluster)]
    assert found == [
        ("(combined from similar events): process 19 is in the way", 17),
        ("another object", 20),
        ("process 00 is in the way", 1),
        ("process 01 is in the way", 1),
        ("process 02 is in the way", 1),
        ("stands alone", 20),
    ]


async def test_a_flood_about_one_object_costs_its_budget_and_loses_no_count(
    desk: Desk, client: Client
) -> None:
    desk.answer("POST", PATH, web.json_response({}))
    policy = EventPolicy(burst=2, refill_s=3600.0)
    async with EventRecorder(client, "tester", policy=policy) as events:
        for reason in ("A", "B", "C"):
            for _ in range(100):
                events.record(pod("p", 1), reason, "m")
        events.record(pod("q", 1), "A", "another object goes on")
        await eventually(lambda: len(desk.seen) == 3)
    told = [(seen.body["involvedObject"]["name"], seen.body["count"]) for seen in desk.seen]
    assert told == [("p", 100), ("p", 100), ("q", 1)]


async def test_events_wait_for_a_server_that_is_away_and_keep_their_times(
    desk: Desk, client: Client
) -> None:
    desk.answer(
        "POST",
        PATH,
        status(503, "ServiceUnavailable", "later"),
        status(500, "InternalError", "later"),
        web.json_response({}),
    )
    with capture_logs() as logs:
        async with EventRecorder(client, "tester") as events:
            events.record(pod("p", 1), "R", "m")
            await events.drain()
    assert [seen.method for seen in desk.seen] == ["POST", "POST", "POST"]
    assert desk.seen[0].body == desk.seen[2].body
    assert [log["event"] for log in logs] == [
        "events wait for the API server",
        "events are written again",
    ]


@given(
    moments=st.lists(st.floats(0, 1000), min_size=1, max_size=60).map(sorted),
    burst=st.integers(1, 20),
    refill_s=st.floats(0.1, 100),
)
def test_a_budget_never_allows_more_than_its_burst_and_its_refill(
    moments: list[float], burst: int, refill_s: float
) -> None:
    policy = EventPolicy(burst=burst, refill_s=refill_s)
    budget: Budget | None = None
    written_at = []
    for now in moments:
        budget = refilled(budget, now=now, policy=policy)
        if not wait_s(budget, policy):
            budget = spent(budget)
            written_at.append(now)
    lasted = moments[-1] - moments[0]
    assert len(written_at) <= burst + lasted / refill_s + 1e-6


def test_messages_are_forgotten_after_the_window() -> None:
    policy = EventPolicy(alike=1, window_s=60.0)
    known, first = note_message(None, "a", now=0.0, policy=policy)
    known, again = note_message(known, "a", now=30.0, policy=policy)
    known, other = note_message(known, "b", now=59.0, policy=policy)
    assert (first, again, other) == (False, False, True)
    assert note_message(known, "b", now=61.0, policy=policy) == (
        Alike(since=61.0, messages=frozenset({"b"})),
        False,
    )
