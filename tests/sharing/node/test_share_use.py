"""What pods use of their shares, on simulated GPUs behind a real agent, kubelet and API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from sharing.cluster.kind import EVENTS, NAMESPACES, SHARING_PROFILES
from sharing.node.agent import Agent
from sharing.node.excess import ExcessPolicy
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import ProcessKind
from sharing.timeslice import TimeSlice
from tests.support.agent_bench import DEADLINE_S, NodeBench, node_bench

SLICED = {"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}}
SHARE = "gpu.sharing/timeslice-1of4"
AT_ONCE = ExcessPolicy(grace_s=0.0)


def run_process(node: NodeBench, uid: str, memory_mib: int, **more: object) -> int:
    """A process of a pod on the first GPU, as the driver and the kernel show it; its pid."""
    cgroup = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/crio-{'a' * 64}.scope"
    started = node.store().change(
        lambda machine: operate.start_process(
            machine,
            "0",
            memory_mib=memory_mib,
            cgroup=cgroup,
            **more,  # type: ignore[arg-type]
        )
    )
    return started.pid


async def sliced(node: NodeBench, excess: ExcessPolicy = AT_ONCE) -> str:
    """Four shares, one of them held by a running pod; its uid."""
    await node.start_controller()
    await node.layout(SLICED)
    await node.start_agent(excess=excess)
    await node.until_allocatable({SHARE: 4})
    pod = await node.run_pod("train", SHARE)
    return str(pod["metadata"]["uid"])


async def until(accept: Callable[[], bool]) -> None:
    """Wait for what the agent knows and does not publish."""
    async with asyncio.timeout(DEADLINE_S):
        while not accept():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)


async def until_slice(agent: Agent, uuid: str, wanted: TimeSlice) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await agent._slices._policy.get(uuid) is not wanted:
            pass  # each question starts a program


async def pod_events(node: NodeBench, reason: str) -> list[str]:
    assert node.agent is not None
    assert node.agent._api is not None
    await node.agent._api.events.drain()
    listed = (await node.client.list(EVENTS))["items"]
    return [
        str(one["message"])
        for one in listed
        if one["reason"] == reason and one["involvedObject"]["kind"] == "Pod"
    ]


async def test_a_pod_above_its_budget_is_told_once_and_shows_in_the_status() -> None:
    async with node_bench("1xH100-80GB") as node:
        uid = await sliced(node)
        pid = run_process(node, uid, 30_000)

        await node.until_status(
            lambda s: any(share.over_budget_since for share in s.gpus[0].shares)
        )
        (said,) = await pod_events(node, "MemoryOverBudget")
        assert "container main uses 30000 MiB" in said
        assert f"{81559 // 4} MiB" in said
        assert node.agent is not None
        (use,) = node.agent.report.accounts.uses.values()
        assert (use.pids, use.memory_mib) == ((pid,), 30_000)

        node.store().change(lambda machine: operate.stop_process(machine, pid))
        await node.until_status(
            lambda s: not any(share.over_budget_since for share in s.gpus[0].shares)
        )
        assert node.phase("train") == "Running"


async def test_a_profile_may_have_it_evicted() -> None:
    async with node_bench("1xH100-80GB") as node:
        profile = {
            "apiVersion": "gpu.sharing/v1alpha1",
            "kind": "SharingProfile",
            "metadata": {"name": "strict"},
            "spec": {"mode": "time-slicing", "onMemoryExcess": "evict"},
        }
        await node.client.create(SHARING_PROFILES, profile)
        labels = {"metadata": {"labels": {"gpu.sharing/profile": "strict"}}}
        await node.client.patch(NAMESPACES, "default", labels)
        uid = await sliced(node)
        run_process(node, uid, 30_000)

        await node.until(node.pods, lambda: node.phase("train") != "Running", lambda: "it runs")
        evicted = [
            one
            for one in (await node.client.list(EVENTS))["items"]
            if "(onMemoryExcess: evict)" in one["message"]
        ]
        assert [one["reason"] for one in evicted] == ["MemoryOverBudget"]


async def test_within_its_budget_nobody_is_bothered() -> None:
    async with node_bench("1xH100-80GB") as node:
        uid = await sliced(node)
        run_process(node, uid, 20_000)

        assert node.agent is not None
        agent = node.agent
        await until(lambda: any(use.pids for use in agent.report.accounts.uses.values()))
        assert agent.report.excesses == {}


async def test_a_share_that_an_ended_pods_process_uses_is_kept_until_it_is_gone() -> None:
    async with node_bench("1xH100-80GB") as node:
        uid = await sliced(node)
        pid = run_process(node, uid, 100)
        status = await node.until_status(lambda s: any(one.holders for one in s.gpus[0].shares))
        (held,) = [one.id for one in status.gpus[0].shares if one.holders]

        await node.delete_pod("train")
        await node.until_allocatable({SHARE: 3})
        status = await node.until_status(
            lambda s: any(one.fault is not None for one in s.gpus[0].shares)
        )
        (kept,) = [one for one in status.gpus[0].shares if one.fault is not None]
        assert kept.fault is not None
        assert (kept.id, kept.healthy, kept.fault.reason) == (held, False, "StillInUse")
        assert f"process {pid} of pod {uid}" in kept.fault.message

        node.store().change(lambda machine: operate.stop_process(machine, pid))
        await node.until_allocatable({SHARE: 4})


async def test_a_new_agent_knows_of_it_too() -> None:
    async with node_bench("1xH100-80GB") as node:
        uid = await sliced(node)
        pid = run_process(node, uid, 100)
        await node.until_status(lambda s: any(one.holders for one in s.gpus[0].shares))
        await node.stop("agent")
        await node.delete_pod("train")
        await node.until(node.pods, lambda: node.phase("train") == "", lambda: "it is there")

        await node.start_agent()
        await node.until_allocatable({SHARE: 3})
        node.store().change(lambda machine: operate.stop_process(machine, pid))
        await node.until_allocatable({SHARE: 4})


async def test_where_it_is_asked_for_the_driver_keeps_a_pod_within_its_share() -> None:
    async with node_bench("1xH100-80GB") as node:
        node.store().change(lambda machine: (replace(machine, driver_version="615.10"), None))
        await node.start_controller()
        await node.layout(SLICED)
        await node.start_agent(enforce_memory=True)
        await node.until_allocatable({SHARE: 4})
        pod = await node.run_pod("train", SHARE)
        run_process(node, str(pod["metadata"]["uid"]), 100)

        await until(lambda: bool(node.machine().gpus[0].memory_limits))
        (limit,) = node.machine().gpus[0].memory_limits
        assert limit.cgroup.endswith(f"crio-{'a' * 64}.scope")
        assert limit.soft == limit.hard == (81559 // 4) << 20


async def test_a_driver_without_such_limits_serves_as_before() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(SLICED)
        agent = await node.start_agent(enforce_memory=True)
        await node.until_allocatable({SHARE: 4})
        pod = await node.run_pod("train", SHARE)
        run_process(node, str(pod["metadata"]["uid"]), 100)

        await until(lambda: any(one.pids for one in agent.report.accounts.uses.values()))
        assert node.machine().gpus[0].memory_limits == ()
        assert node.allocatable() == {SHARE: 4}


async def test_mps_clients_are_put_down_to_their_pods() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of2": 2}})
        agent = await node.start_agent()
        await node.until_allocatable({"gpu.sharing/mps-1of2": 2})
        pod = await node.run_pod("serve", "gpu.sharing/mps-1of2")
        for _ in range(2):
            run_process(node, str(pod["metadata"]["uid"]), 500, kind=ProcessKind.MPS)

        await until(lambda: [use.mps_clients for use in agent.report.accounts.uses.values()] == [2])


async def test_under_mps_a_new_pod_waits_until_the_process_of_the_former_is_gone() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of2": 1}})
        agent = await node.start_agent()
        await node.until_allocatable({"gpu.sharing/mps-1of2": 1})
        pod = await node.run_pod("serve", "gpu.sharing/mps-1of2")
        run_process(node, str(pod["metadata"]["uid"]), 500, kind=ProcessKind.MPS)
        await until(lambda: any(one.pids for one in agent.report.accounts.uses.values()))
        await node.delete_pod("serve")
        await until(lambda: bool(agent.report.accounts.lingering))

        binding = replace(agent._listing._told.listed[0], healthy=True)  # type: ignore[union-attr]
        assert "still uses it" in str(agent._listing._why_not_ready(binding))


async def test_the_length_of_turns_follows_the_layout_and_goes_back_with_it() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({**SLICED, "timeSlice": "long"})
        agent = await node.start_agent()
        await node.until_allocatable({SHARE: 4})
        uuid = (await node.until_served()).gpus[0].uuid
        await until_slice(agent, uuid, TimeSlice.LONG)

        await node.layout({"gpus": "all", "mode": "exclusive"})
        await node.until_allocatable({"nvidia.com/gpu": 1})
        await until_slice(agent, uuid, TimeSlice.DEFAULT)
