"""Drivers that are old, missing, upgraded under us or stingy, and foreign hands, while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sharing.api.node import GpuNodeStatus
from sharing.migprofile import MigProfile
from sharing.nvml.simulator import ageing, operate
from sharing.nvml.simulator.state import Machine, Permission
from tests.support.agent_bench import NodeBench, node_bench

MIG = {"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 2}}
MIG_OFFER = {"nvidia.com/mig-1g.10gb": 2}


def configure(node: NodeBench, **fields: Any) -> None:
    def step(machine: Machine) -> tuple[Machine, None]:
        return replace(machine, **fields), None

    node.store().change(step)


def ready(status: GpuNodeStatus) -> tuple[str, str]:
    """Reason and message of the condition."""
    found = next(one for one in status.conditions if one.type == "Ready")
    return found.reason, found.message


@pytest.mark.parametrize("version", ["450.80.02", "470.256.02"])
async def test_an_old_driver_serves_every_mode_without_the_calls_that_it_lacks(
    version: str,
) -> None:
    async with node_bench("1xA100-40GB") as node:
        node.store().change(lambda machine: ageing.change_driver(machine, version, []))
        await node.start_controller()
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})

        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"3g.20gb": 1, "2g.10gb": 1}})
        await node.until_allocatable({"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 1})
        await node.run_pod("train", "nvidia.com/mig-2g.10gb")
        assert node.status.driver_version == version
        await node.delete_pod("train")

        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of2": 2}})
        await node.until_allocatable({"gpu.sharing/mps-1of2": 2})


async def test_without_a_driver_nothing_is_offered_and_it_is_waited_for() -> None:
    """NVIDIA/k8s-device-plugin#1641: GPUs stayed advertised when NVML failed at start."""
    async with node_bench("1xH100-80GB") as node:
        configure(node, driver_loaded=False)
        await node.start_controller()
        await node.layout(MIG)
        await node.start_agent(until_ready=False)

        status = await node.until_status(lambda s: bool(s.conditions))
        reason, message = ready(status)
        assert reason == "Unavailable"
        assert "driver" in message
        assert node.allocatable() == {}

        configure(node, driver_loaded=True)
        await node.until_allocatable(MIG_OFFER)


async def test_a_driver_that_was_upgraded_without_a_reload_is_told_and_waited_for() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(MIG)
        await node.start_agent()
        await node.until_allocatable(MIG_OFFER)
        await node.stop("agent")

        configure(node, version_mismatch=True)
        await node.start_agent(until_ready=False)
        status = await node.until_status(lambda s: ready(s)[0] == "Unavailable")
        assert "restart the node or reload its modules" in ready(status)[1]
        await node.until_allocatable({})

        configure(node, version_mismatch=False)
        node.store().change(operate.reboot)
        await node.until_allocatable(MIG_OFFER)
        await node.until_status(lambda s: ready(s)[0] == "LayoutServed")


async def test_an_agent_that_may_not_list_instances_says_which_right_it_lacks() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(MIG)
        await node.start_agent()
        await node.until_allocatable(MIG_OFFER)
        instances = node.machine().gpus[0].instances
        await node.stop("agent")

        configure(node, permission=Permission.NONE)
        await node.start_agent(until_ready=False)
        status = await node.until_status(lambda s: ready(s)[0] == "Unavailable")
        assert "mig/config" in ready(status)[1]
        await node.until_allocatable({})
        assert node.machine().gpus[0].instances == instances

        configure(node, permission=Permission.ROOT)
        await node.until_allocatable(MIG_OFFER)


async def test_a_half_made_instance_is_put_right_while_the_agent_runs() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(MIG)
        await node.start_agent()
        await node.until_allocatable(MIG_OFFER)
        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        status = await node.until_status(lambda s: any(share.holders for share in s.gpus[0].shares))
        (held,) = [share.id for share in status.gpus[0].shares if share.holders]
        start = int(held.rpartition("-")[2])
        kept = [one for one in node.machine().gpus[0].instances if one.start == start]
        (victim,) = [one for one in node.machine().gpus[0].instances if one.start != start]

        def halve(machine: Machine) -> tuple[Machine, None]:
            gpu = machine.gpus[0]
            halved = tuple(
                replace(one, compute=()) if one.id == victim.id else one for one in gpu.instances
            )
            return operate.with_gpu(machine, replace(gpu, instances=halved)), None

        node.store().change(halve)
        node.store().change(lambda machine: operate.report_xid(machine, "0", 13))  # a look is due

        await node.until_status(
            lambda s: (
                len([one for one in node.machine().gpus[0].instances if one.compute]) == 2
                and s.plan is None
            )
        )
        await node.until_allocatable(MIG_OFFER)
        assert [one for one in node.machine().gpus[0].instances if one.start == start] == kept


async def test_a_foreign_instance_goes_when_it_is_idle_and_stays_while_it_is_used() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(MIG)
        await node.start_agent()
        await node.until_allocatable(MIG_OFFER)
        ours = node.machine().gpus[0].instances
        foreign = MigProfile.parse("2g.20gb")

        node.store().change(lambda machine: operate.create_instance(machine, "0", foreign))
        await node.until_status(
            lambda s: node.machine().gpus[0].instances == ours and s.plan is None
        )
        assert node.allocatable() == MIG_OFFER

        def used(machine: Machine) -> tuple[Machine, int]:
            machine, made = operate.create_instance(machine, "0", foreign)
            machine, process = operate.start_process(machine, "0", gi_id=made.id)
            return machine, process.pid

        pid = node.store().change(used)
        await node.until_status(
            lambda s: s.plan is not None and any(f"process {pid}" in b for b in s.plan.blocked_by)
        )
        assert len(node.machine().gpus[0].instances) == 3
        assert node.allocatable() == MIG_OFFER

        node.store().change(lambda machine: operate.stop_process(machine, pid))
        await node.until_status(
            lambda s: node.machine().gpus[0].instances == ours and s.plan is None
        )
