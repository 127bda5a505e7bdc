"""Writers that meet: nothing is lost, and readers see one history."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from embedded.apiserver import ApiServer
from embedded.apiserver.store import Change, RevisionConflictError, Store
from tests.support.apiserver import PODS, Client, config_map, pod
from tests.support.apiserver_webhook import Webhook, allow, configuration, rule

MAPS = "/api/v1/namespaces/default/configmaps"
CONFIGS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


async def test_patches_of_different_fields_all_land(api: Client) -> None:
    """GuaranteedUpdate: a patch that lost the race is applied to the newer object."""
    await api.made(MAPS, config_map("m"))
    changes = [api.patch(f"{MAPS}/m", {"data": {f"k{n}": "v"}}) for n in range(20)]
    replies = await asyncio.gather(*changes)
    assert {reply.code for reply in replies} == {200}
    assert len((await api.get(f"{MAPS}/m")).body["data"]) == 21


async def test_of_writers_with_one_revision_exactly_one_wins(api: Client) -> None:
    made = await api.made(MAPS, config_map("m"))
    wanted = [{**made, "data": {"winner": str(n)}} for n in range(10)]
    replies = await asyncio.gather(*(api.put(f"{MAPS}/m", body) for body in wanted))
    assert sorted(reply.code for reply in replies) == [200] + [409] * 9


async def test_an_update_during_a_slow_webhook_is_not_lost(api: Client, hook: Webhook) -> None:
    """The webhook sees the object again when somebody else was faster."""
    await api.made(MAPS, config_map("m"))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(review: Any) -> Any:
        if "slow" in review["request"]["object"]["data"]:
            entered.set()
            await leave.wait()
        return allow(review)

    hook.answers["/m"] = slow
    rules = [rule("configmaps", operations=("UPDATE",))]
    await api.made(CONFIGS, configuration(hook.entry(rules=rules)))
    waiting = asyncio.create_task(api.patch(f"{MAPS}/m", {"data": {"slow": "1"}}))
    await asyncio.wait_for(entered.wait(), 5)
    assert (await api.patch(f"{MAPS}/m", {"data": {"quick": "1"}})).code == 200
    leave.set()
    reply = await asyncio.wait_for(waiting, 5)
    assert reply.body["data"] == {"a": "1", "slow": "1", "quick": "1"}
    assert len(hook.reviews()) == 3


async def test_of_two_schedulers_one_binds(api: Client) -> None:
    await api.made(PODS, pod())
    bindings = [{"target": {"kind": "Node", "name": f"n{n}"}} for n in range(5)]
    replies = await asyncio.gather(*(api.create(f"{PODS}/p/binding", b) for b in bindings))
    assert sorted(reply.code for reply in replies) == [201] + [409] * 4


async def test_a_name_is_given_once(api: Client, hook: Webhook) -> None:
    """Two creations that were in admission at the same time."""
    barrier = asyncio.Barrier(2)

    async def meet(review: Any) -> Any:
        async with asyncio.timeout(5):
            await barrier.wait()
        return allow(review)

    hook.answers["/m"] = meet
    await api.made(CONFIGS, configuration(hook.entry()))
    replies = await asyncio.gather(*(api.create(PODS, pod()) for _ in range(2)))
    assert sorted(reply.code for reply in replies) == [201, 409]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("abc"), st.integers(0, 5)),
    max_size=30,
)


@given(_STEPS, st.integers(0, 30))
def test_a_list_and_what_followed_it_give_the_present(steps: list[Any], cut: int) -> None:
    """The contract of list and watch, over any history of writes."""
    store = Store()
    seen: dict[str, Any] = {}
    revision = store.revision
    for index, (what, name, value) in enumerate(steps):
        if index == cut:
            seen = {obj["metadata"]["name"]: obj for obj in store.objects("x")}
            revision = store.revision
        key = ("", name)
        if what == "put":
            store.put("x", key, {"metadata": {"name": name}, "value": value})
        elif store.get("x", "", name) is not None:
            store.remove("x", key)
    subscription = store.subscribe("x", revision)
    last = revision
    while not subscription.queue.empty():
        event = subscription.queue.get_nowait()
        assert event is not None
        assert event.revision > last
        last = event.revision
        name = event.obj["metadata"]["name"]
        assert (event.change is Change.ADDED) == (name not in seen)
        if event.change is Change.DELETED:
            del seen[name]
        else:
            seen[name] = event.obj
    assert seen == {obj["metadata"]["name"]: obj for obj in store.objects("x")}


def test_a_demanded_revision_must_be_current() -> None:
    store = Store()
    made = store.put("x", ("", "a"), {"metadata": {"name": "a"}}, expected=0)
    revision = int(made["metadata"]["resourceVersion"])
    store.put("x", ("", "a"), {"metadata": {"name": "a"}}, expected=revision)
    for expected in (0, revision):
        try:
            store.put("x", ("", "a"), {"metadata": {"name": "a"}}, expected=expected)
        except RevisionConflictError:
            continue
        raise AssertionError(f"revision {expected} was accepted")


async def test_a_service_can_be_named_to_a_running_server(
    server: ApiServer, api: Client, hook: Webhook
) -> None:
    server.serve_service("system", "gpu-sharing", "127.0.0.1", hook.port)
    service = {"name": "gpu-sharing", "namespace": "system", "path": "/m"}
    config = {"service": service, "caBundle": hook.bundle}
    await api.made(CONFIGS, configuration(hook.entry(clientConfig=config)))
    await api.made(PODS, pod())
    assert len(hook.requests) == 1
