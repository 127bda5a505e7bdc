"""The controller dies at any moment; the next one finishes, and nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sharing.cluster.kind import EVENTS, LEASES, NAMESPACES, SHARING_PROFILES
from sharing.controller.controller import Controller, ControllerSettings
from sharing.nvml.simulator import operate
from tests.support.agent_bench import DEADLINE_S, NodeBench, node_bench

KILLS = 12
LAYOUTS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"mode": "time-slicing", "sizes": {"1of2": 2}}, {"gpu.sharing/timeslice-1of2": 4}),
    ({"mode": "time-slicing", "sizes": {"1of4": 4}}, {"gpu.sharing/timeslice-1of4": 8}),
    ({"mode": "exclusive"}, {"nvidia.com/gpu": 2}),
    ({"mode": "mig", "sizes": {"3g.40gb": 2}}, {"nvidia.com/mig-3g.40gb": 4}),
]


async def live_a_while(node: NodeBench, seconds: float) -> None:
    """Run a controller and end it in the middle of whatever it does."""
    controller = Controller(ControllerSettings(lease=None, gather_s=0.001), node.client)
    task = asyncio.create_task(controller.run())
    await asyncio.wait({task}, timeout=seconds)
    assert not task.done(), task.exception()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_layouts_reach_the_node_however_often_the_controller_dies() -> None:
    draw = random.Random(6)
    async with node_bench("2xH100-80GB") as node:
        await node.start_agent()
        offer: dict[str, int] = {}
        for _ in range(KILLS):
            entry, offer = draw.choice(LAYOUTS)
            await node.layout({"gpus": "all", **entry})
            await live_a_while(node, draw.uniform(0.0, 0.12))

        await node.start_controller()
        await node.until_allocatable(offer)
        await node.until(
            node.layouts,
            lambda: reason(node.layouts.get("all")) == "Applied",
            lambda: node.layouts.get("all"),
        )


def reason(item: dict[str, Any] | None) -> str:
    conditions = ((item or {}).get("status") or {}).get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")


async def test_a_fault_is_answered_once_however_often_the_controller_dies() -> None:
    draw = random.Random(7)
    async with node_bench("2xH100-80GB") as node:
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
        for name in ("one", "two"):
            await node.run_pod(name, "nvidia.com/gpu")
        status = await node.until_status(
            lambda s: all(share.holders for gpu in s.gpus for share in gpu.shares)
        )
        (victim,) = {holder.pod for share in status.gpus[0].shares for holder in share.holders}
        (spared,) = {"one", "two"} - {victim}
        node.store().change(lambda machine: operate.report_xid(machine, "0", 79))
        await node.until_status(lambda s: not s.gpus[0].health.healthy)

        for _ in range(KILLS):
            await live_a_while(node, draw.uniform(0.0, 0.05))
        await node.start_controller()

        await node.until(node.pods, lambda: node.phase(victim) == "", lambda: "still there")
        assert node.phase(spared) == "Running"
        told = [
            one
            for one in (await node.client.list(EVENTS))["items"]
            if one["reason"] == "GPUFault" and one["involvedObject"]["kind"] == "Pod"
        ]
        assert {one["involvedObject"]["name"] for one in told} <= {victim}
        assert sum(one["count"] for one in told) <= 1


@asynccontextmanager
async def process(node: NodeBench) -> AsyncIterator[asyncio.subprocess.Process]:
    """The controller as a process that stands for election."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "controller", "--lease-namespace", "default"),
        *("--kubeconfig", str(node.folder / "kubeconfig")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert started.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            assert b"ready" in await started.stdout.readline()
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def holder(node: NodeBench) -> str:
    leases = (await node.client.list(LEASES, namespace="default"))["items"]
    return str(leases[0]["spec"]["holderIdentity"]) if leases else ""


async def test_a_killed_leaders_stand_by_goes_on_with_its_work() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_agent()
        await node.layout({"gpus": "all", **LAYOUTS[0][0]})
        async with process(node) as leader:
            await node.until_allocatable(LAYOUTS[0][1])
            async with process(node):
                before = await holder(node)
                leader.kill()
                await leader.wait()
                # As a lease that ran out: real leases last longer than a test should.
                lease = (await node.client.list(LEASES, namespace="default"))["items"][0]
                lease["spec"]["leaseDurationSeconds"] = 1
                await node.client.replace(LEASES, lease)

                await node.layout({"gpus": "all", **LAYOUTS[1][0]})
                await node.until_allocatable(LAYOUTS[1][1])
                assert await holder(node) not in ("", before)
