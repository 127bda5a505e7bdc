"""Assignment of devices when pods are admitted, and refusals."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from sharing.cluster.client import PatchType
from sharing.cluster.kind import EVENTS, NODES, PODS
from tests.support.kubelet_bench import SHARE, Bench, bench, container, pod


def message(item: dict[str, Any]) -> str:
    return str(item["status"].get("message"))


async def test_a_pod_gets_as_many_devices_as_it_asks_for(node: Bench) -> None:
    plugin = await node.plugin("a b c")
    await node.run(pod("p", shares=2))
    held = node.holding("p")
    assert len(held) == 2
    assert plugin.allocated == [list(held)]
    await node.run(pod("q", shares=1))
    assert not set(held) & set(node.holding("q"))


async def test_app_containers_reuse_devices_of_init_containers_but_not_of_sidecars(
    node: Bench,
) -> None:
    plugin = await node.plugin("a b c d")
    init = [
        container("first", 1),
        container("second", 1),
        container("side", 1, restartPolicy="Always"),
    ]
    await node.run(pod("p", shares=1, init=init))
    first, second = node.holding("p", "first"), node.holding("p", "second")
    side, main = node.holding("p", "side"), node.holding("p")
    assert first == second == side, "the sidecar takes what the init containers have done with"
    assert main != side, "and keeps it"
    assert len(plugin.allocated) == 4, "each container is asked for, reuse or not"
    assert (await node.pod_resources())["p"] == {"main": list(main), "side": list(side)}


async def test_two_app_containers_never_share_a_reused_device(node: Bench) -> None:
    await node.plugin("a b")
    item = pod("p", shares=1, init=[container("init", 1)])
    item["spec"]["containers"].append(container("other", 1))
    await node.run(item)
    assert sorted(node.holding("p") + node.holding("p", "other")) == ["a", "b"]


async def test_the_plugins_preference_is_asked_for_and_followed(node: Bench) -> None:
    plugin = await node.plugin("a b c d", prefer=lambda available, _, size: available[-size:])
    await node.run(pod("p", shares=2))
    assert node.holding("p") == ("c", "d")
    assert plugin.preferred == [(["a", "b", "c", "d"], [], 2)]


async def test_a_preference_for_what_is_not_free_is_ignored(node: Bench) -> None:
    await node.plugin("a b", prefer=lambda *_: ["a", "nonsense"])
    await node.run(pod("p", shares=1))
    await node.run(pod("q", shares=1))
    assert (node.holding("p"), node.holding("q")) == (("a",), ("b",))


async def test_a_failing_preference_fails_the_pod(node: Bench) -> None:
    def fail(*_: object) -> list[str]:
        raise RuntimeError("no opinion")

    await node.plugin("a", prefer=fail)
    failed = await node.run(pod("p", shares=1), "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert "no opinion" in message(failed)


async def test_numa_alignment_takes_the_devices_of_one_node(short_dir: Path) -> None:
    async with bench(short_dir, align_numa=True) as node:
        await node.plugin("a b c d", numa={"a": 0, "b": 1, "c": 1, "d": 0})
        await node.run(pod("one", shares=1))
        await node.run(pod("two", shares=2))
        assert node.holding("two") == ("b", "c")


async def test_a_failing_allocate_fails_the_pod_for_good_with_the_plugins_words(
    node: Bench,
) -> None:
    plugin = await node.plugin("a", allocate_error="share a is broken")
    failed = await node.run(pod("p", shares=1), "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert message(failed) == (
        "Pod was rejected: Allocate failed due to rpc error: code = Internal "
        "desc = share a is broken, which is unexpected"
    )
    assert await node.pod_resources() == {}
    plugin.allocate_error = ""
    await node.run(pod("q", shares=1))
    assert (await node.client.get(PODS, "p", namespace="default"))["status"]["phase"] == "Failed"


async def test_a_refusal_is_told_in_an_event(node: Bench) -> None:
    await node.plugin("a", allocate_error="no")
    await node.run(pod("p", shares=1), "Failed")
    surface = node.kubelet._surface
    assert surface is not None
    await surface.events.drain()
    events = await node.client.list(EVENTS, namespace="default")
    told = [(one["reason"], one["type"]) for one in events["items"]]
    assert ("UnexpectedAdmissionError", "Warning") in told


async def test_too_few_devices_fail_the_pod_that_was_bound_past_the_scheduler(
    node: Bench,
) -> None:
    await node.plugin({"a": "Healthy", "b": "Unhealthy"})
    await node.run(pod("p", shares=1))
    failed = await node.run(pod("q", shares=1), "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert f"unavailable for {SHARE}. Requested: 1, Available: 0" in message(failed)


async def test_a_resource_without_plugin_that_runs_short_is_out_of(node: Bench) -> None:
    milli = "gpu.sharing/milli-gpu"
    patch = {"status": {"capacity": {milli: "300"}}}
    await node.client.patch(
        NODES, "n1", patch, patch_type=PatchType.STRATEGIC, subresource="status"
    )
    await node.until_node(lambda item: item["status"]["allocatable"].get(milli) == "300")
    await node.run(pod("p", shares=250, resource=milli))
    failed = await node.run(pod("q", shares=250, resource=milli), "Failed")
    assert failed["status"]["reason"] == f"OutOf{milli}"
    assert message(failed) == (
        f"Pod was rejected: Node didn't have enough resource: {milli}, requested: 250, "
        "used: 250, capacity: 300"
    )


async def test_a_withdrawn_resource_is_out_of_and_an_unknown_one_is_not_checked(
    node: Bench,
) -> None:
    plugin = await node.plugin("a")
    await plugin.show()
    await node.until_offer(0, 0)
    failed = await node.run(pod("p", shares=1), "Failed")
    assert "no healthy devices present" in message(failed)
    # Somebody's cluster-level resource: the scheduler's business alone.
    await node.run(pod("q", shares=1, resource="elsewhere.com/thing"))


async def test_a_pod_that_does_not_select_the_node_is_refused(node: Bench) -> None:
    failed = await node.run(pod("p", nodeSelector={"pool": "other"}), "Failed")
    assert failed["status"]["reason"] == "NodeAffinity"


async def test_a_plugin_that_hangs_holds_up_admission_of_all_pods(node: Bench) -> None:
    plugin = await node.plugin("a b")
    plugin.allocate_gate = asyncio.Event()
    await node.create(pod("p", shares=1))
    await node.create(pod("q"))
    # Both are seen; neither gets on while Allocate of the first is pending.
    assert (await node.client.get(PODS, "q", namespace="default"))["status"]["phase"] == "Pending"
    plugin.allocate_gate.set()
    await node.until_phase("p", "Running")
    await node.until_phase("q", "Running")


async def test_deleting_a_pod_gives_its_devices_back(node: Bench) -> None:
    await node.plugin("a")
    for _ in range(3):
        await node.run(pod("p", shares=1))
        assert node.holding("p") == ("a",)
        await node.delete("p")
        assert await node.pod_resources() == {}


async def test_a_pod_removed_by_force_gives_its_devices_back(node: Bench) -> None:
    await node.plugin("a")
    await node.run(pod("p", shares=1))
    await node.client.delete(PODS, "p", namespace="default", grace_s=0)
    await node.until_gone("p")
    await node.run(pod("p", shares=1))
    assert node.holding("p") == ("a",)


async def test_devices_return_to_pods_that_come_later(node: Bench) -> None:
    plugin = await node.plugin("a")
    await plugin.show(a="Unhealthy")
    await node.until_offer(1, 0)
    assert (await node.run(pod("early", shares=1), "Failed"))["status"]["reason"]
    await plugin.show(a="Healthy")
    await node.until_offer(1, 1)
    await node.run(pod("late", shares=1))


@pytest.mark.parametrize("seed", range(4))
async def test_no_history_hands_one_device_to_two_pods(node: Bench, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"d{n}" for n in range(5)]
    plugin = await node.plugin(" ".join(names))
    present: dict[str, int] = {}
    with_init: set[str] = set()
    for step in range(60):
        match chance.choice(("create", "create", "delete", "health", "finish", "restart")):
            case "create":
                name = f"p{step}"
                item = pod(name, shares=chance.randint(1, 3), restartPolicy="Never")
                if chance.random() < 0.3:
                    with_init.add(name)
                    item["spec"]["initContainers"] = [container("init", chance.randint(1, 2))]
                await node.create(item)
                done = await node.until_pod(
                    name, lambda one: one["status"].get("phase") in {"Running", "Failed"}
                )
                if done["status"]["phase"] == "Running":
                    present[name] = int(item["spec"]["containers"][0]["resources"]["limits"][SHARE])
            case "delete" if present:
                name = chance.choice(sorted(present))
                del present[name]
                await node.delete(name)
            case "finish" if present:
                name = chance.choice(sorted(present))
                del present[name]
                await node.kubelet.finish("default", name, exit_code=chance.randint(0, 1))
                await node.until_pod(name, lambda one: one["status"]["phase"] != "Running")
            case "health":
                health = {one: chance.choice(("Healthy", "Unhealthy")) for one in names}
                await plugin.show(**health)
                await node.until_offer(5, sum(one == "Healthy" for one in health.values()))
            case "restart" if chance.random() < 0.3:
                await node.kubelet.restart()
                for name in [one for one in sorted(present) if one in with_init]:
                    # kubernetes#138446, see test_restarts.
                    await node.until_phase(name, "Failed")
                    del present[name]
                await plugin.close()
                plugin = await node.plugin(plugin.devices)
            case _:
                pass
        told = await node.pod_resources()
        devices = [id_ for inner in told.values() for id_ in inner["main"]]
        assert len(devices) == len(set(devices)), "a device was given twice"
        assert {name: len(inner["main"]) for name, inner in told.items()} == present
