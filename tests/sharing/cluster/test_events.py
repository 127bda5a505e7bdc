"""Events: written once, counted after, and never in the way."""

from __future__ import annotations

from aiohttp import web
from structlog.testing import capture_logs

from sharing.cluster.client import Client
from sharing.cluster.events import EventRecorder, reference
from tests.support.apidesk import Desk, pod, status

PATH = "/api/v1/namespaces/a/events"


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
        for number in range(1001):
            events.record(reference(pod("p", 1)), "R", str(number))
    assert [log["event"] for log in logs] == ["event was dropped"]
