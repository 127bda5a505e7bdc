"""MPS daemons under supervision: verified, restarted, found again, taken down."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sharing.mps.daemons import DaemonPhase, DaemonState, MpsDaemons, WantedDaemon
from sharing.mps.errors import MpsError
from sharing.mps.limits import MpsLimits, ceiling, share_limits
from sharing.mps.program import MpsProgram
from sharing.mps.standin import NO_DAEMON
from sharing.size import OneOf
from tests.support.plugin_mps import QUARTER, QUICK, Faults, Modes, tell, wanted
from tests.support.plugin_waiting import eventually

Make = Callable[..., MpsDaemons]
GPU = "GPU-a"


def now(daemons: MpsDaemons, device: str = GPU) -> DaemonState:
    state = daemons.state(device)
    assert state is not None
    return state


def alive(pid: int | None) -> bool:
    """A process that only waits for its parent's notice lives no more."""
    assert pid
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_daemon_is_ready_once_its_limits_were_read_back(make: Make) -> None:
    """NVIDIA/k8s-device-plugin#1946: a pod ran unlimited between start and limits."""
    daemons = make()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    folders = daemons.folders(GPU)
    assert tell(folders, "get_default_device_pinned_mem_limit 0") == "3G"
    assert tell(folders, "get_default_active_thread_percentage") == "25.0"
    assert now(daemons).reason == ""
    assert alive(now(daemons).pid)


async def test_the_ceiling_of_mixed_sizes_is_what_the_daemon_holds(make: Make) -> None:
    daemons = make()
    limits = ceiling([share_limits(OneOf(parts), 16384) for parts in (2, 4, 4)])
    await daemons.apply([wanted(limits=limits)])
    assert await daemons.wait_ready(GPU, 20)
    answers = tell(
        daemons.folders(GPU),
        "get_default_device_pinned_mem_limit 0",
        "get_default_active_thread_percentage",
    )
    assert answers.split() == ["8G", "50.0"]


async def test_each_gpu_has_its_own_daemon_and_folders(make: Make) -> None:
    daemons = make()
    await daemons.apply([wanted("GPU-a"), wanted("GPU-b")])
    assert await daemons.wait_ready("GPU-a", 20)
    assert await daemons.wait_ready("GPU-b", 20)
    assert now(daemons, "GPU-a").pid != now(daemons, "GPU-b").pid
    assert daemons.folders("GPU-a").pipe != daemons.folders("GPU-b").pipe
    assert [one.device_uuid for one in daemons.states()] == ["GPU-a", "GPU-b"]


async def test_pods_of_any_user_reach_the_pipe(make: Make) -> None:
    """bottlerocket-os/bottlerocket#4673: each folder on the way, whatever the agent's umask."""
    before = os.umask(0o077)
    try:
        daemons = make()
        await daemons.apply([wanted()])
        assert await daemons.wait_ready(GPU, 20)
    finally:
        os.umask(before)
    pipe = daemons.folders(GPU).pipe
    folders = (pipe, pipe.parent, pipe.parent.parent)
    assert [stat.S_IMODE(one.stat().st_mode) for one in folders] == [0o755] * 3
    assert stat.S_IMODE((pipe / "control").stat().st_mode) == 0o666


@pytest.mark.parametrize("fault", ["misreport-memory", "misreport-threads"])
async def test_a_daemon_that_misreports_its_limits_is_never_ready(
    make: Make, faults: Faults, fault: str
) -> None:
    faults.set(fault)
    daemons = make()
    await daemons.apply([wanted()])
    await eventually(lambda: now(daemons).starts > 1 and bool(now(daemons).reason))
    assert not now(daemons).ready
    await eventually(lambda: "after it was set" in now(daemons).reason)
    faults.clear()
    assert await daemons.wait_ready(GPU, 20)


async def test_a_daemon_that_does_not_start_says_why_in_its_own_words(
    make: Make, faults: Faults
) -> None:
    faults.set("fail-start")
    daemons = make()
    await daemons.apply([wanted()])
    await eventually(lambda: now(daemons).phase is DaemonPhase.BACKING_OFF)
    assert "no CUDA-capable device is detected" in now(daemons).reason
    assert "exit code 1" in now(daemons).reason
    faults.clear()
    assert await daemons.wait_ready(GPU, 20)


async def test_a_killed_daemon_comes_back_and_only_its_gpu_is_not_ready_meanwhile(
    make: Make,
) -> None:
    changes: list[DaemonState] = []
    daemons = make(on_change=changes.append)
    await daemons.apply([wanted("GPU-a"), wanted("GPU-b")])
    assert await daemons.wait_ready("GPU-a", 20)
    assert await daemons.wait_ready("GPU-b", 20)
    changes.clear()
    first = now(daemons).pid
    assert first
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: now(daemons).ready and now(daemons).pid != first)
    assert {one.device_uuid for one in changes} == {"GPU-a"}
    assert changes[0].phase is DaemonPhase.BACKING_OFF
    assert "exit code -9" in changes[0].reason


async def test_a_daemon_that_hangs_is_not_ready_then_restarted(make: Make, faults: Faults) -> None:
    daemons = make(patience=QUICK)
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    first = now(daemons).pid
    faults.set("hang")
    await eventually(lambda: now(daemons).phase is DaemonPhase.SILENT, 20)
    assert "did not answer" in now(daemons).reason
    await eventually(lambda: not alive(first), 30)
    faults.clear()
    assert await daemons.wait_ready(GPU, 30)


async def test_limits_that_somebody_changed_are_set_again(make: Make) -> None:
    daemons = make(patience=replace(QUICK, answer_s=20))
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    folders = daemons.folders(GPU)
    tell(folders, "set_default_active_thread_percentage 100")
    await eventually(lambda: tell(folders, "get_default_active_thread_percentage") == "25.0")
    assert now(daemons).starts == 1


async def test_new_limits_reach_a_daemon_and_its_running_servers_without_a_restart(
    make: Make,
) -> None:
    daemons = make()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    folders = daemons.folders(GPU)
    server = tell(folders, "standin_attach 4242 1000")
    await daemons.apply([wanted(limits=MpsLimits(memory_mib=7168, thread_percentage=50))])
    assert not now(daemons).ready
    assert await daemons.wait_ready(GPU, 20)
    assert now(daemons).starts == 1
    answers = tell(
        folders,
        f"get_active_thread_percentage {server}",
        f"get_device_pinned_mem_limit {server} 0",
        "get_default_active_thread_percentage",
    )
    assert answers.split() == ["50.0", "7G", "50.0"]
    assert await daemons.clients(GPU) == (4242,)


async def test_clients_of_several_users_share_one_server(make: Make) -> None:
    """nebuly-ai/nos#22, #49, NVIDIA/k8s-device-plugin#476: the second user's client hung."""
    daemons = make()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    folders = daemons.folders(GPU)
    first = tell(folders, "standin_attach 11 1000")
    assert tell(folders, "standin_attach 12 2000") == first
    assert await daemons.clients(GPU) == (11, 12)


async def test_each_process_of_a_container_is_a_client_of_its_own(make: Make) -> None:
    """NVIDIA/k8s-device-plugin#720, #594: limits hold for each; so that they can be counted."""
    daemons = make()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    for pid in (21, 22):
        tell(daemons.folders(GPU), f"standin_attach {pid} 1000")
    assert await daemons.clients(GPU) == (21, 22)


async def test_a_daemon_outlives_the_agent_and_is_found_by_the_next_one(make: Make) -> None:
    first = make()
    await first.apply([wanted()])
    assert await first.wait_ready(GPU, 20)
    pid = now(first).pid
    await first.stop()
    assert alive(pid)
    second = make()
    await second.start()
    await second.apply([wanted()])
    assert await second.wait_ready(GPU, 20)
    assert now(second).pid == pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: now(second).ready and now(second).pid != pid)


async def test_a_daemon_that_no_layout_wants_any_more_is_ended_by_the_next_agent(
    make: Make,
) -> None:
    modes = Modes({GPU: 0})
    first = make(compute_modes=modes)
    await first.apply([wanted()])
    assert await first.wait_ready(GPU, 20)
    pid = now(first).pid
    await first.stop()
    second = make(compute_modes=modes)
    await second.start()
    assert modes.modes == {GPU: 3}
    await second.apply([])
    assert modes.modes == {GPU: 0}
    await eventually(lambda: not alive(pid))


async def test_a_stale_pid_file_of_another_process_is_not_taken_for_a_daemon(make: Make) -> None:
    daemons = make()
    folders = daemons.folders(GPU)
    folders.pipe.mkdir(parents=True)
    folders.pid_file.write_text(f"{os.getpid()}\n")
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    assert now(daemons).pid != os.getpid()


async def test_taking_down_ends_the_daemon_and_removes_its_pipe(make: Make) -> None:
    daemons = make()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    pid = now(daemons).pid
    await daemons.apply([])
    assert not alive(pid)
    assert daemons.state(GPU) is None
    assert not daemons.folders(GPU).pipe.exists()
    assert tell(daemons.folders(GPU), "get_server_list") == NO_DAEMON


async def test_a_hanging_daemon_is_taken_down_too(make: Make, faults: Faults) -> None:
    daemons = make()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    pid = now(daemons).pid
    faults.set("hang")
    await daemons.apply([])
    assert not alive(pid)


async def test_the_compute_mode_is_exclusive_while_mps_shares_the_gpu(make: Make) -> None:
    modes = Modes({GPU: 0, "GPU-b": 2})
    daemons = make(compute_modes=modes)
    await daemons.apply([wanted(), wanted("GPU-b", exclusive=False)])
    assert await daemons.wait_ready(GPU, 20)
    assert modes.modes == {GPU: 3, "GPU-b": 2}
    await daemons.apply([])
    assert modes.modes == {GPU: 0, "GPU-b": 2}


async def test_a_daemons_restart_does_not_forget_the_mode_that_was_found(make: Make) -> None:
    modes = Modes({GPU: 0})
    daemons = make(compute_modes=modes)
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    first = now(daemons).pid
    assert first
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: now(daemons).ready and now(daemons).pid != first)
    await daemons.apply([])
    assert modes.modes == {GPU: 0}


AGENT = """
import asyncio, sys
from pathlib import Path
from sharing.mps.daemons import MpsDaemons
from sharing.mps.program import stand_in
from tests.support.plugin_mps import wanted

async def live():
    daemons = MpsDaemons(Path(sys.argv[1]), program=stand_in())
    await daemons.apply([wanted()])
    assert await daemons.wait_ready("GPU-a", 20)
    if sys.argv[2] == "stops":
        await daemons.stop()

asyncio.run(live())
"""


@pytest.mark.parametrize("how", ["stops", "just ends"])
async def test_a_daemon_outlives_its_agents_process(make: Make, folder: Path, how: str) -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, str(folder / "mps"), how
    )
    assert await agent.wait() == 0
    daemons = make()
    assert tell(daemons.folders(GPU), "get_default_active_thread_percentage") == "25.0"
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    assert now(daemons).starts == 1


async def test_a_mode_that_a_crash_left_behind_is_restored_at_the_next_start(
    make: Make,
) -> None:
    modes = Modes({GPU: 2})
    first = make(compute_modes=modes)
    await first.apply([wanted()])
    assert await first.wait_ready(GPU, 20)
    pid = now(first).pid
    assert pid
    await first.stop()  # as a crash does: the mode stays, and so would the daemon ...
    os.kill(pid, signal.SIGKILL)  # ... but it dies as well
    await eventually(lambda: not alive(pid))
    assert modes.modes == {GPU: 3}
    await make(compute_modes=modes).start()
    assert modes.modes == {GPU: 2}


async def test_a_lost_gpu_keeps_its_daemon_waiting_and_its_mode_on_record(make: Make) -> None:
    modes = Modes({GPU: 0})
    modes.lost.add(GPU)
    daemons = make(compute_modes=modes)
    await daemons.apply([wanted()])
    await eventually(lambda: "is lost" in now(daemons).reason)
    modes.lost.clear()
    assert await daemons.wait_ready(GPU, 20)
    modes.lost.add(GPU)
    await daemons.apply([])
    assert modes.modes == {GPU: 3}
    modes.lost.clear()
    await make(compute_modes=modes).start()
    assert modes.modes == {GPU: 0}


async def test_a_missing_program_is_said_with_what_to_do(folder: Path) -> None:
    daemons = MpsDaemons(
        folder / "mps",
        program=MpsProgram(argv=("/no/such/nvidia-cuda-mps-control",), private_shm=False),
        patience=QUICK,
    )
    await daemons.apply([wanted()])
    try:
        await eventually(lambda: now(daemons).phase is DaemonPhase.BACKING_OFF)
        assert "cannot be run: No such file or directory" in now(daemons).reason
        assert "comes with the driver" in now(daemons).reason
    finally:
        await daemons.stop(leave_running=False)


async def test_one_device_named_twice_is_refused(make: Make) -> None:
    daemons = make()
    with pytest.raises(MpsError, match="named twice"):
        await daemons.apply([wanted(), wanted()])


async def test_nobodys_clients_are_not_asked_for(make: Make) -> None:
    with pytest.raises(MpsError, match="is not wanted"):
        await make().clients(GPU)


def test_the_real_program_gets_a_shared_memory_of_its_own(folder: Path) -> None:
    program = MpsProgram()
    folders = MpsDaemons(folder, program=program).folders(GPU)
    argv = program.daemon_argv(folders)
    assert argv[:4] == ("unshare", "--mount", "--propagation", "private")
    assert argv[-3:] == ("nvidia-cuda-mps-control", "-f", "--multiuser-server")
    assert str(folder / GPU / "shm") in argv


def test_a_daemon_starts_with_its_limits_and_sees_one_device(folder: Path) -> None:
    program = MpsProgram()
    env = program.daemon_env(MpsDaemons(folder, program=program).folders(GPU), GPU, QUARTER)
    assert env["CUDA_VISIBLE_DEVICES"] == GPU
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3840M"
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"


@pytest.mark.parametrize("uuid", ["", "../x", ".", "..", "/etc"])
def test_a_device_that_is_no_folder_name_is_refused(folder: Path, uuid: str) -> None:
    with pytest.raises(MpsError, match="is no UUID"):
        MpsDaemons(folder, program=MpsProgram()).folders(uuid)


def test_old_mig_uuids_become_one_folder(folder: Path) -> None:
    device = WantedDaemon(
        device_uuid="MIG-GPU-1/2/0", gpu_uuid="GPU-1", limits=QUARTER, exclusive=False
    )
    pipe = MpsDaemons(folder, program=MpsProgram()).folders(device.device_uuid).pipe
    assert pipe == folder / "MIG-GPU-1_2_0" / "pipe"


async def test_limits_that_change_during_a_probe_are_not_taken_for_set(make: Make) -> None:
    """Probes follow each other without a pause, so that each change meets one under way."""
    daemons = make(patience=replace(QUICK, probe_s=0.0))
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    folders = daemons.folders(GPU)
    for threads in (50, 20, 60):
        await daemons.apply([wanted(limits=MpsLimits(memory_mib=7168, thread_percentage=threads))])
        assert await daemons.wait_ready(GPU, 20)
        assert tell(folders, "get_default_active_thread_percentage") == f"{threads}.0"


@pytest.mark.parametrize("way_out", ["layout goes", "agent ends with its daemons"])
@pytest.mark.parametrize("fault", ["hang", "fail-start"])
async def test_the_compute_mode_comes_back_on_every_way_out(
    make: Make, faults: Faults, way_out: str, fault: str
) -> None:
    """NVIDIA/k8s-device-plugin#657: where the daemon was dead, the mode stayed exclusive."""
    modes = Modes({GPU: 0})
    daemons = make(compute_modes=modes, patience=replace(QUICK, answer_s=1, end_s=1))
    if fault == "fail-start":
        faults.set(fault)
        await daemons.apply([wanted()])
        await eventually(lambda: now(daemons).phase is DaemonPhase.BACKING_OFF)
    else:
        await daemons.apply([wanted()])
        assert await daemons.wait_ready(GPU, 20)
        faults.set(fault)
    assert modes.modes == {GPU: 3}

    if way_out == "layout goes":
        await daemons.apply([])
    else:
        await daemons.stop(leave_running=False)

    assert modes.modes == {GPU: 0}


@pytest.mark.parametrize("damage", ["{", '{"GPU-a": "two"}'])
async def test_a_damaged_record_of_modes_stops_nobody(
    make: Make, folder: Path, damage: str
) -> None:
    modes = Modes({GPU: 0})
    (folder / "mps").mkdir()
    (folder / "mps" / "compute-modes.json").write_text(damage)
    daemons = make(compute_modes=modes)
    await daemons.start()
    await daemons.apply([wanted()])
    assert await daemons.wait_ready(GPU, 20)
    await daemons.apply([])
    assert modes.modes == {GPU: 0}
