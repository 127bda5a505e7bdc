"""kubernetes#137534: a device is never given to a second pod while the first one lives."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from sharing.cluster.cache import Cache, whole
from sharing.cluster.kind import EVENTS, PODS
from sharing.errors import UnavailableError
from sharing.node.agent import Agent
from sharing.node.checkpoint import Entry, PodName
from sharing.node.doubles import doubles
from sharing.node.held import Hold, Holder
from sharing.node.inquiry import holders, suspects
from sharing.node.podresources import PodResources
from sharing.plugin.admissions import Admissions
from sharing.plugin.proto import podresources_pb2 as api
from sharing.plugin.proto.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from sharing.plugin.tally import Refusal
from tests.support.agent_bench import DEADLINE_S, NodeBench, node_bench

GPU: Final = "nvidia.com/gpu"
WEB: Final = PodName(namespace="ns", name="web")
OLD: Final = PodName(namespace="ns", name="old")
ENTRY: Final = Entry(pod_uid="u1", container="c", resource=GPU, device_ids=("GPU-a", "GPU-b"))
HOLD: Final = Hold(
    device_id="GPU-a", resource=GPU, holder=Holder(namespace="ns", pod="old", container="c")
)


def suspected(*device_ids: str, **known: Any) -> tuple[PodName, ...]:
    known = {"entries": [], "listed": [], "pods": {}} | known
    return suspects(GPU, device_ids, **known)


def test_a_pod_is_suspected_by_the_checkpoint_or_by_the_last_list() -> None:
    pods = {"u1": WEB}

    assert suspected("GPU-b", entries=[ENTRY], pods=pods) == (WEB,)
    assert suspected("GPU-a", listed=[HOLD]) == (OLD,)
    assert suspected("GPU-a", entries=[ENTRY], listed=[HOLD], pods=pods) == (OLD, WEB)


def test_nobody_is_suspected_for_another_device_or_another_resource() -> None:
    assert suspected("GPU-c", entries=[ENTRY], listed=[HOLD], pods={"u1": WEB}) == ()
    assert suspects("r/x", ["GPU-a"], entries=[ENTRY], listed=[HOLD], pods={"u1": WEB}) == ()


@pytest.mark.parametrize("pods", [None, {}], ids=["nobody can tell", "it has ended"])
def test_a_pod_without_a_name_cannot_be_suspected(pods: dict[str, PodName] | None) -> None:
    assert suspected("GPU-a", entries=[ENTRY], pods=pods) == ()


def test_only_what_a_pod_has_now_of_these_devices_counts() -> None:
    assert holders(GPU, ["GPU-a"], [HOLD]) == {"GPU-a": "container c of pod ns/old"}
    assert holders(GPU, ["GPU-b"], [HOLD]) == {}
    assert holders("r/x", ["GPU-a"], [HOLD]) == {}


@pytest.fixture
async def bench() -> AsyncIterator[NodeBench]:
    async with node_bench("2xH100-80GB") as one:
        await one.start_agent()
        await one.until_allocatable({GPU: 2})
        yield one


def device_of(bench: NodeBench, pod: str) -> str:
    uid = bench.pods.get(pod, namespace="default")["metadata"]["uid"]  # type: ignore[index]
    return next(
        holding.devices[0]
        for owner, _, _, holding in bench.kubelet.ledger.entries()
        if owner == uid
    )


async def test_a_kubelet_that_lost_count_is_led_to_what_is_free(bench: NodeBench) -> None:
    await bench.run_pod("first", GPU)
    bench.kubelet.lose_count()

    second = await bench.run_pod("second", GPU)

    assert second["status"]["phase"] == "Running"
    assert device_of(bench, "first") != device_of(bench, "second")


async def test_a_share_that_a_live_pod_holds_is_refused_with_who_holds_it(
    bench: NodeBench,
) -> None:
    for name in ("first", "second"):
        await bench.run_pod(name, GPU)
    bench.kubelet.lose_count()

    third = await bench.run_pod("third", GPU)

    assert third["status"]["phase"] == "Failed"
    message = third["status"]["message"]
    assert "by container main of pod default/" in message
    assert "kubernetes#137534" in message
    assert bench.agent is not None
    assert bench.agent._early.plugins.tally.refusals == {(GPU, Refusal.HELD): 1}


async def test_what_an_ended_pod_held_is_given_on_though_the_checkpoint_names_it_still(
    bench: NodeBench,
) -> None:
    first = await bench.run_pod("first", GPU)
    device = device_of(bench, "first")
    await bench.run_pod("other", GPU)
    path = bench.settings.plugin_dir / "kubelet_internal_checkpoint"
    before = path.read_bytes()
    await bench.delete_pod("first")
    await bench.until(bench.pods, lambda: not bench.phase("first"), lambda: "still there")
    path.write_bytes(before)  # kubelets strike out ended pods at their next assignment only

    second = await bench.run_pod("second", GPU)

    assert first["metadata"]["uid"].encode() in before
    assert second["status"]["phase"] == "Running"
    assert device_of(bench, "second") == device


async def test_pods_come_and_go_rightly_at_a_kubelet_that_always_loses_count() -> None:
    """As many as there are shares, and nobody is refused or shares with another."""
    draw, slices = random.Random(13), "gpu.sharing/timeslice-1of4"
    async with node_bench("1xH100-80GB") as bench:
        await bench.start_controller()
        await bench.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await bench.start_agent()
        await bench.until_allocatable({slices: 4})
        alive: list[str] = []
        for step in range(24):
            if len(alive) == 4 or (alive and draw.random() < 0.4):
                gone = alive.pop(draw.randrange(len(alive)))
                await bench.delete_pod(gone)
                await bench.until(bench.pods, partial(ended, bench, gone), lambda: "still there")
            else:
                bench.kubelet.lose_count()
                pod = await bench.run_pod(f"p{step}", slices)
                assert pod["status"]["phase"] == "Running", pod["status"]
                alive.append(f"p{step}")
            assert len({device_of(bench, name) for name in alive}) == len(alive)


def ended(bench: NodeBench, pod: str) -> bool:
    return not bench.phase(pod)


async def test_a_kubelet_that_does_not_tell_of_one_pod_is_believed_and_the_harm_is_told() -> None:
    async with node_bench("2xH100-80GB", tells_one_pod=False) as bench:
        agent = await bench.start_agent()
        await bench.until_allocatable({GPU: 2})
        await bench.run_pod("first", GPU)
        bench.kubelet.lose_count()

        await bench.run_pod("second", GPU)

        assert device_of(bench, "first") == device_of(bench, "second")
        events = await told_of(bench, "ShareHeldTwice")
        about = {(one["involvedObject"]["kind"], one["involvedObject"]["name"]) for one in events}
        assert about == {("GPUNode", "n1"), ("Pod", "first"), ("Pod", "second")}
        assert all("container main of pod default/first and" in one["message"] for one in events)
        assert metric(agent, "gpu_sharing_shares_held_twice") == 1


def metric(agent: Agent, name: str) -> float:
    return next(
        one.value
        for family in agent.metrics.collect()
        for one in family.samples
        if one.name == name
    )


async def told_of(bench: NodeBench, reason: str) -> list[dict[str, Any]]:
    """The Events of a reason, once there are some of all three objects."""
    async with Cache(bench.client, EVENTS, whole) as events, asyncio.timeout(DEADLINE_S):
        await events.until(
            lambda _: len([1 for one in events.values() if one["reason"] == reason]) > 2
        )
        return [one for one in events.values() if one["reason"] == reason]


def test_one_container_of_several_pods_makes_a_double_and_two_shares_make_none() -> None:
    other = Holder(namespace="ns", pod="young", container="c")
    twice = replace(HOLD, holder=other)
    elsewhere = replace(twice, device_id="GPU-b")
    unnamed = replace(HOLD, holder=None)

    (double,) = doubles([twice, HOLD, HOLD, elsewhere, unnamed])
    assert (double.device_id, double.holders) == ("GPU-a", (HOLD.holder, other))
    assert double.pods == (OLD, PodName(namespace="ns", name="young"))
    assert doubles([HOLD, elsewhere, replace(twice, resource="r/x")]) == ()


class Told(PodResourcesListerServicer):
    """A kubelet that gives these answers to Get, one after the other."""

    def __init__(self, *answers: tuple[grpc.StatusCode, str]) -> None:
        self.answers = list(answers)

    async def Get(  # noqa: N802 - the protocol's name
        self, request: api.GetPodResourcesRequest, context: Any
    ) -> api.GetPodResourcesResponse:
        if self.answers:
            await context.abort(*self.answers.pop(0))
        device = api.ContainerDevices(resource_name=GPU, device_ids=["GPU-a"])
        container = api.ContainerResources(name="c", devices=[device])
        pod = api.PodResources(
            name=request.pod_name, namespace=request.pod_namespace, containers=[container]
        )
        return api.GetPodResourcesResponse(pod_resources=pod)


@asynccontextmanager
async def kubelet_that_says(*answers: tuple[grpc.StatusCode, str]) -> AsyncIterator[PodResources]:
    folder = Path(tempfile.mkdtemp(prefix="gs-"))
    server = grpc.aio.server()
    told = Told(*answers)  # type: ignore[abstract] # nothing but Get is asked here
    add_PodResourcesListerServicer_to_server(told, server)
    server.add_insecure_port(f"unix:{folder}/kubelet.sock")
    await server.start()
    kubelet = PodResources(folder / "kubelet.sock", folder, Admissions())
    try:
        yield kubelet
    finally:
        await kubelet.close()
        await server.stop(None)
        shutil.rmtree(folder)


TOO_OFTEN: Final = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


async def test_a_kubelet_that_others_ask_too_often_is_asked_again() -> None:
    async with kubelet_that_says(TOO_OFTEN, TOO_OFTEN) as kubelet:
        assert await kubelet.holds_of(OLD) == (HOLD,)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([TOO_OFTEN, TOO_OFTEN], "rate limit"),
        ([(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")], "disabled.*1.34"),
    ],
)
async def test_a_kubelet_that_does_not_say_is_told_with_its_own_words(
    answers: list[tuple[grpc.StatusCode, str]], why: str
) -> None:
    async with kubelet_that_says(*answers) as kubelet:
        with pytest.raises(UnavailableError, match=why):
            await kubelet.holds_of(OLD, tries=2)


async def test_a_pod_that_the_kubelet_does_not_have_holds_nothing() -> None:
    gone = (grpc.StatusCode.UNKNOWN, "pod old in namespace ns not found")
    async with kubelet_that_says(gone) as kubelet:
        assert await kubelet.holds_of(OLD) == ()


async def test_a_namesake_of_an_ended_pod_gets_its_share(bench: NodeBench) -> None:
    await bench.run_pod("other", GPU)
    for _ in range(3):
        pod = await bench.run_pod("web-0", GPU)
        assert pod["status"]["phase"] == "Running"
        await bench.client.delete(PODS, "web-0", namespace="default", grace_s=0)
        await bench.until(bench.pods, lambda: not bench.phase("web-0"), lambda: "still there")
