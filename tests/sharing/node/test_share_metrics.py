"""The metrics of an agent that serves: what they say of a pod is the pod's, and never a card's."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from sharing.catalogue import load
from sharing.node.agent import Agent
from sharing.node.held import Held, Hold, Holder
from sharing.node.plan import Kubelet
from sharing.node.sharemetrics import _by_share, told
from sharing.node.status import NodeReport
from sharing.node.stock import Knowledge, take_stock
from sharing.node.wanted import Wanted
from sharing.nvml.simulator import operate
from sharing.plugin.tally import Refusal
from tests.support.agent_bench import DEADLINE_S, NodeBench, node_bench
from tests.support.nodeworld import bare_gpu
from tests.support.simulated_gpus import with_load

MIB = 1 << 20
SHARE = "gpu.sharing/timeslice-1of4"


def samples(agent: Agent) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What a scrape sees: labels and value by the name of the series."""
    registry = CollectorRegistry()
    registry.register(agent.metrics)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in registry.collect():
        for one in family.samples:
            found.setdefault(one.name, []).append((dict(one.labels), one.value))
    return found


def of(agent: Agent, name: str, **labels: str) -> list[float]:
    listed = samples(agent).get(name, [])
    return [value for had, value in listed if labels.items() <= had.items()]


async def until_seen(agent: Agent, name: str, value: float, **labels: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while value not in of(agent, name, **labels):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)


async def a_pod_at_work(node: NodeBench, **changes: Any) -> tuple[Agent, str]:
    """An agent, and the share of a pod that uses 700 MiB beside a stranger's 5000."""
    await node.start_controller()
    await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
    agent = await node.start_agent(**changes)
    await node.until_allocatable({SHARE: 4})
    pod = await node.run_pod("train", SHARE)
    cgroup = f"/kubepods/pod{pod['metadata']['uid']}/{'c' * 64}"
    for path, memory_mib in ((cgroup, 700), ("/system.slice/exporter.service", 5000)):
        start = partial(operate.start_process, which="0", memory_mib=memory_mib, cgroup=path)
        node.store().change(start)
    status = await node.until_status(lambda s: any(one.holders for one in s.gpus[0].shares))
    (held,) = [one.id for one in status.gpus[0].shares if one.holders]
    return agent, held


async def test_a_share_is_tied_to_its_pod_and_uses_what_the_pod_uses() -> None:
    async with node_bench("1xH100-80GB") as node:
        agent, held = await a_pod_at_work(node)
        await until_seen(agent, "gpu_sharing_share_memory_used_bytes", 700 * MIB, share=held)

        seen = samples(agent)
        (labels,) = [had for had, _ in seen["gpu_sharing_share_info"] if had["pod"]]
        assert labels == {
            "share": held,
            "gpu": node.status.gpus[0].uuid,
            "resource": SHARE,
            "mode": "time-slicing",
            "size": "1of4",
            "pool": "",
            "namespace": "default",
            "pod": "train",
            "container": "main",
        }
        assert len(seen["gpu_sharing_share_info"]) == 4
        assert len(seen["gpu_sharing_share_memory_used_bytes"]) == 1
        limits = [value for _, value in seen["gpu_sharing_share_memory_limit_bytes"]]
        assert limits == [81559 // 4 * MIB] * 4
        assert of(agent, "gpu_sharing_share_over_budget", share=held) == [0.0]
        assert of(agent, "gpu_sharing_stranger_processes") == [1.0]
        assert of(agent, "gpu_sharing_shares", resource=SHARE, state="held") == [1.0]
        assert of(agent, "gpu_sharing_shares", resource=SHARE, state="free") == [3.0]
        assert of(agent, "gpu_sharing_allocations_total", resource=SHARE) == [1.0]
        assert of(agent, "gpu_sharing_registrations_total", resource=SHARE) == [1.0]
        refusals = of(agent, "gpu_sharing_refusals_total", resource=SHARE)
        assert refusals == [0.0] * len(Refusal), "a first one is an increase"


async def test_two_pods_on_one_gpu_have_a_figure_each_and_nobody_the_cards() -> None:
    """NVIDIA/dcgm-exporter#151, #201, #307, #582.

    Shared or renamed resources: no pod, a random one, or the whole card's figure for each sharer.
    """
    async with node_bench("1xH100-80GB") as node:
        agent, first = await a_pod_at_work(node)
        pod = await node.run_pod("serve", SHARE)
        cgroup = f"/kubepods/pod{pod['metadata']['uid']}/{'d' * 64}"
        node.store().change(
            partial(operate.start_process, which="0", memory_mib=200, cgroup=cgroup)
        )
        await until_seen(agent, "gpu_sharing_share_memory_used_bytes", 200 * MIB)

        seen = samples(agent)
        pods = {had["pod"]: had["share"] for had, _ in seen["gpu_sharing_share_info"] if had["pod"]}
        used = {had["share"]: value for had, value in seen["gpu_sharing_share_memory_used_bytes"]}
        assert pods.keys() == {"train", "serve"}
        assert pods["train"] == first
        assert used == {pods["train"]: 700 * MIB, pods["serve"]: 200 * MIB}


async def test_the_family_by_share_can_be_left_out() -> None:
    async with node_bench("1xH100-80GB") as node:
        agent, _ = await a_pod_at_work(node, metrics_by_share=False)

        assert not [name for name in samples(agent) if name.startswith("gpu_sharing_share_")]
        assert of(agent, "gpu_sharing_shares", resource=SHARE, state="held") == [1.0]


async def test_a_lingering_process_is_counted_and_its_share_is_unhealthy() -> None:
    async with node_bench("1xH100-80GB") as node:
        agent, _ = await a_pod_at_work(node)
        await node.delete_pod("train")

        await until_seen(agent, "gpu_sharing_lingering_processes", 1.0)
        assert of(agent, "gpu_sharing_shares", resource=SHARE, state="unhealthy") == [1.0]


async def test_a_mig_share_is_as_busy_as_its_instance() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"3g.40gb": 2}})
        agent = await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-3g.40gb": 2})
        pod = await node.run_pod("train", "nvidia.com/mig-3g.40gb")
        status = await node.until_status(lambda s: any(one.holders for one in s.gpus[0].shares))
        (held,) = [one for one in status.gpus[0].shares if one.holders]
        (gi_id,) = [
            one.id
            for one in node.machine().gpus[0].instances
            if one.compute[0].uuid == held.mig_uuid
        ]
        cgroup = f"/kubepods/pod{pod['metadata']['uid']}/{'c' * 64}"
        start = partial(operate.start_process, which="0", gi_id=gi_id, cgroup=cgroup)
        process = node.store().change(start)
        node.store().change(partial(with_load, pid=process.pid, percent=40))

        await until_seen(agent, "gpu_sharing_share_busy_ratio", 0.4, share=held.id)
        assert of(agent, "gpu_sharing_share_memory_used_bytes", share=held.id) == [512 * MIB]
        assert len(samples(agent)["gpu_sharing_share_busy_ratio"]) == 1


def test_a_share_that_two_containers_of_a_pod_hold_in_turn_is_one_series() -> None:
    gpu = bare_gpu(load().board("H100-80GB"), "GPU-a")
    holds = tuple(
        Hold(
            device_id="GPU-a",
            resource="nvidia.com/gpu",
            holder=Holder(namespace="ns", pod="train", container=container),
        )
        for container in ("main", "setup")
    )
    held = Kubelet(held=Held.of(holds), offered=frozenset())
    report = take_stock(gpu, Wanted(), held, Knowledge())

    (info,) = told(NodeReport(gpus=(report,)))
    assert [one.container for one in info.holders] == ["main", "setup"]
    families = {one.name: one for one in _by_share((info,))}
    assert len(families["gpu_sharing_share_info"].samples) == 1
