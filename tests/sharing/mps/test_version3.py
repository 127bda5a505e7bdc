"""MPS v3: sizes with limits of their own, which the daemon enforces and clients cannot choose."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sharing.mps import version3
from sharing.mps.control3 import MpsControl3
from sharing.mps.daemons import DaemonPhase, MpsDaemons, WantedDaemon
from sharing.mps.errors import MpsError
from sharing.mps.limits import MpsLimits, ceiling, share_limits
from sharing.mps.program import MpsProgram, MpsVersion, stand_in
from sharing.mps.wanted import ClientGroup
from sharing.size import OneOf
from tests.cluster.waiting import eventually as eventually_so
from tests.support.plugin_mps import QUICK, Faults, daemons_at
from tests.support.plugin_mps import wanted as wanted2
from tests.support.plugin_waiting import eventually

GPU = "GPU-a"
PATIENT = replace(QUICK, answer_s=20)
"""A machine that does other work is not taken for a daemon that is silent."""
MEMORY_MIB = 16384
Make = Callable[..., MpsDaemons]


def wanted(*parts: int) -> WantedDaemon:
    """A daemon for shares of these sizes."""
    limits = {f"1of{part}": share_limits(OneOf(part), MEMORY_MIB) for part in parts}
    return WantedDaemon(
        device_uuid=GPU,
        gpu_uuid=GPU,
        limits=ceiling(limits.values()),
        groups=tuple(
            ClientGroup(
                name=name, memory_mib=one.memory_mib, thread_percentage=one.thread_percentage
            )
            for name, one in limits.items()
        ),
    )


@pytest.fixture
async def make3(folder: Path, faults: Faults) -> AsyncIterator[Make]:
    """Makes the daemons of one agent's life, in the words of v3."""
    made: list[MpsDaemons] = []
    program = stand_in({"GPU_SHARING_MPS_FAULTS": str(faults.path)}).speaking(MpsVersion.V3)

    def one() -> MpsDaemons:
        made.append(MpsDaemons(folder / "mps", program=program, patience=PATIENT))
        return made[-1]

    yield one
    faults.clear()
    for each in made:
        await each.stop(leave_running=False)
    await one().apply([])


async def test_a_mig_device_is_served_in_the_words_of_v2(make3: Make) -> None:
    daemons = make3()
    mig = WantedDaemon(device_uuid="MIG-a", gpu_uuid=GPU, limits=wanted2().limits, exclusive=False)
    assert daemons.client_pipe("MIG-a", "1of4") == daemons.folders("MIG-a").pipe
    await daemons.apply([mig])
    assert await daemons.wait_ready("MIG-a", 20)
    assert daemons.client_pipe("MIG-a", "1of4") == daemons.folders("MIG-a").pipe


def asking(daemons: MpsDaemons) -> MpsControl3:
    """What asks the daemon as a person would."""
    program = stand_in().speaking(MpsVersion.V3)
    return MpsControl3(program=program, folders=daemons.folders(GPU), timeout_s=10)


async def limits_of(daemons: MpsDaemons, size: str) -> tuple[str, str]:
    control = asking(daemons)
    return (
        await control.ask("namespace", "get", size, "shares", "pinned-memory-limit"),
        await control.ask("namespace", "get", size, "shares", "active-thread-percentage"),
    )


def test_the_configuration_is_what_the_documentation_names() -> None:
    document = tomllib.loads(version3.configuration(wanted(2, 4)))
    assert document == {
        "schema_version": "1.0",
        "servers": {
            "shares": {
                "allowed_devices": GPU,
                "pinned_memory_limit": "8192M",
                "active_thread_percentage": "50",
                "uid": 0,
                "namespaces": {
                    "1of2": {"pinned_memory_limit": "8192M", "active_thread_percentage": "50"},
                    "1of4": {"pinned_memory_limit": "4096M", "active_thread_percentage": "25"},
                },
            }
        },
        "features": {"memacct": {"enabled": True}},
    }


@pytest.mark.parametrize("name", ["", "default", "1OF4", "a/b", "x" * 65, "ü"])
def test_a_size_that_is_no_namespace_is_refused(name: str) -> None:
    group = ClientGroup(name=name, memory_mib=1, thread_percentage=1)
    limits = MpsLimits(memory_mib=1, thread_percentage=1)
    daemon = WantedDaemon(device_uuid=GPU, gpu_uuid=GPU, limits=limits, groups=(group,))
    with pytest.raises(MpsError, match="is no name"):
        version3.configuration(daemon)


def test_the_program_is_started_in_the_words_of_v3(folder: Path) -> None:
    program = MpsProgram(private_shm=False).speaking(MpsVersion.V3)
    folders = MpsDaemons(folder, program=program).folders(GPU)
    assert program.daemon_argv(folders)[1:] == (
        *("-f", "-p", "3", "--multiuser", "-a", str(folders.configuration)),
    )
    env = program.daemon_env(folders, GPU, wanted(4).limits)
    assert env["CUDA_MPS_PROTOCOL_VERSION"] == "3"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in env


def test_a_machine_that_prefers_v3_does_not_change_the_words_of_v2(folder: Path) -> None:
    """The variable beats the command line, so it is set in either case."""
    program = MpsProgram()
    env = program.client_env(MpsDaemons(folder, program=program).folders(GPU))
    assert env["CUDA_MPS_PROTOCOL_VERSION"] == "2"


@pytest.mark.parametrize(
    ("table", "pids"),
    [
        ("shares,0,-,Idle,/p,GPU-a,-", ()),
        ("shares,0,48201,Ready,/p,GPU-a,-", (48201,)),
        ("", ()),
    ],
)
def test_a_server_has_a_process_once_it_runs(table: str, pids: tuple[int, ...]) -> None:
    assert version3.server_pids(table) == pids


@pytest.mark.parametrize("table", ["training", "shares,0,many,Ready", "Unknown"])
def test_an_answer_that_is_no_table_is_an_error(table: str) -> None:
    with pytest.raises(MpsError, match="one process a row"):
        version3.server_pids(table)


@pytest.mark.parametrize("table", ["1of4", "1of4,shares,-,4G", "Unknown command"])
def test_an_answer_that_is_no_table_of_namespaces_is_an_error(table: str) -> None:
    with pytest.raises(MpsError, match="one namespace a row"):
        version3.namespaces(table)


def test_a_clients_command_line_may_hold_commas() -> None:
    assert version3.client_pids("51087,shares,0,1of4,python a,b.py\n7,shares,0,1of2,x") == (
        7,
        51087,
    )


async def test_each_size_has_limits_and_a_folder_of_its_own(make3: Make) -> None:
    """A container is given the folder of its size and no other."""
    daemons = make3()
    await daemons.apply([wanted(2, 4)])
    assert await daemons.wait_ready(GPU, 30)
    assert await limits_of(daemons, "1of2") == ("8192M", "50")
    assert await limits_of(daemons, "1of4") == ("4096M", "25")
    assert await limits_of(daemons, version3.DEFAULT) == ("8192M", "50")
    quarter, half = daemons.client_pipe(GPU, "1of4"), daemons.client_pipe(GPU, "1of2")
    assert (quarter / "control").exists()
    assert quarter not in half.parents
    assert stat.S_IMODE(quarter.stat().st_mode) == 0o755
    control = asking(daemons)
    await control.ask("standin", "attach", "4242", "1of4")
    assert await daemons.clients(GPU) == (4242,)
    assert len(await daemons.servers(GPU)) == 1


async def test_a_daemon_that_misreports_a_size_is_never_ready(make3: Make, faults: Faults) -> None:
    faults.set("misreport-threads")
    daemons = make3()
    await daemons.apply([wanted(4)])
    await eventually(lambda: "after it was set" in daemons.states()[0].reason, 30)
    assert not daemons.states()[0].ready
    faults.clear()
    assert await daemons.wait_ready(GPU, 30)


async def test_new_sizes_reach_a_living_daemon_and_old_ones_go_with_their_last_client(
    make3: Make,
) -> None:
    daemons = make3()
    await daemons.apply([wanted(2, 4)])
    assert await daemons.wait_ready(GPU, 30)
    control = asking(daemons)
    await control.ask("standin", "attach", "11", "1of4")
    await daemons.apply([wanted(2, 8)])
    assert await daemons.wait_ready(GPU, 30)
    assert daemons.states()[0].starts == 1
    assert await limits_of(daemons, "1of8") == ("2048M", "12")
    assert await limits_of(daemons, "1of4") == ("4096M", "25"), "it has a client"
    await control.ask("standin", "detach", "11")
    await daemons.apply([wanted(2, 8, 16)])
    assert await daemons.wait_ready(GPU, 30)
    with pytest.raises(MpsError, match="not found"):
        await limits_of(daemons, "1of4")


async def test_limits_that_somebody_loosened_are_set_again(make3: Make) -> None:
    daemons = make3()
    await daemons.apply([wanted(4)])
    assert await daemons.wait_ready(GPU, 30)
    control = asking(daemons)
    await control.ask("server", "set", version3.SERVER, "--active-thread-percentage=100")

    async def tight_again() -> bool:
        return await limits_of(daemons, version3.DEFAULT) == ("4096M", "25")

    await eventually_so("the limits are set again", tight_again)
    assert daemons.states()[0].starts == 1


async def test_a_daemon_that_does_not_start_says_which_driver_v3_needs(
    make3: Make, faults: Faults
) -> None:
    faults.set("fail-start")
    daemons = make3()
    await daemons.apply([wanted(4)])
    await eventually(lambda: daemons.states()[0].phase is DaemonPhase.BACKING_OFF)
    assert "no CUDA-capable device" in daemons.states()[0].reason
    assert "driver 615 or later" in daemons.states()[0].reason
    faults.clear()
    assert await daemons.wait_ready(GPU, 30)


async def test_a_daemon_of_v2_lives_on_under_an_agent_that_prefers_v3(
    make3: Make, folder: Path, faults: Faults
) -> None:
    """Its clients' work is worth more than the words that it speaks."""
    before = daemons_at(folder / "mps", faults)
    await before.apply([wanted2()])
    assert await before.wait_ready(GPU, 30)
    pid = before.states()[0].pid
    await before.stop()
    after = make3()
    await after.apply([wanted2()])
    assert await after.wait_ready(GPU, 30)
    assert after.states()[0].pid == pid
    assert after.client_pipe(GPU, "1of4") == after.folders(GPU).pipe
    await after.apply([])
    await after.apply([wanted(4)])
    assert await after.wait_ready(GPU, 30)
    assert after.client_pipe(GPU, "1of4") != after.folders(GPU).pipe
