"""The MPS daemon's list of clients and the driver's, side by side, in both protocols."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sharing.board import Placement
from sharing.catalogue import load
from sharing.migprofile import MigProfile
from sharing.mps.control import MpsControl
from sharing.mps.control3 import MpsControl3
from sharing.mps.daemons import MpsDaemons, WantedDaemon
from sharing.mps.program import MpsVersion, stand_in
from sharing.mps.wanted import ClientGroup
from sharing.node.clientlists import Known
from sharing.node.gpus import Activity
from sharing.node.observed import Instance
from sharing.node.rollcall import RollCall
from sharing.nvml.observed import GpuProcess, ProcessKind
from sharing.nvml.simulator import operate, state
from tests.support.agent_bench import DEADLINE_S, node_bench
from tests.support.nodeworld import bare_gpu
from tests.support.plugin_mps import QUARTER, QUICK, Faults

SHARE = "gpu.sharing/mps-1of2"
CLIENT, OTHER = 7001, 7002
GPU = bare_gpu(load().board("H100-80GB"), "GPU-a")
GROUPS = (ClientGroup(name="1of4", memory_mib=3840, thread_percentage=25),)


@asynccontextmanager
async def serving(device: str, version: MpsVersion) -> AsyncIterator[MpsDaemons]:
    """The daemon of a GPU or MIG device, ready."""
    folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    patient = replace(QUICK, answer_s=20, probe_s=60)
    program = stand_in({"GPU_SHARING_MPS_FAULTS": str(folder / "faults")}).speaking(version)
    daemons = MpsDaemons(folder / "mps", program=program, patience=patient)
    wanted = WantedDaemon(device_uuid=device, gpu_uuid="GPU-a", limits=QUARTER, groups=GROUPS)
    try:
        await daemons.apply([wanted])
        assert await daemons.wait_ready(device, DEADLINE_S)
        yield daemons
    finally:
        (folder / "faults").unlink(missing_ok=True)
        await daemons.stop(leave_running=False)
        shutil.rmtree(folder)


async def attach(daemons: MpsDaemons, device: str, pid: int, version: MpsVersion) -> None:
    """Have the stand-in believe in a client."""
    program, folders = stand_in().speaking(version), daemons.folders(device)
    if version is MpsVersion.V2:
        second = MpsControl(program=program, folders=folders, timeout_s=20)
        await second.ask(f"standin_attach {pid} 1000")
    else:
        third = MpsControl3(program=program, folders=folders, timeout_s=20)
        await third.ask("standin", "attach", str(pid), "1of4")


def running(*pids: int, gi_id: int | None = None) -> Activity:
    """What the driver lists, a process that is no client among it."""
    clients = [
        GpuProcess(pid=pid, kind=ProcessKind.MPS, memory_mib=1, gi_id=gi_id, ci_id=None)
        for pid in pids
    ]
    server = GpuProcess(pid=1, kind=ProcessKind.COMPUTE, memory_mib=1, gi_id=gi_id, ci_id=None)
    return Activity(processes=(server, *clients), sm_percent=None)


def counted(roll_call: RollCall) -> list[tuple[int, Known]]:
    return [(one.pid, one.known) for one in roll_call.disputed if one.lasting]


@pytest.mark.parametrize("version", list(MpsVersion))
async def test_a_daemon_that_misreports_its_clients_is_found_out(version: MpsVersion) -> None:
    async with serving("GPU-a", version) as daemons:
        roll_call = RollCall(daemons, every_s=0.0)
        await roll_call.take([(GPU, running(CLIENT))], ())
        assert counted(roll_call) == [(CLIENT, Known.DRIVER)]

        await attach(daemons, "GPU-a", CLIENT, version)
        await roll_call.take([(GPU, running(CLIENT))], ())
        assert roll_call.disputed == ()

        await roll_call.take([(GPU, running())], ())
        assert counted(roll_call) == [(CLIENT, Known.DAEMON)]


async def test_a_mig_device_is_told_from_the_rest_of_its_gpu() -> None:
    instance = Instance(
        gi_id=5,
        profile=MigProfile.parse("3g.40gb"),
        placement=Placement(start=0, size=4),
        mig_uuid="MIG-a",
        memory_mib=40000,
    )
    gpu = replace(GPU, mig_enabled=True, instances=(instance,))
    async with serving("MIG-a", MpsVersion.V2) as daemons:
        await attach(daemons, "MIG-a", CLIENT, MpsVersion.V2)
        elsewhere = running(OTHER, gi_id=6)
        here = running(CLIENT, gi_id=5)
        both = Activity(processes=(*elsewhere.processes, *here.processes), sm_percent=None)
        roll_call = RollCall(daemons, every_s=0.0)
        await roll_call.take([(gpu, both)], ())

        assert roll_call.disputed == ()


async def test_what_nobody_uses_or_nobody_answers_for_is_not_asked_about() -> None:
    async with serving("GPU-a", MpsVersion.V2) as daemons:
        await attach(daemons, "GPU-a", CLIENT, MpsVersion.V2)
        idle = Activity(processes=(), sm_percent=None)
        roll_call = RollCall(daemons, every_s=0.0)

        await roll_call.take([], {"GPU-a"})
        await roll_call.take([(GPU, idle)], ())
        assert roll_call.disputed == ()

        await roll_call.take([(GPU, idle)], {"GPU-a"})
        assert counted(roll_call) == [(CLIENT, Known.DAEMON)], "the driver hides processes"


async def test_a_daemon_that_answers_nonsense_is_not_judged() -> None:
    async with serving("GPU-a", MpsVersion.V2) as daemons:
        roll_call = RollCall(daemons, every_s=0.0)
        Faults(daemons.folders("GPU-a").pipe.parents[2] / "faults").set("refuse")
        with capture_logs() as told:
            await roll_call.take([(GPU, running(CLIENT))], ())

    assert roll_call.disputed == ()
    assert "MPS clients were not listed" in [one["event"] for one in told]


async def test_the_agent_tells_of_it() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of2": 2}})
        agent = await node.start_agent()
        await node.until_allocatable({SHARE: 2})
        await node.run_pod("train", SHARE)
        start = partial(operate.start_process, which="0", pid=CLIENT, kind=state.ProcessKind.MPS)
        node.store().change(start)

        async with asyncio.timeout(DEADLINE_S):
            while True:
                families = {one.name: one for one in agent.metrics.collect()}
                samples = families["gpu_sharing_mps_disputed_clients"].samples
                if {one.labels["known"]: one.value for one in samples} == {
                    "driver": 1.0,
                    "daemon": 0.0,
                }:
                    break
                await asyncio.sleep(0.05)
