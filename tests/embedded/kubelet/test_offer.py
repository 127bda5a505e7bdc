"""Capacity and allocatable: lists, health, lost plugins, other people's resources."""

from __future__ import annotations

from typing import Any

from sharing.cluster.client import PatchType
from sharing.cluster.kind import NODES, PODS
from tests.support.kubelet_bench import SHARE, Bench, amount, pod

MILLI = "gpu.sharing/milli-gpu"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def ready(node: dict[str, Any]) -> str:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
    return str(conditions.get("Ready"))


async def test_capacity_counts_all_devices_and_allocatable_the_healthy_ones(node: Bench) -> None:
    plugin = await node.plugin({"a": "Healthy", "b": "Unhealthy", "c": "Tired"})
    await node.until_offer(3, 1)
    await plugin.show(a="Healthy", b="Healthy", c="Unhealthy")
    await node.until_offer(3, 2)


async def test_each_list_replaces_the_one_before_and_an_empty_one_withdraws(node: Bench) -> None:
    plugin = await node.plugin("a b c")
    await plugin.show(d="Healthy")
    await node.until_offer(1, 1)
    await plugin.show()
    await node.until_offer(0, 0)


async def test_a_lost_plugin_keeps_capacity_for_the_grace_and_the_key_for_ever(
    node: Bench,
) -> None:
    plugin = await node.plugin("a b")
    await plugin.close()
    await node.until_offer(2, 0)
    await node.clock.until_sleeper(300)
    node.clock.advance(299)
    node.clock.advance(1)
    await node.until_offer(0, 0)
    await node.kubelet.restart()
    await node.until_offer(0, 0)


async def test_a_plugin_that_is_back_within_the_grace_stays(node: Bench) -> None:
    plugin = await node.plugin("a b")
    await plugin.close()
    await node.until_offer(2, 0)
    await node.plugin("a b")
    node.clock.advance(1000)
    await node.run(pod("p", shares=1))
    await node.until_offer(2, 2)


async def test_a_held_device_left_out_of_the_list_lowers_capacity_and_hurts_nobody(
    node: Bench,
) -> None:
    plugin = await node.plugin("a b")
    await node.run(pod("p", shares=1))
    (held,) = node.holding("p")
    await plugin.show(**{one: "Healthy" for one in "ab" if one != held})
    await node.until_offer(1, 1)
    assert node.holding("p") == (held,)
    assert (await node.client.get(PODS, "p", namespace="default"))["status"]["phase"] == "Running"


async def test_what_others_write_into_capacity_survives_and_allocatable_follows(
    node: Bench,
) -> None:
    patch = {"status": {"capacity": {MILLI: "8000"}}}
    await node.client.patch(
        NODES, "n1", patch, patch_type=PatchType.STRATEGIC, subresource="status"
    )

    def milli(item: dict[str, Any]) -> tuple[object, object]:
        status = item["status"]
        return status["capacity"].get(MILLI), status["allocatable"].get(MILLI)

    await node.until_node(lambda item: milli(item) in {("8000", "8000"), ("8k", "8k")})
    await node.plugin("a")
    await node.kubelet.restart(remove_folder=True)
    patch["status"]["capacity"][MILLI] = "5500"
    await node.client.patch(
        NODES, "n1", patch, patch_type=PatchType.STRATEGIC, subresource="status"
    )
    await node.until_node(lambda item: milli(item) == ("5500", "5500"))
    removal = {"status": {"capacity": {MILLI: None}}}
    await node.client.patch(
        NODES, "n1", removal, patch_type=PatchType.STRATEGIC, subresource="status"
    )
    await node.until_node(lambda item: milli(item) == (None, None))


async def test_a_node_is_ready_without_taints_and_marked_when_it_falls_silent(
    node: Bench,
) -> None:
    item = await node.client.get(NODES, "n1")
    assert ready(item) == "True"
    assert not item["spec"].get("taints")
    assert item["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    await node.kubelet.lose()
    lost = await node.client.get(NODES, "n1")
    assert ready(lost) == "Unknown"
    assert {one["key"] for one in lost["spec"]["taints"]} == {"node.kubernetes.io/unreachable"}
    await node.kubelet.start()
    back = await node.client.get(NODES, "n1")
    assert ready(back) == "True"
    assert not back["spec"].get("taints")


async def test_a_stopped_kubelet_leaves_the_nodes_last_numbers(node: Bench) -> None:
    await node.plugin("a b")
    await node.kubelet.stop()
    item = await node.client.get(NODES, "n1")
    assert amount(item, "capacity", SHARE) == amount(item, "allocatable", SHARE) == 2
    assert ready(item) == "True"


async def test_an_own_label_and_a_foreign_taint_survive_a_restart(node: Bench) -> None:
    body = {"metadata": {"labels": {"pool": "x"}}, "spec": {"taints": [TAINT]}}
    await node.client.patch(NODES, "n1", body)
    await node.kubelet.restart()
    item = await node.client.get(NODES, "n1")
    assert item["metadata"]["labels"]["pool"] == "x"
    assert [one["key"] for one in item["spec"]["taints"]] == ["team"]


async def test_health_of_held_devices_is_told_in_the_pods_status(node: Bench) -> None:
    plugin = await node.plugin("a")
    await node.run(pod("p", shares=1))

    def told(item: dict[str, Any]) -> object:
        return item["status"]["containerStatuses"][0].get("allocatedResourcesStatus")

    def saying(health: str) -> object:
        return [{"name": SHARE, "resources": [{"resourceID": "a", "health": health}]}]

    await node.until_pod("p", lambda item: told(item) == saying("Healthy"))
    await plugin.show(a="Unhealthy")
    await node.until_pod("p", lambda item: told(item) == saying("Unhealthy"))
    await plugin.show(a="Healthy")
    await node.until_pod("p", lambda item: told(item) == saying("Healthy"))
    await plugin.show(b="Healthy")
    await node.until_pod("p", lambda item: told(item) == saying("Unhealthy"))
    await plugin.show(a="Healthy")
    await node.until_pod("p", lambda item: told(item) == saying("Healthy"))
    # An empty list does not update it.
    await plugin.show()
    await node.until_offer(0, 0)
    await node.run(pod("later"))
    item = await node.client.get(PODS, "p", namespace="default")
    assert told(item) == saying("Healthy")


async def test_an_amount_beyond_counting_stops_neither_node_nor_pods(node: Bench) -> None:
    patch = {"status": {"capacity": {"other.com/x": "9000000E"}}}
    await node.client.patch(
        NODES, "n1", patch, patch_type=PatchType.STRATEGIC, subresource="status"
    )
    await node.until_node(lambda item: "other.com/x" in item["status"]["allocatable"])
    await node.plugin("a")
    greedy = pod("greedy", main={"resources": {"requests": {"cpu": "9000000E"}}})
    await node.create(greedy)
    await node.run(pod("p", shares=1))
