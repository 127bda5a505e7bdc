"""Who uses a GPU that MPS serves: its clients do, the daemon's own server does not."""

from __future__ import annotations

from dataclasses import replace

from sharing.mps.control import MpsControl
from sharing.mps.program import stand_in
from sharing.nvml.codes import Code
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure, ProcessKind
from tests.support.agent_bench import NodeBench, node_bench

MPS = {"gpus": "all", "mode": "mps", "sizes": {"1of2": 2}}
SLICED = {"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}}
CLIENT = 7001


async def serve_mps(node: NodeBench) -> MpsControl:
    """Serve MPS; what asks the GPU's daemon."""
    await node.start_controller()
    await node.layout(MPS)
    agent = await node.start_agent()
    await node.until_allocatable({"gpu.sharing/mps-1of2": 2})
    folders = agent._daemons.folders(node.machine().gpus[0].uuid)
    return MpsControl(program=stand_in(), folders=folders, timeout_s=5.0)


def pids(node: NodeBench) -> list[int]:
    return [one.pid for one in node.machine().gpus[0].processes]


async def test_a_server_that_outlives_its_clients_does_not_hold_its_gpu() -> None:
    async with node_bench("1xH100-80GB") as node:
        control = await serve_mps(node)
        server = int(await control.ask(f"standin_attach {CLIENT} 1000"))
        node.store().change(
            lambda machine: operate.start_process(
                machine, "0", name="nvidia-cuda-mps-server", pid=server
            )
        )
        node.store().change(
            lambda machine: operate.start_process(machine, "0", pid=CLIENT, kind=ProcessKind.MPS)
        )

        await node.layout(SLICED)
        status = await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        assert status.plan is not None
        assert all(f"process {CLIENT}" in blocker for blocker in status.plan.blocked_by)

        await control.ask(f"standin_detach {CLIENT}")
        node.store().change(lambda machine: operate.stop_process(machine, CLIENT))
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        assert pids(node) == [server]


async def test_a_process_that_the_daemon_does_not_own_to_holds_its_gpu() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve_mps(node)
        foreign = node.store().change(
            lambda machine: operate.start_process(machine, "0", name="nvidia-cuda-mps-server")
        )

        await node.layout(SLICED)
        await node.until_status(
            lambda s: (
                s.plan is not None
                and any(f"process {foreign.pid}" in one for one in s.plan.blocked_by)
            )
        )

        node.store().change(lambda machine: operate.stop_process(machine, foreign.pid))
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})


async def test_a_gpu_whose_processes_are_not_listed_is_never_taken_for_idle() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve_mps(node)
        refused = Failure(
            function="nvmlDeviceGetComputeRunningProcesses_v3", code=Code.UNKNOWN, times=10_000
        )
        node.store().change(lambda machine: operate.fail_calls(machine, refused))

        await node.layout(SLICED)
        await node.until_status(
            lambda s: (
                s.plan is not None
                and any("does not say which processes use GPU 0" in b for b in s.plan.blocked_by)
            )
        )

        node.store().change(lambda machine: (replace(machine, failures=()), None))
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
