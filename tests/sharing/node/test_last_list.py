"""What the kubelet was told last: told again at once, and never more than is safe."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.node.forerunner import Forerunner
from sharing.node.lastlist import LastList, Told
from sharing.nvml.codes import Code
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure
from tests.support.agent_bench import NodeBench, node_bench
from tests.support.plugin_bindings import gpu_uuid, mig, mig_uuid, mps, slice_, whole
from tests.support.plugin_waiting import eventually

EVERYTHING = Told(
    listed=(whole(0, numa=1), mig(1, 4), slice_(2, 0), mps(3, 1)), held=(slice_(4, 0),)
)


def last(folder: Path, boot: str = "one") -> LastList:
    return LastList(folder / "offered.json", boot)


def test_a_list_is_recalled_as_it_was_told(tmp_path: Path) -> None:
    told = Told(listed=(whole(0, numa=1), mig(1, 4), slice_(2, 0, healthy=False)), held=())
    last(tmp_path).keep(told)
    assert last(tmp_path).recall() == told


def test_an_mps_share_waits_for_its_daemon_to_be_verified_anew(tmp_path: Path) -> None:
    last(tmp_path).keep(EVERYTHING)
    recalled = {one.device_id: one for one in last(tmp_path).recall().listed}
    assert recalled[mps(3, 1).device_id] == replace(mps(3, 1), healthy=False)


def test_after_a_reboot_no_mig_share_is_told_since_its_instance_is_gone(tmp_path: Path) -> None:
    last(tmp_path).keep(Told(listed=EVERYTHING.listed, held=(mig(5, 0),)))
    recalled = last(tmp_path, "two").recall()
    assert {one.gpu_uuid for one in recalled.listed} == {gpu_uuid(0), gpu_uuid(2), gpu_uuid(3)}
    assert recalled.held == ()


def test_after_a_reboot_no_part_of_an_instance_is_told_either(tmp_path: Path) -> None:
    cut = replace(slice_(5, 0), device_id=f"{mig(5, 0).device_id}::0", visible=mig_uuid(5))
    last(tmp_path).keep(Told(listed=(slice_(2, 0), cut), held=(cut,)))
    assert last(tmp_path).recall().listed == (slice_(2, 0), cut)
    recalled = last(tmp_path, "two").recall()
    assert recalled == Told(listed=(slice_(2, 0),))


def test_a_restart_does_not_whitewash_what_was_ill(tmp_path: Path) -> None:
    last(tmp_path).keep(Told(listed=(whole(0, healthy=False), whole(1))))
    recalled = {one.device_id: one.healthy for one in last(tmp_path).recall().listed}
    assert recalled == {gpu_uuid(0): False, gpu_uuid(1): True}


@pytest.mark.parametrize("spoil", ["", "{", "[]", '{"version": 1}'])
def test_a_damaged_file_is_no_list(tmp_path: Path, spoil: str) -> None:
    last(tmp_path).keep(EVERYTHING)
    (tmp_path / "offered.json").write_text(spoil)
    assert last(tmp_path).recall() == Told()


def test_a_list_of_another_version_is_no_list(tmp_path: Path) -> None:
    last(tmp_path).keep(EVERYTHING)
    path = tmp_path / "offered.json"
    path.write_text(path.read_text().replace('"memory_mib"', '"memory_mib_of_another_version"'))
    assert last(tmp_path).recall() == Told()


def test_a_disk_that_refuses_leaves_no_old_list(tmp_path: Path) -> None:
    kept = last(tmp_path)
    kept.keep(EVERYTHING)
    (tmp_path / ".offered.json.new").mkdir()  # what is written first cannot be
    kept.keep(Told())
    assert not (tmp_path / "offered.json").exists()


SOME = st.sets(st.sampled_from([whole(0), mig(1, 4), slice_(2, 0), slice_(2, 1), mps(3, 1)]))


@given(before=SOME, after=SOME, held=SOME)
def test_under_way_only_what_stays_is_listed_and_everything_is_answered_for(
    before: set[object], after: set[object], held: set[object]
) -> None:
    old = Told(listed=tuple(before))  # type: ignore[arg-type]
    new = Told(listed=tuple(after), held=tuple(held - after))  # type: ignore[arg-type]
    stays = old.without(new)
    assert set(stays.listed) == before & after
    assert {*stays.listed, *stays.held} >= before | (held - after)
    assert not set(stays.listed) & set(stays.held)


def told_now(node: NodeBench) -> set[str]:
    """The ids that the file of the node's agent lists."""
    content = json.loads((node.settings.state_dir / "offered.json").read_text())["content"]
    return {one["device_id"] for one in content["listed"]}


async def test_the_next_agent_serves_the_last_list_before_it_knows_anything() -> None:
    """It cannot ask who holds what, so that no turn of its own comes to an end."""
    async with node_bench("2xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 2})
        await node.stop("agent")
        await node.until_allocatable({})
        socket = node.kubelet.settings.pod_resources_socket
        hidden = socket.rename(socket.with_name("hidden.sock"))

        agent = await node.start_agent(until_ready=False)

        await node.until_allocatable({"nvidia.com/gpu": 2})
        assert not agent.ready.is_set()
        assert agent.report.gpus == ()
        hidden.rename(socket)
        await node.until_event(agent.ready, node.tasks["agent"])


async def test_beside_another_plugin_for_our_gpus_the_last_list_is_not_told() -> None:
    """Project-HAMi/HAMi#661, #710, #1093: the last to register won, and pods got whole GPUs."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})
        await node.stop("agent")
        await node.until_allocatable({})
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(node.settings.plugin_dir / "nvidia-gpu.sock"))
            other.listen()
            early = Forerunner(node.settings)
            await early.start()
            try:
                assert early.told is None
                assert early.plugins.status() == ()
            finally:
                await early.plugins.stop()


async def test_shares_of_a_gpu_that_was_lost_meanwhile_are_withdrawn_by_the_first_look() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 2})
        await node.stop("agent")
        node.store().change(lambda machine: operate.lose(machine, "1"))

        await node.start_agent(until_ready=False)

        await node.until_allocatable({"nvidia.com/gpu": 1})


async def test_without_a_driver_nothing_of_the_last_list_can_be_handed_out() -> None:
    """NVIDIA/k8s-device-plugin#1641: GPUs were advertised that nobody could open."""
    async with node_bench("2xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 2})
        await node.stop("agent")
        gone = Failure(
            function="nvmlDeviceGetCount_v2", code=Code.DRIVER_NOT_LOADED, times=1_000_000
        )
        node.store().change(lambda machine: operate.fail_calls(machine, gone))

        agent = await node.start_agent(until_ready=False)

        def unhealthy() -> list[int]:
            return [one.unhealthy for one in agent._listing.plugins.status()]

        resource = "nvidia.com/gpu"
        await eventually(lambda: unhealthy() == [2])
        assert await agent._listing.plugins.wait_serving(10)
        await node.until_allocatable({})
        assert len(node.kubelet.table.get(resource).all) == 2, "whoever holds one keeps it"
        node.store().change(lambda machine: (replace(machine, failures=()), None))
        await node.until_allocatable({resource: 2})


async def test_the_file_follows_each_layout() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent()
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        await eventually(lambda: len(told_now(node)) == 4)
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"3g.40gb": 2}})
        await node.until_allocatable({"nvidia.com/mig-3g.40gb": 2})
        await node.until_served()
        await eventually(lambda: ["::3g.40gb-" in one for one in told_now(node)] == [True, True])
