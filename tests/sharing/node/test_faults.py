"""Faults on a whole node: what the kubelet, GPUNode, Node, Events and metrics say of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from sharing.api.node import GpuNodeStatus
from sharing.cluster.kind import EVENTS, GPU_NODES
from sharing.node.agent import Agent
from sharing.node.health import HealthPolicy
from sharing.node.metrics import HealthMetrics
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.simulator import ageing, operate
from tests.support.agent_bench import DEADLINE_S, QUICK_HEALTH, NodeBench, node_bench

SLOW = HealthPolicy(quiet_s=3600.0)
"""Nothing heals while a test looks at it."""


def do(node: NodeBench, step: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return node.store().change(lambda machine: step(machine, *arguments, **options))


def condition(node: NodeBench) -> dict[str, Any]:
    item = node.nodes.get("n1") or {}
    found = item["status"].get("conditions", [])
    return next((one for one in found if one["type"] == "GPUHealthy"), {})


async def events(
    node: NodeBench, reason: str, kind: str = "Node", count: int = 1
) -> list[dict[str, Any]]:
    """The events of a reason, once there are so many."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            listed = await node.client.list(EVENTS)
            found = [
                one
                for one in listed["items"]
                if one["reason"] == reason and one["involvedObject"]["kind"] == kind
            ]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def _took_in(generation: int, status: GpuNodeStatus) -> bool:
    return (status.observed_generation or 0) >= generation


def measured(agent: Agent) -> str:
    registry = CollectorRegistry()
    registry.register(HealthMetrics(lambda: agent.report, agent.infirmary))
    return generate_latest(registry).decode()


async def test_everything_that_tells_of_health_carries_gpu_xid_action_and_since_when() -> None:
    async with node_bench("2xH100-80GB") as node:
        agent = await node.start_agent(health=SLOW)
        await node.until(
            node.nodes, lambda: condition(node).get("status") == "True", lambda: condition(node)
        )
        uuid = node.status.gpus[1].uuid

        do(node, operate.report_xid, "1", 119)

        status = await node.until_status(lambda s: not s.gpus[1].health.healthy)
        health = status.gpus[1].health
        assert (health.state, health.reason, health.xid) == ("unhealthy", "Xid119", 119)
        assert (health.action, bool(health.since)) == ("RESET_GPU", True)
        told = next(one for one in status.conditions if one.type == "Healthy")
        await node.until(
            node.nodes, lambda: condition(node).get("status") == "False", lambda: condition(node)
        )
        (event,) = await events(node, "GpuUnhealthy")
        for text in (told.message, condition(node)["message"], event["message"]):
            assert f"GPU 1 ({uuid})" in text
            assert "XID 119: GSP RPC time-out" in text
            assert "RESET_GPU: reset the GPU while nothing uses it" in text
            assert f"since {health.since}" in text
        metrics = measured(agent)
        assert f'gpu_sharing_gpu_healthy{{board="H100-80GB",gpu="{uuid}",index="1"}} 0.0' in metrics
        assert f'gpu_sharing_gpu_xids_total{{gpu="{uuid}",reaction="act",xid="119"}} 1.0' in metrics
        assert 'action="RESET_GPU"' in metrics
        kinds = {one["type"] for one in (node.nodes.get("n1") or {})["status"]["conditions"]}
        assert "Ready" in kinds  # the kubelet's own conditions stay


async def test_the_kubelet_hears_of_a_fault_within_a_second_and_of_all_its_shares() -> None:
    """NVIDIA/k8s-device-plugin#1929: one of the replicas, or none, became unhealthy."""
    async with node_bench("4xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of8": 8}})
        await node.start_agent(health=SLOW)
        await node.until_allocatable({"gpu.sharing/timeslice-1of8": 32})

        took = []
        for gpu in range(3):
            start = time.monotonic()
            do(node, operate.report_xid, str(gpu), 95)
            await node.until_allocatable({"gpu.sharing/timeslice-1of8": 24 - 8 * gpu})
            took.append(time.monotonic() - start)

        assert min(took) < 1.0  # the others share the machine with other tests


async def test_a_contained_error_of_one_mig_instance_takes_out_that_instance_alone() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 3}})
        await node.start_agent(health=SLOW)
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 3})
        victim = node.machine().gpus[0].instances[1]

        for _ in range(2):
            do(node, operate.report_xid, "0", 94, gi_id=victim.id)
        do(node, operate.report_xid, "0", 13)  # told last, so that the others are taken in
        agent = node.agent
        assert agent is not None
        await node.until(
            node.nodes,
            lambda: condition(node).get("reason") == "GpusSuspect",
            lambda: condition(node),
        )
        assert node.allocatable() == {"nvidia.com/mig-1g.10gb": 3}

        do(node, operate.report_xid, "0", 94, gi_id=victim.id)
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        status = await node.until_status(
            lambda s: sum(one.fault is not None for one in s.gpus[0].shares) == 1
        )
        (ill,) = [one for one in status.gpus[0].shares if one.fault is not None]
        assert ill.id.endswith(f"-{victim.start}")
        assert ill.fault is not None
        assert (ill.fault.xid, ill.fault.action) == (94, "RESTART_APP")
        assert status.gpus[0].health.healthy
        told = next(one for one in status.conditions if one.type == "Healthy")
        assert (told.status, told.reason) == ("False", "InstancesUnhealthy")
        assert f"MIG instance mig-1g.10gb-{victim.start}" in told.message or (
            f"MIG instance 1g.10gb-{victim.start}" in told.message
        )

        do(node, operate.report_xid, "0", 48, gi_id=victim.id)  # that one is the whole GPU's
        await node.until_allocatable({})


async def test_reasons_survive_a_restart_and_a_reset_heals() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent(health=QUICK_HEALTH)
        await node.until_allocatable({"nvidia.com/gpu": 1})
        do(node, operate.report_xid, "0", 48, recovery=RecoveryAction.GPU_RESET)
        await node.until_allocatable({})
        before = (await node.until_status(lambda s: not s.gpus[0].health.healthy)).gpus[0].health
        await node.stop("agent")

        await node.start_agent(health=QUICK_HEALTH, until_ready=False)
        assert node.agent is not None
        await node.until_event(node.agent.ready, node.tasks["agent"])
        after = node.status.gpus[0].health
        assert (after.reason, after.xid, after.since) == (before.reason, 48, before.since)
        assert node.allocatable() == {}

        do(node, operate.reset, "0")
        await node.until_allocatable({"nvidia.com/gpu": 1})
        status = await node.until_status(lambda s: s.gpus[0].health.healthy)
        assert status.gpus[0].health.state == "recovered"
        assert len(await events(node, "GpuRecovered")) == 1


async def test_heat_and_rows_are_seen_at_the_next_look_and_a_cool_gpu_comes_back() -> None:
    async with node_bench("3xH100-80GB") as node:
        await node.start_agent(health=QUICK_HEALTH)
        await node.until_allocatable({"nvidia.com/gpu": 3})
        do(node, ageing.heat, "0", 92)
        do(node, ageing.remap_rows, "1", pending=True)
        do(node, ageing.remap_rows, "2", failed=True)
        do(node, ageing.memory_errors, "1", corrected=1)  # an event: a reason to look

        await node.until_allocatable({"nvidia.com/gpu": 1})
        status = await node.until_status(lambda s: s.gpus[1].health.state == "suspect")
        assert [gpu.health.reason for gpu in status.gpus] == [
            "Overheated",
            "RowRemapPending",
            "RowRemapFailure",
        ]
        assert "92 of 90 degrees" in status.gpus[0].health.message

        do(node, ageing.heat, "0", 87)  # not cool enough
        do(node, ageing.remap_rows, "2")
        await node.until_allocatable({"nvidia.com/gpu": 2})
        assert not node.status.gpus[0].health.healthy
        do(node, ageing.heat, "0", 60)
        await node.until_allocatable({"nvidia.com/gpu": 3})


async def test_an_application_fault_under_mps_is_told_to_the_co_tenants_and_the_gpu_stays() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of4": 4}})
        await node.start_agent(health=SLOW)
        await node.until_allocatable({"gpu.sharing/mps-1of4": 4})
        for name in ("one", "two"):
            await node.run_pod(name, "gpu.sharing/mps-1of4")

        def held(status: GpuNodeStatus) -> bool:
            return sum(bool(share.holders) for share in status.gpus[0].shares) == 2

        await node.until_status(held)
        do(node, operate.report_xid, "0", 31)

        told = await events(node, "MpsClientsEnded", kind="Pod", count=2)
        assert sorted(one["involvedObject"]["name"] for one in told) == ["one", "two"]
        assert all("XID 31 (memory page fault)" in one["message"] for one in told)
        uids = {
            (node.pods.get(n, namespace="default") or {})["metadata"]["uid"] for n in ("one", "two")
        }
        assert {one["involvedObject"]["uid"] for one in told} == uids
        assert node.status.gpus[0].health.healthy


async def test_a_cordon_taken_back_lets_a_gpu_in_that_flapped() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.start_agent(health=SLOW)
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        do(node, operate.report_xid, "0", 95, recovery=RecoveryAction.NONE)
        await node.until_allocatable({})

        for cordoned in (True, False):
            spec = (node.gpu_nodes.get("n1") or {})["spec"]
            spec["gpus"][0]["cordoned"] = cordoned
            item = await node.client.patch(GPU_NODES, "n1", {"spec": spec})
            generation = item["metadata"]["generation"]
            await node.until_status(partial(_took_in, generation))

        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        assert node.status.gpus[0].health.state == "healthy"


async def test_a_gpu_that_never_answered_is_named_in_the_condition_and_asked_again() -> None:
    async with node_bench("2xH100-80GB") as node:
        do(node, operate.lose, "1")
        await node.start_agent(health=SLOW)
        await node.until_allocatable({"nvidia.com/gpu": 1})

        await node.until(
            node.nodes, lambda: condition(node).get("status") == "False", lambda: condition(node)
        )
        assert "GPU 1: " in condition(node)["message"]
        assert "GPU_IS_LOST" in condition(node)["message"]

        do(node, operate.reset, "1")
        await node.until_allocatable({"nvidia.com/gpu": 2})
