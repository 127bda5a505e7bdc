"""Keys of resources that nobody serves any more leave the Node, and no others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharing.cluster.client import PatchType
from sharing.cluster.kind import NODES
from sharing.node.deadkeys import DeadKeys, empty_keys
from tests.support.agent_bench import NodeBench, node_bench

MIG = "nvidia.com/mig-2g.20gb"
POOL = "team-a.gpu.sharing/mps-1of4"


def test_only_empty_keys_of_shares_are_ours() -> None:
    capacity = {MIG: "0", POOL: "0", "nvidia.com/gpu": "4", "example.com/x": "0", "cpu": "0"}
    assert empty_keys(capacity) == (MIG, POOL)


def test_malformed_names_under_our_prefix_break_nothing() -> None:
    assert empty_keys({"gpu.sharing/mps-1of0": "0", "gpu.sharing/": "0", "": "0"}) == ()


def test_a_key_goes_once_it_was_dead_for_long_enough() -> None:
    keys = DeadKeys(after_s=10)
    assert keys.due([MIG], [], now=100) == ()
    assert not keys.is_due(109)
    assert keys.is_due(110)
    assert keys.due([MIG], [], now=110) == (MIG,)


def test_a_resource_that_is_served_again_meanwhile_starts_anew() -> None:
    keys = DeadKeys(after_s=10)
    keys.due([MIG], [], now=0)
    assert keys.due([MIG], [MIG], now=9) == ()
    assert keys.due([MIG], [], now=10) == ()
    assert keys.due([MIG], [], now=20) == (MIG,)


@given(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_nothing_that_is_served_ever_goes(empty: set[str], served: set[str]) -> None:
    assert not set(DeadKeys(after_s=0).due(empty, served, now=1)) & served


async def resources(node: NodeBench) -> dict[str, Any]:
    status = (await node.client.get(NODES, "n1"))["status"]
    return {
        **status["capacity"],
        **{f"{k} allocatable": v for k, v in status["allocatable"].items()},
    }


async def test_a_resource_that_is_served_no_more_leaves_the_node() -> None:
    async with node_bench("1xH100-80GB") as node:
        old = {MIG: "0", "example.com/x": "0"}
        await node.client.patch(
            NODES, "n1", {"status": {"capacity": old, "allocatable": old}},
            patch_type=PatchType.STRATEGIC, subresource="status",
        )  # fmt: skip
        agent = await node.start_agent(until_ready=False)
        assert agent._api is not None
        agent._api.dead_keys.after_s = 0.0
        await node.until_served()

        def gone() -> bool:
            item = node.nodes.get("n1")
            assert item is not None
            return MIG not in item["status"]["capacity"]

        await node.until(node.nodes, gone, lambda: node.nodes.get("n1"))
        await node.until_allocatable({"nvidia.com/gpu": 1})
        left = await resources(node)
        assert not [name for name in left if name.startswith(MIG)]
        assert left["example.com/x"] == "0"
        assert left["nvidia.com/gpu"] == "1"
