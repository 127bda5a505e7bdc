"""Crashes at every step, reboots, faults, foreign changes: each ends well without a person."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.kind import GPU_NODES
from sharing.node.journal import Journal
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.simulator import operate
from tests.support.agent_bench import NodeBench, node_bench

MIXED = (
    {"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 2, "3g.40gb": 1}},
    {"gpus": "1", "mode": "mps", "sizes": {"1of2": 2}},
)
MIXED_OFFER = {
    "nvidia.com/mig-1g.10gb": 2,
    "nvidia.com/mig-3g.40gb": 1,
    "gpu.sharing/mps-1of2": 2,
}
OTHER = (
    {"gpus": "0", "mode": "mps", "sizes": {"1of4": 4}},
    {"gpus": "1", "mode": "mig", "sizes": {"2g.20gb": 3}},
)
OTHER_OFFER = {"gpu.sharing/mps-1of4": 4, "nvidia.com/mig-2g.20gb": 3}


class Killed(BaseException):
    """The process ends here."""


class DeadlyJournal(Journal):
    """Ends the agent when it notes its n-th step; before or after that is on disk."""

    def __init__(self, path: Path, *, at: int, noted: bool) -> None:
        super().__init__(path=path)
        self.at, self.noted, self.seen = at, noted, 0

    def starting(self, number: int) -> None:
        self.seen += 1
        if self.seen > self.at and not self.noted:
            raise Killed
        super().starting(number)
        if self.seen > self.at:
            raise Killed


async def test_an_agent_that_dies_at_any_step_is_followed_by_one_that_finishes() -> None:
    """nebuly-ai/nos#16: MPS to MIG is a drain, a switch and a look; it may end at any point."""
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.layout(*MIXED)
        await node.start_agent()
        await node.until_allocatable(MIXED_OFFER)
        await node.stop("agent")
        await node.layout(*OTHER)

        deaths = 0
        while await _dies(node, at=deaths % 4, noted=deaths % 3 == 0):
            deaths += 1
            assert deaths < 30

        assert deaths >= 3
        await node.until_allocatable(OTHER_OFFER)
        await node.until_served()


async def _dies(node: NodeBench, *, at: int, noted: bool) -> bool:
    """Start an agent that dies at a step; whether it came so far."""
    journal = DeadlyJournal(node.settings.state_dir / "journal.json", at=at, noted=noted)
    await node.start_agent(journal=journal, until_ready=False)
    task = node.tasks["agent"]
    served = asyncio.create_task(node.until_allocatable(OTHER_OFFER))
    await asyncio.wait({task, served}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        await served
        return False
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)
    del node.tasks["agent"]
    assert isinstance(task.exception(), Killed)
    return True


@pytest.mark.parametrize("board", ["A100-80GB", "H100-80GB"])
async def test_after_a_reboot_the_layout_is_restored_without_an_api_server(board: str) -> None:
    async with node_bench(f"2x{board}") as node:
        await node.start_controller()
        await node.layout(*MIXED)
        await node.start_agent()
        await node.until_allocatable(MIXED_OFFER)
        await node.stop("agent")

        node.store().change(operate.reboot)
        assert not any(gpu.instances for gpu in node.machine().gpus)

        async with Client(credentials.at("http://127.0.0.1:9")) as nobody:
            await node.start_agent(until_ready=False, client=nobody)
            await node.until_allocatable(MIXED_OFFER)
            await node.stop("agent")


async def test_a_fatal_xid_takes_one_gpu_out_and_time_brings_it_back() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent()
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 8})

        node.store().change(
            lambda machine: operate.report_xid(machine, "0", 48, recovery=RecoveryAction.NONE)
        )

        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        status = await node.until_status(lambda s: not s.gpus[0].health.healthy)
        assert status.gpus[0].health.reason == "Xid48"
        assert status.gpus[1].health.healthy
        assert all(not share.healthy for share in status.gpus[0].shares)

        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 8})
        await node.until_status(lambda s: s.gpus[0].health.healthy)


async def test_an_application_fault_takes_nothing_out() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})

        node.store().change(lambda machine: operate.report_xid(machine, "0", 31))
        node.store().change(lambda machine: operate.report_xid(machine, "0", 43))
        await node.stop("agent")  # takes in what was reported before it ends
        await node.start_agent()

        assert node.status.gpus[0].health.healthy


async def test_a_lost_gpu_never_spoils_the_others() -> None:
    async with node_bench("3xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"3g.40gb": 2}})
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 2, "nvidia.com/mig-3g.40gb": 2})

        node.store().change(lambda machine: operate.lose(machine, "1"))
        await node.until_allocatable({"nvidia.com/gpu": 1, "nvidia.com/mig-3g.40gb": 2})

        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"2g.20gb": 3}})
        await node.until_allocatable({"nvidia.com/gpu": 1, "nvidia.com/mig-2g.20gb": 3})
        assert (await node.run_pod("p", "nvidia.com/gpu"))["status"]["phase"] == "Running"


async def test_a_process_that_nobody_answers_for_keeps_its_instance() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 2}})
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        instance = node.machine().gpus[0].instances[0]
        process = node.store().change(
            lambda machine: operate.start_process(machine, "0", gi_id=instance.id)
        )

        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"7g.80gb": 1}})
        status = await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        assert status.plan is not None
        assert f"process {process.pid}" in status.plan.blocked_by[0]
        assert instance.id in [one.id for one in node.machine().gpus[0].instances]

        node.store().change(lambda machine: operate.stop_process(machine, process.pid))
        await node.until_allocatable({"nvidia.com/mig-7g.80gb": 1})


async def test_instances_that_somebody_else_made_and_destroyed_are_put_right() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 2}})
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        victim = node.machine().gpus[0].instances[0]

        node.store().change(lambda machine: operate.destroy_instance(machine, "0", victim.id))
        await node.stop("agent")
        await node.start_agent()

        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        assert len(node.machine().gpus[0].instances) == 2


async def test_a_cordoned_gpu_offers_nothing_and_keeps_its_holders() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.start_agent()
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 4})
        spec = node.gpu_nodes.get("n1")["spec"]  # type: ignore[index]
        spec["gpus"][0]["cordoned"] = True

        await node.client.patch(GPU_NODES, "n1", {"spec": spec})

        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        status = await node.until_status(lambda s: s.gpus[0].health.reason == "Cordoned")
        assert status.gpus[0].layout is not None
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
