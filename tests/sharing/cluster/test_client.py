"""The client against a server on the wire: verbs, addresses, failures."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import orjson
import pytest
from aiohttp import web

from sharing.cluster import credentials, errors
from sharing.cluster.client import Client, PatchType
from sharing.cluster.kind import GPU_NODES, NODES, PODS
from sharing.cluster.watching import EventType
from sharing.errors import InputError, UnavailableError
from tests.support.apidesk import Desk, status

OK = {"kind": "Pod", "metadata": {"name": "p"}}


async def test_get_asks_for_the_objects_own_address(desk: Desk, client: Client) -> None:
    desk.answer("GET", "/api/v1/namespaces/a/pods/p", web.json_response(OK))
    assert await client.get(PODS, "p", namespace="a") == OK
    assert desk.seen[0].headers["User-Agent"] == "test/1"


async def test_a_name_cannot_step_out_of_its_collection(desk: Desk, client: Client) -> None:
    path = "/apis/gpu.sharing/v1alpha1/gpunodes/..%2F..%2Fsecrets"
    desk.answer("GET", path, web.json_response(OK))
    assert await client.get(GPU_NODES, "../../secrets") == OK
    desk.answer("GET", "/api/v1/nodes/%2E%2E", web.json_response(OK))
    await client.get(NODES, "..")
    assert desk.seen[-1].path in {"/api/v1/nodes/%2E%2E", "/api/v1/nodes/.."}


async def test_an_object_of_a_namespaced_kind_needs_its_namespace(client: Client) -> None:
    with pytest.raises(InputError, match="no namespace"):
        await client.get(PODS, "p")


async def test_list_joins_pages_and_restores_what_lists_leave_out(
    desk: Desk, client: Client
) -> None:
    desk.items = [{"metadata": {"name": str(n)}} for n in range(5)]
    desk.page = 2
    whole = await client.list(PODS, label_selector="x=y", field_selector="spec.nodeName=n")
    assert [item["metadata"]["name"] for item in whole["items"]] == ["0", "1", "2", "3", "4"]
    assert {(item["kind"], item["apiVersion"]) for item in whole["items"]} == {("Pod", "v1")}
    assert len(desk.seen) == 3
    assert {seen.query["labelSelector"] for seen in desk.seen} == {"x=y"}
    assert {seen.query["fieldSelector"] for seen in desk.seen} == {"spec.nodeName=n"}


async def test_create_returns_the_object_and_the_servers_warnings(
    desk: Desk, client: Client
) -> None:
    answer = web.json_response(OK)
    answer.headers.add("Warning", '299 - "say \\"less\\""')
    answer.headers.add("Warning", '299 - "second"')
    desk.answer("POST", "/api/v1/namespaces/a/pods", answer, web.json_response(OK))
    heard: list[str] = []
    item = {"metadata": {"name": "p", "namespace": "a"}}
    assert await client.create(PODS, item, dry_run=True, warnings=heard) == OK
    assert heard == ['say "less"', "second"]
    assert desk.seen[0].query == {"dryRun": "All"}
    assert desk.seen[0].body == item


@pytest.mark.parametrize(
    ("patch_type", "content_type"),
    [
        (PatchType.JSON, "application/json-patch+json"),
        (PatchType.MERGE, "application/merge-patch+json"),
        (PatchType.STRATEGIC, "application/strategic-merge-patch+json"),
    ],
)
async def test_a_patch_says_its_format(
    desk: Desk, client: Client, patch_type: PatchType, content_type: str
) -> None:
    desk.answer("PATCH", "/api/v1/nodes/n/status", web.json_response(OK))
    await client.patch(NODES, "n", {}, patch_type=patch_type, subresource="status")
    assert desk.seen[0].headers["Content-Type"] == content_type


async def test_apply_names_its_manager_and_the_objects_kind(desk: Desk, client: Client) -> None:
    desk.answer("PATCH", "/apis/gpu.sharing/v1alpha1/gpunodes/n", web.json_response(OK))
    await client.apply(GPU_NODES, {"metadata": {"name": "n"}}, field_manager="m")
    seen = desk.seen[0]
    assert seen.query == {"fieldManager": "m", "force": "true"}
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"
    assert seen.body["kind"] == "GPUNode"
    assert seen.body["apiVersion"] == "gpu.sharing/v1alpha1"


async def test_delete_evict_and_bind_send_what_upstream_expects(desk: Desk, client: Client) -> None:
    base = "/api/v1/namespaces/a/pods/p"
    for method, path in (
        ("DELETE", base),
        ("POST", f"{base}/eviction"),
        ("POST", f"{base}/binding"),
    ):
        desk.answer(method, path, web.json_response({"kind": "Status"}))
    await client.delete(PODS, "p", namespace="a", grace_s=0, uid="u", propagation="Foreground")
    await client.evict("p", namespace="a", grace_s=5)
    await client.bind("p", namespace="a", node="n")
    deleted, evicted, bound = (seen.body for seen in desk.seen)
    assert deleted["gracePeriodSeconds"] == 0
    assert deleted["preconditions"] == {"uid": "u"}
    assert deleted["propagationPolicy"] == "Foreground"
    assert (evicted["kind"], evicted["apiVersion"]) == ("Eviction", "policy/v1")
    assert evicted["deleteOptions"] == {"gracePeriodSeconds": 5}
    assert bound["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequestError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (409, "Conflict", errors.ConflictError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (410, "Expired", errors.GoneError),
        (418, "Teapot", errors.ApiError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.TooManyRequestsError),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
    ],
)
async def test_each_refusal_has_its_class_and_keeps_the_servers_words(
    desk: Desk, client: Client, code: int, reason: str, expected: type[errors.ApiError]
) -> None:
    desk.refuse = status(code, reason, "because of it")
    with pytest.raises(expected) as caught:
        await client.get(PODS, "p", namespace="a")
    error = caught.value
    assert type(error) is expected
    assert isinstance(error, UnavailableError)
    assert (error.code, error.reason, error.message) == (code, reason, "because of it")
    assert str(error).startswith("get pods a/p: because of it")
    assert error.about("starting").code == code


async def test_an_answer_that_is_no_status_is_shown_short(desk: Desk, client: Client) -> None:
    desk.refuse = web.Response(status=502, text="<html>" + "x" * 5000)
    with pytest.raises(errors.ServerError, match="the server answered 502: <html>xxx") as caught:
        await client.get(NODES, "n")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("body", ["not json", "[1]", '"text"'])
async def test_an_answer_that_is_no_object_is_an_error(
    desk: Desk, client: Client, body: str
) -> None:
    desk.answer("GET", "/api/v1/nodes/n", web.Response(text=body))
    with pytest.raises(errors.UnreachableError, match="the answer is not"):
        await client.get(NODES, "n")


async def test_nobody_listening_is_told_with_the_address() -> None:
    async with Client(credentials.at("http://127.0.0.1:1")) as client:
        with pytest.raises(errors.UnreachableError, match=r"cannot connect to http://127.0.0.1:1"):
            await client.get(NODES, "n")


async def test_refused_credentials_are_loaded_anew_once(desk: Desk) -> None:
    loads = 0

    async def source() -> credentials.Access:
        nonlocal loads
        loads += 1
        return credentials.Access(
            server=desk.url, origin="test", authorization=f"Bearer token-{loads}"
        )

    desk.answer(
        "GET", "/api/v1/nodes/n", status(401, "Unauthorized", "expired"), web.json_response(OK)
    )
    async with Client(source) as client:
        assert await client.get(NODES, "n") == OK
        assert [seen.headers["Authorization"] for seen in desk.seen] == [
            "Bearer token-1",
            "Bearer token-2",
        ]
        desk.refuse = status(401, "Unauthorized", "no")
        with pytest.raises(errors.UnauthorizedError, match="log in again"):
            await client.get(NODES, "m")
    assert loads == 3


async def test_a_throttled_request_is_sent_again_but_an_eviction_is_not(
    desk: Desk, client: Client
) -> None:
    slow = status(429, "TooManyRequests", "later", **{"Retry-After": "0"})
    desk.answer("GET", "/api/v1/nodes/n", slow, web.json_response(OK))
    assert await client.get(NODES, "n") == OK
    path = "/api/v1/namespaces/a/pods/p/eviction"
    budget = status(429, "TooManyRequests", "budget", **{"Retry-After": "0"})
    desk.answer("POST", path, budget, web.json_response(OK))
    with pytest.raises(errors.TooManyRequestsError) as caught:
        await client.evict("p", namespace="a")
    assert caught.value.retry_after_s == 0


async def test_a_watch_yields_events_of_any_size(desk: Desk, client: Client) -> None:
    big: dict[str, Any] = {"metadata": {"name": "p", "resourceVersion": "5"}, "x": "y" * 3_000_000}
    desk.tell("ADDED", big)
    desk.tell("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    desk.feed.put_nowait(b'{"type": "MODI')
    desk.feed.put_nowait(b'FIED", "object": {}}\n{"type": "DELETED", "object": {}}\n{"cut')
    desk.end_watch()
    async with aclosing(client.watch(PODS, resource_version="4")) as stream:
        events = [event async for event in stream]
    assert [event.type for event in events] == [
        EventType.OPENED,
        EventType.ADDED,
        EventType.BOOKMARK,
        EventType.MODIFIED,
        EventType.DELETED,
    ]
    assert events[1].item == big
    assert desk.watches == ["4"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            orjson.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}),
            errors.GoneError,
        ),
        (
            orjson.dumps({"type": "ERROR", "object": {"code": 500, "message": "no"}}),
            errors.ServerError,
        ),
        (b"{}", errors.UnreachableError),
        (b'{"type": "ERROR", "object": 3}', errors.UnreachableError),
        (b'{"type": "ODD", "object": {}}', errors.UnreachableError),
        (b"garbage", errors.UnreachableError),
    ],
)
async def test_an_error_inside_a_watch_is_raised_as_its_class(
    desk: Desk, client: Client, line: bytes, expected: type[errors.ApiError]
) -> None:
    desk.feed.put_nowait(line + b"\n")
    async with aclosing(client.watch(PODS)) as stream:
        assert (await anext(stream)).type is EventType.OPENED
        with pytest.raises(expected):
            await anext(stream)
