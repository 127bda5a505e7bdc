"""Lists and watches: consistency, selectors, bookmarks, history."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from embedded.apiserver import ApiServer
from tests.support.apiserver import PODS, Client, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"


def _labelled(name: str, **labels: str) -> dict[str, object]:
    wanted = config_map(name)
    wanted["metadata"]["labels"] = labels
    return wanted


async def test_a_watch_from_nothing_starts_with_what_exists(api: Client) -> None:
    await api.made(MAPS, config_map("a"))
    async with api.watch(MAPS) as watch:
        first = await watch.next()
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
        await api.made(MAPS, config_map("b"))
        assert (await watch.next())["object"]["metadata"]["name"] == "b"


async def test_a_watch_from_a_list_sees_exactly_what_followed(api: Client) -> None:
    await api.made(MAPS, config_map("a"))
    revision = (await api.get(MAPS)).body["metadata"]["resourceVersion"]
    await api.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    await api.delete(f"{MAPS}/a")
    async with api.watch(MAPS, resourceVersion=revision) as watch:
        events = [await watch.next(), await watch.next()]
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert revisions == sorted(revisions)
    assert revisions[0] > int(revision), "a deletion carries a revision of its own"


async def test_an_object_enters_and_leaves_the_sight_of_a_selector(api: Client) -> None:
    await api.made(MAPS, _labelled("a", app="x"))
    async with api.watch(MAPS, labelSelector="app=x", resourceVersion="0") as watch:
        assert (await watch.next())["type"] == "ADDED"
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        assert (await watch.next())["type"] == "DELETED"
        await api.patch(f"{MAPS}/a", {"data": {"k": "v"}})
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
        back = await watch.next()
        assert (back["type"], back["object"]["data"]["k"]) == ("ADDED", "v")


async def test_a_field_selector_finds_the_pods_of_a_node(api: Client) -> None:
    """What every kubelet watches."""
    await api.made(PODS, pod("a"))
    await api.made(PODS, pod("b"))
    async with api.watch("/api/v1/pods", fieldSelector="spec.nodeName=n1") as watch:
        await api.create(f"{PODS}/b/binding", {"target": {"kind": "Node", "name": "n1"}})
        event = await watch.next()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")
    listed = (await api.get("/api/v1/pods", fieldSelector="spec.nodeName=")).body["items"]
    assert [item["metadata"]["name"] for item in listed] == ["a"]


async def test_a_field_that_cannot_be_selected_by_is_a_bad_request(api: Client) -> None:
    reply = await api.get(PODS, fieldSelector="spec.hostname=x")
    assert reply.code == 400
    assert "field label not supported: spec.hostname" in reply.body["message"]


@pytest.mark.parametrize("selector", ["a in b", "=x", "a==b==c", "a,,b c"])
async def test_a_malformed_label_selector_is_a_bad_request(api: Client, selector: str) -> None:
    assert (await api.get(PODS, labelSelector=selector)).code == 400


async def test_history_that_is_gone_is_410_in_the_stream(server: ApiServer, api: Client) -> None:
    made = await api.made(MAPS, config_map("a"))
    await api.made(MAPS, config_map("b"))
    server.store.forget_history()
    async with api.watch(MAPS, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
            "ERROR",
            410,
            "Expired",
        )
        assert await watch.ended()


async def test_history_is_bounded(session: aiohttp.ClientSession) -> None:
    async with ApiServer(history_events=3) as server:
        api = Client(server.url, session)
        first = await api.made(MAPS, config_map("a"))
        for index in range(6):
            await api.made(MAPS, config_map(f"m{index}"))
        async with api.watch(MAPS, resourceVersion=first["metadata"]["resourceVersion"]) as watch:
            assert (await watch.next())["object"]["code"] == 410


async def test_a_revision_from_the_future_is_a_timeout(api: Client) -> None:
    reply = await api.get(MAPS, resourceVersion="999999")
    assert (reply.code, reply.body["reason"]) == (504, "Timeout")
    assert reply.causes[0][1] == "Too large resource version"


async def test_a_revision_that_is_no_number_is_refused_as_upstream_does(api: Client) -> None:
    assert (await api.get(MAPS, watch="true", resourceVersion="x")).code == 500
    assert (await api.get(MAPS, resourceVersion="x")).code == 400


async def test_a_watch_ends_after_its_timeout(api: Client) -> None:
    async with api.watch(MAPS, timeoutSeconds="1", resourceVersion="0") as watch:
        assert await watch.ended()


async def test_initial_events_end_with_a_bookmark(api: Client) -> None:
    """Watch-list: sendInitialEvents with bookmarks closes the list by an annotated bookmark."""
    await api.made(MAPS, config_map("a"))
    query = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    async with api.watch(MAPS, **query) as watch:
        assert (await watch.next())["type"] == "ADDED"
        mark = await watch.next()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["object"]["kind"] == "ConfigMap"


async def test_a_list_in_chunks_is_one_snapshot(api: Client) -> None:
    for name in "abcde":
        await api.made(MAPS, config_map(name))
    first = (await api.get(MAPS, limit="2")).body
    assert first["metadata"]["remainingItemCount"] == 3
    await api.delete(f"{MAPS}/e")
    await api.made(MAPS, config_map("ca"))
    second = (await api.get(MAPS, limit="2", **{"continue": first["metadata"]["continue"]})).body
    third = (await api.get(MAPS, limit="2", **{"continue": second["metadata"]["continue"]})).body
    names = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert names == list("abcde")
    assert "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1


async def test_a_strange_continue_token_is_a_bad_request(api: Client) -> None:
    assert (await api.get(MAPS, limit="2", **{"continue": "zzz"})).code == 400


async def test_a_watcher_that_leaves_is_forgotten(server: ApiServer, api: Client) -> None:
    async with api.watch(MAPS, resourceVersion="0"):
        await api.made(MAPS, config_map("a"))
        assert len(server.store._shelf("configmaps").subscribers) == 1
    async with asyncio.timeout(5):
        while server.store._shelf("configmaps").subscribers:  # noqa: ASYNC110 - polls a server
            await asyncio.sleep(0.01)


async def test_stop_ends_watches(session: aiohttp.ClientSession) -> None:
    async with ApiServer() as server:
        api = Client(server.url, session)
        async with api.watch(MAPS, resourceVersion="0") as watch:
            await server.stop()
            assert await watch.ended()


async def test_a_metadata_only_list_is_partial(api: Client) -> None:
    await api.made(MAPS, config_map("a"))
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    body = (await api.call("GET", MAPS, headers=accept)).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert "data" not in body["items"][0]
