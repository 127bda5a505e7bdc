"""The controller against a real API server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES, NAMESPACES, SHARING_PROFILES
from sharing.controller.controller import Controller, ControllerSettings
from sharing.controller.election import Election, LeaseSettings
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.simulator import operate
from tests.support.agent_bench import NodeBench, node_bench

LEASE = LeaseSettings(namespace="default", duration_s=1.0, renew_s=0.5, retry_s=0.05)


def condition(item: dict[str, Any] | None) -> dict[str, Any]:
    found = ((item or {}).get("status") or {}).get("conditions", [])
    return next((one for one in found if one["type"] == "Ready"), {})


async def test_a_layout_reaches_the_node_and_says_so() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.start_agent()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}}, name="a")
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})

        await node.until(
            node.layouts,
            lambda: condition(node.layouts.get("a")).get("reason") == "Applied",
            lambda: node.layouts.get("a"),
        )


async def test_a_layout_that_no_board_can_have_says_why() -> None:
    async with node_bench("1xL4-24GB") as node:
        await node.start_controller()
        await node.start_agent()
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 1}}, name="a")

        await node.until(
            node.layouts,
            lambda: "has no MIG" in condition(node.layouts.get("a")).get("message", ""),
            lambda: node.layouts.get("a"),
        )
        assert condition(node.layouts.get("a"))["status"] == "False"
        assert node.allocatable() == {"nvidia.com/gpu": 1}


async def test_a_spec_written_by_hand_stays() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.start_agent()
        await node.until_served()
        gpu = {
            "uuid": node.status.gpus[0].uuid,
            "layout": {"mode": "time-slicing", "sizes": {"1of8": 8}},
        }
        await node.client.patch(GPU_NODES, "n1", {"spec": {"gpus": [gpu]}})
        await node.until_allocatable({"gpu.sharing/timeslice-1of8": 8})

        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of2": 2}}, name="a")
        await node.until(
            node.layouts,
            lambda: condition(node.layouts.get("a")).get("reason") == "WrittenByHand",
            lambda: node.layouts.get("a"),
        )
        assert node.allocatable() == {"gpu.sharing/timeslice-1of8": 8}


async def test_a_pod_leaves_a_faulty_gpu_where_its_profile_says_so() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.start_agent()
        profile = {
            "apiVersion": "gpu.sharing/v1alpha1",
            "kind": "SharingProfile",
            "metadata": {"name": "strict"},
            "spec": {"mode": "exclusive", "onFault": "evict"},
        }
        await node.client.create(SHARING_PROFILES, profile)
        label = {"metadata": {"labels": {"gpu.sharing/profile": "strict"}}}
        await node.client.patch(NAMESPACES, "default", label)
        await node.run_pod("train", "nvidia.com/gpu")
        status = await node.until_status(
            lambda s: any(share.holders for gpu in s.gpus for share in gpu.shares)
        )
        (index,) = [gpu.index for gpu in status.gpus if gpu.shares[0].holders]

        node.store().change(
            lambda machine: operate.report_xid(
                machine, str(index), 48, recovery=RecoveryAction.GPU_RESET
            )
        )

        await node.until(node.pods, lambda: node.phase("train") == "", lambda: "still there")
        await node.until_allocatable({"nvidia.com/gpu": 1})
        assert (await node.run_pod("again", "nvidia.com/gpu"))["status"]["phase"] == "Running"


async def test_one_of_two_controllers_leads_and_the_other_takes_over() -> None:
    async with node_bench("1xH100-80GB") as node, AsyncExitStack() as stack:
        first, one = await _candidate(node, stack, "one")
        async with asyncio.timeout(5):
            await first.leading.wait()
        second, two = await _candidate(node, stack, "two")
        assert not second.leading.is_set()

        one.cancel()
        async with asyncio.timeout(5):
            await second.leading.wait()
        two.cancel()
        await asyncio.gather(one, two, return_exceptions=True)


async def test_a_lease_of_a_dead_leader_is_taken_after_its_duration() -> None:
    async with node_bench("1xH100-80GB") as node:
        dead = Election(node.client, "dead", LEASE)
        await dead.win()

        async with asyncio.timeout(5):
            await Election(node.client, "alive", LEASE).win()
            await dead.keep()  # notices that it lost


async def _candidate(
    node: NodeBench, stack: AsyncExitStack, name: str
) -> tuple[Controller, asyncio.Task[None]]:
    controller = Controller(ControllerSettings(identity=name, lease=LEASE), node.client)
    task = asyncio.create_task(controller.run())
    stack.callback(task.cancel)
    async with asyncio.timeout(5):
        await controller.ready.wait()
    return controller, task


async def test_a_broken_layout_is_told_of_and_a_good_one_goes_on() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.start_agent()
        broken = {
            "apiVersion": "gpu.sharing/v1alpha1",
            "kind": "GPULayout",
            "metadata": {"name": "broken"},
            "spec": {"gpus": [{"gpus": "9-1", "mode": "exclusive"}]},
        }
        await node.client.create(GPU_LAYOUTS, broken)
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}}, name="a")

        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        await node.until(
            node.layouts,
            lambda: condition(node.layouts.get("broken")).get("reason") == "Invalid",
            lambda: node.layouts.get("broken"),
        )
