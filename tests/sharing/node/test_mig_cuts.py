"""Shares cut from MIG instances: a real agent, kubelet and API server above simulated GPUs.

One node lives always; what else may happen to one is played with ``GPU_SHARING_PATIENT=1``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharing.api.node import GpuNodeStatus, ObservedShare
from sharing.catalogue import load
from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.mps.control import MpsControl
from sharing.mps.program import stand_in
from sharing.node.clients import mps_to_take_over
from sharing.node.health import HealthPolicy
from sharing.node.held import Hold
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import ProcessKind
from sharing.plugin.binding import EditSettings
from sharing.plugin.settings import AnswerSettings, Strategy
from sharing.quantity import parse_quantity
from sharing.size import OneOf
from tests.support.agent_bench import NodeBench, node_bench
from tests.support.nodeworld import World, bare_gpu
from tests.support.plugin_waiting import eventually

CUT: dict[str, Any] = {
    "gpus": "all",
    "mode": "mig",
    "sizes": {"1g.10gb": 1, "2g.20gb": 2},
    "cut": {
        "2g.20gb": {"mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
        "1g.10gb": {"mode": "time-slicing", "sizes": {"1of2": 2}},
    },
}
UNCUT = {"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 1, "2g.20gb": 2}}
HALF, QUARTER = "gpu.sharing/mig-2g.20gb.mps-1of2", "gpu.sharing/mig-2g.20gb.mps-1of4"
TURNS = "gpu.sharing/mig-1g.10gb.timeslice-1of2"
OFFERED = {HALF: 2, QUARTER: 4, TURNS: 2}
WHOLE = {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 2}
MIB = 20096
PATIENT = pytest.mark.skipif(
    os.environ.get("GPU_SHARING_PATIENT") != "1", reason="needs GPU_SHARING_PATIENT=1"
)
SIMULATED = AnswerSettings(strategy=Strategy.CDI_CRI, edits=EditSettings(simulated=True))


async def serve(node: NodeBench, entry: dict[str, Any] = CUT, **settings: Any) -> None:
    if "controller" not in node.tasks:
        await node.start_controller()
    await node.layout(entry)
    await node.start_agent(answers=SIMULATED, **settings)
    await node.until_allocatable(OFFERED if entry is CUT else WHOLE)


def held_share(status: GpuNodeStatus) -> ObservedShare:
    (share,) = [one for one in status.gpus[0].shares if one.holders]
    return share


async def until_held(node: NodeBench) -> ObservedShare:
    status = await node.until_status(lambda s: any(one.holders for one in s.gpus[0].shares))
    return held_share(status)


def mig_uuids(node: NodeBench) -> set[str]:
    return {one.mig_uuid for one in node.status.gpus[0].shares if one.mig_uuid is not None}


def control(node: NodeBench, mig_uuid: str) -> MpsControl:
    assert node.agent is not None
    folders = node.agent._daemons.folders(mig_uuid)
    return MpsControl(program=stand_in(), folders=folders, timeout_s=5.0)


async def check_container(node: NodeBench, share: ObservedShare) -> None:
    """It is bound to its part of one instance, and to that one's daemon."""
    view = node.kubelet.view("default", "serve", "main")
    assert view is not None
    env, nodes = dict(view.env), {one.path for one in view.nodes}
    gpu = node.machine().gpus[0]
    place = share.id.rpartition("::")[0]
    (instance,) = [one for one in gpu.instances if place == f"{gpu.uuid}::2g.20gb-{one.start}"]

    assert env["NVIDIA_VISIBLE_DEVICES"] == share.mig_uuid
    assert env["GPU_SHARING_DEVICES"] == share.mig_uuid
    assert env["GPU_SHARING_RESOURCE"] == QUARTER
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={MIB // 4}M"
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    caps = {path for path in nodes if path.startswith("/dev/nvidia-caps/")}
    first = 3 + instance.id * 9
    assert caps == {f"/dev/nvidia-caps/nvidia-cap{first + n}" for n in (0, 1)}
    assert "/dev/nvidia0" in nodes
    pipe = env["CUDA_MPS_PIPE_DIRECTORY"]
    assert pipe == str(control(node, share.mig_uuid or "").folders.pipe)
    assert pipe in {one.container_path for one in view.mounts}


def visible_to(pid: int | None) -> str:
    """What a process was told to use."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(each.split("=", 1) for each in variables if each)["CUDA_VISIBLE_DEVICES"]


async def check_daemons(node: NodeBench) -> None:
    """Each MIG device has a daemon of its own, with the limits of the instance."""
    assert node.agent is not None
    daemons = node.agent._daemons.states()
    assert len(daemons) == 2
    assert all(one.ready and one.device_uuid.startswith("MIG-") for one in daemons)
    assert all(visible_to(one.pid) == one.device_uuid for one in daemons)
    assert node.machine().gpus[0].compute_mode == 0, "the driver refuses another one in MIG mode"
    said = await control(node, daemons[0].device_uuid).ask(
        "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0"
    )
    assert said.split() == ["50.0", f"{MIB // 2 // 1024}G"]


def check_amounts(node: NodeBench) -> None:
    """Accounting covers all shares; labels name the memory of their smallest."""
    item = node.nodes.get("n1")
    assert item is not None
    labels = item["metadata"]["labels"]
    assert labels["gpu.sharing/mig-2g.20gb.mps-1of4.memory-mib"] == str(MIB // 4)
    assert labels["gpu.sharing/modes"] == "mps_time-slicing"
    worth = sum(one.milli for one in node.status.gpus[0].shares)
    capacity = parse_quantity(item["status"]["capacity"]["gpu.sharing/milli-gpu"])
    assert capacity == max(1000, worth)


async def test_instances_are_shared_and_neither_cut_otherwise_nor_destroyed_under_a_holder() -> (
    None
):
    async with node_bench("1xH100-80GB") as node:
        await serve(node)
        await check_daemons(node)
        pod = await node.run_pod("serve", QUARTER)
        assert pod["status"]["phase"] == "Running"
        share = await until_held(node)
        assert share.memory_mib == MIB // 4
        # 2 of 7 slices are more than 20096 of 81559 MiB; a quarter of them.
        assert share.milli == 72
        await check_container(node, share)
        check_amounts(node)
        before = {one.id for one in node.machine().gpus[0].instances}

        await node.layout(UNCUT)
        status = await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        assert status.plan is not None
        assert all(f"pod default/serve holds {share.id}" in one for one in status.plan.blocked_by)
        # The instances that nobody holds are whole again.
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 1})
        assert await control(node, share.mig_uuid or "").servers() == ()

        await node.delete_pod("serve")
        await node.until_allocatable(WHOLE)
        assert {one.id for one in node.machine().gpus[0].instances} == before
        assert node.agent is not None
        assert node.agent._daemons.states() == ()


@PATIENT
async def test_a_lost_daemon_takes_only_its_own_instances_shares() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node)
        assert node.agent is not None
        victim, other = node.agent._daemons.states()

        await control(node, victim.device_uuid).quit()

        daemons = node.agent._daemons
        await eventually(lambda: daemons.states()[0].starts > victim.starts)
        await node.until_allocatable(OFFERED)
        still = daemons.state(other.device_uuid)
        assert still is not None
        assert (still.pid, still.starts) == (other.pid, other.starts)


@PATIENT
async def test_an_instance_that_a_pod_holds_whole_is_cut_when_it_is_free() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node, UNCUT)
        await node.run_pod("train", "nvidia.com/mig-2g.20gb")
        await until_held(node)

        await node.layout(CUT)
        await node.until_allocatable({HALF: 1, QUARTER: 2, TURNS: 2})
        await node.delete_pod("train")
        await node.until_allocatable(OFFERED)


@PATIENT
async def test_an_error_that_one_instance_contains_takes_its_shares_alone() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node, health=HealthPolicy(quiet_s=600.0))
        victim = next(one for one in node.machine().gpus[0].instances if one.start == 4)
        for _ in range(3):
            node.store().change(
                lambda machine: operate.report_xid(machine, "0", 94, gi_id=victim.id)
            )

        await node.until_allocatable({HALF: 1, QUARTER: 2, TURNS: 2})
        status = await node.until_status(
            lambda s: sum(one.fault is not None for one in s.gpus[0].shares) == 3
        )
        ill = [one for one in status.gpus[0].shares if one.fault is not None]
        assert all("::2g.20gb-4::" in one.id for one in ill)
        assert status.gpus[0].health.healthy


@PATIENT
async def test_processes_of_an_instance_are_put_down_to_the_pods_that_share_it() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node)
        assert node.agent is not None
        pod = await node.run_pod("serve", HALF)
        share = await until_held(node)
        uid = str(pod["metadata"]["uid"]).replace("-", "_")
        start = int(share.id.rpartition("::")[0].rpartition("-")[2])
        instance = next(one for one in node.machine().gpus[0].instances if one.start == start)
        node.store().change(
            lambda machine: operate.start_process(
                machine,
                "0",
                kind=ProcessKind.MPS,
                gi_id=instance.id,
                memory_mib=700,
                cgroup=f"/kubepods.slice/kubepods-pod{uid}.slice/crio-{'a' * 64}.scope",
            )
        )
        agent = node.agent

        def seen() -> bool:
            use = agent.report.accounts.uses.get(share.id)
            return use is not None and use.mps_clients == 1 and use.memory_mib == 700

        await eventually(seen)
        assert agent.report.accounts.strangers == {}


@PATIENT
async def test_limits_of_the_driver_are_not_set_for_parts_of_instances() -> None:
    async with node_bench("1xH100-80GB") as node:
        node.store().change(lambda machine: (replace(machine, driver_version="615.10"), None))
        await serve(node, enforce_memory=True)
        pod = await node.run_pod("turns", TURNS)
        share = await until_held(node)
        start = int(share.id.rpartition("::")[0].rpartition("-")[2])
        instance = next(one for one in node.machine().gpus[0].instances if one.start == start)
        uid = str(pod["metadata"]["uid"]).replace("-", "_")
        node.store().change(
            lambda machine: operate.start_process(
                machine,
                "0",
                gi_id=instance.id,
                cgroup=f"/kubepods.slice/kubepods-pod{uid}.slice/crio-{'a' * 64}.scope",
            )
        )
        assert node.agent is not None
        agent = node.agent
        await eventually(lambda: any(one.pids for one in agent.report.accounts.uses.values()))
        assert node.machine().gpus[0].memory_limits == ()


@PATIENT
async def test_the_daemon_of_an_instance_that_others_destroy_ends_and_another_comes() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node)
        victim = next(one for one in node.machine().gpus[0].instances if one.start == 4)
        assert node.agent is not None
        daemons = node.agent._daemons
        before = {one.device_uuid: one.pid for one in daemons.states()}

        node.store().change(lambda machine: operate.destroy_instance(machine, "0", victim.id))

        def made_anew() -> bool:
            now = {one.device_uuid: one.pid for one in daemons.states() if one.ready}
            return len(now) == 2 and set(now.values()) != set(before.values())

        await eventually(made_anew)
        await node.until_allocatable(OFFERED)


def test_daemons_are_taken_over_by_what_they_served_or_by_who_is_there() -> None:
    profile, halves = MigProfile.parse("3g.40gb"), GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 2),))
    plain = GpuLayout(mode=Mode.MIG, sizes=((profile, 2),))
    cut = replace(plain, cuts=((profile, halves),))
    world = World(gpu=bare_gpu(load().board("H100-80GB")), wanted=cut)
    world.settle()
    at = {one.device_id("GPU-0"): one.mig_uuid for one in world.gpu.instances}
    resource = "team-a.gpu.sharing/mig-3g.40gb.mps-1of4"
    hold = Hold(device_id="GPU-0::3g.40gb-4::1", resource=resource)

    assert set(mps_to_take_over(world.gpu, (), cut, cut)) == set(at.values())
    assert mps_to_take_over(world.gpu, (), cut, plain) == {}
    mine = at["GPU-0::3g.40gb-4"]
    assert mps_to_take_over(world.gpu, (hold,), cut, plain) == {mine: halves}
    quarter = GpuLayout(mode=Mode.MPS, sizes=((OneOf(4), 1),))
    assert mps_to_take_over(world.gpu, (hold,), None, plain) == {mine: quarter}
    whole = replace(world.gpu, mig_enabled=False, instances=())
    assert mps_to_take_over(whole, (hold,), None, plain) == {}


@PATIENT
async def test_the_idle_server_of_an_instances_daemon_holds_it_not() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node)
        (share, *_) = [one for one in node.status.gpus[0].shares if one.resource == HALF]
        start = int(share.id.rpartition("::")[0].rpartition("-")[2])
        instance = next(one for one in node.machine().gpus[0].instances if one.start == start)
        ask = control(node, share.mig_uuid or "").ask
        server = int(await ask("standin_attach 7001 1000"))
        await ask("standin_detach 7001")
        node.store().change(
            lambda machine: operate.start_process(
                machine, "0", name="nvidia-cuda-mps-server", pid=server, gi_id=instance.id
            )
        )

        await node.layout(UNCUT)
        await node.until_allocatable(WHOLE)


@PATIENT
async def test_the_next_agent_takes_the_daemons_over_with_their_clients() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node, leave_mps_running=True)
        await node.run_pod("serve", HALF)
        await until_held(node)
        assert node.agent is not None
        pids = {one.device_uuid: one.pid for one in node.agent._daemons.states()}
        await node.stop("agent")

        await serve(node)
        assert {one.device_uuid: one.pid for one in node.agent._daemons.states()} == pids
        assert node.phase("serve") == "Running"


@PATIENT
async def test_after_a_reboot_instances_and_daemons_are_made_anew() -> None:
    async with node_bench("1xH100-80GB") as node:
        await serve(node)
        before = mig_uuids(node)
        await node.stop("agent")
        node.store().change(operate.reboot)

        await serve(node)
        assert len(mig_uuids(node)) == len(before) == 3
        assert node.agent is not None
        assert len(node.agent._daemons.states()) == 2
