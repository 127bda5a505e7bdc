"""What drivers, technicians and other programs do to a node, and that no person is needed."""

from __future__ import annotations

import socket
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharing.catalogue import load
from sharing.cluster.kind import EVENTS, GPU_NODES, NODES
from sharing.layout import GpuLayout
from sharing.mode import Mode
from sharing.node.acquaintance import Acquaintance
from sharing.node.gpus import Gpus
from sharing.node.held import Held
from sharing.node.memory import Memory, recall
from sharing.node.observed import gpu_state
from sharing.node.plan import Kubelet
from sharing.node.planning import plan_gpu
from sharing.node.reset import ResetError, by_command
from sharing.node.retreat import RetreatPolicy
from sharing.node.step import ResetGpu
from sharing.node.target import Offered
from sharing.nvml import simulator
from sharing.nvml.codes import Code, RecoveryAction
from sharing.nvml.driver import Driver
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure, Machine, ProcessKind
from sharing.nvml.simulator.store import Store
from tests.support.agent_bench import NodeBench, node_bench

HASTY = RetreatPolicy(failures=3, first_s=1.0, longest_s=1.0)
MIG = {"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 2}}


async def events(node: NodeBench, reason: str, kind: str = "GPUNode") -> list[str]:
    """The messages of Events; every one that was recorded is written."""
    assert node.agent is not None
    assert node.agent._api is not None
    await node.agent._api.events.drain()
    listed = await node.client.list(EVENTS)
    return [
        str(one["message"])
        for one in listed["items"]
        if one["reason"] == reason and one["involvedObject"]["kind"] == kind
    ]


def alter(node: NodeBench, which: str, **changes: Any) -> None:
    """Change simulated hardware, as a hypervisor or a technician would."""

    def step(machine: Machine) -> tuple[Machine, None]:
        gpu = replace(operate.find(machine, which), **changes)
        return operate.with_gpu(machine, gpu), None

    node.store().change(step)


async def test_a_layout_that_the_driver_refuses_gives_way_to_the_one_before_until_it_works() -> (
    None
):
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent(retreat=HASTY)
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        failure = Failure(
            function="nvmlDeviceCreateGpuInstanceWithPlacement",
            code=Code.UNKNOWN,
            times=10_000,
        )
        node.store().change(lambda machine: operate.fail_calls(machine, failure))

        await node.layout(MIG)
        status = await node.until_status(
            lambda s: (
                any(one.reason == "LayoutFailed" for one in s.conditions)
                and s.gpus[0].layout is not None
            )
        )
        ready = next(one for one in status.conditions if one.type == "Ready")
        assert "mig 2x 1g.10gb failed" in ready.message
        assert "back to time-slicing 4x 1of4" in ready.message
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        assert await events(node, "LayoutFailed")

        node.store().change(lambda machine: (replace(machine, failures=()), None))
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        await node.until_served()


async def test_before_hopper_a_hidden_client_delays_the_mode_and_other_gpus_run_on() -> None:
    """NVIDIA/gpu-operator#2833: a client that did not go in time left the node pending for ever."""
    async with node_bench("2xA100-40GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "1", "mode": "mig", "sizes": {"3g.20gb": 2}})
        await node.start_agent(retreat=RetreatPolicy(failures=1000))
        await node.until_allocatable({"nvidia.com/gpu": 1, "nvidia.com/mig-3g.20gb": 2})
        await node.run_pod("train", "nvidia.com/mig-3g.20gb")
        beside = node.machine().gpus[1].instances
        exporter = node.store().change(
            lambda machine: operate.start_process(
                machine, "0", kind=ProcessKind.MONITOR, memory_mib=0
            )
        )

        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"3g.20gb": 2}})
        status = await node.until_status(
            lambda s: s.plan is not None and any("into force" in one for one in s.plan.steps)
        )
        assert status.plan is not None
        assert not any("switch MIG mode" in one for one in status.plan.steps)
        await node.until_status(
            lambda s: s.plan is not None and any("holds the GPU" in b for b in s.plan.blocked_by)
        )

        node.store().change(lambda machine: operate.stop_process(machine, exporter.pid))
        await node.until_allocatable({"nvidia.com/mig-3g.20gb": 4})
        assert node.machine().gpus[1].instances == beside
        assert node.phase("train") == "Running"


async def test_in_a_virtual_machine_a_mode_change_says_that_it_needs_a_restart_of_the_node() -> (
    None
):
    """NVIDIA/gpu-operator#1606, #668, kubernetes-sigs/dra-driver-nvidia-gpu#883: reboot loops."""
    async with node_bench("1xA100-40GB") as node:
        alter(node, "0", passed_through=True)
        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"3g.20gb": 2}})
        await node.start_agent(until_ready=False)

        await node.until_status(
            lambda s: s.plan is not None and any("restart the node" in b for b in s.plan.blocked_by)
        )
        await node.stop("agent")
        node.store().change(operate.reboot)
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-3g.20gb": 2})


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Path, str]:
    """A machine with an A100 whose MIG mode waits for a reset, and the GPU's UUID."""
    path = tmp_path / "gpus.json"
    machine = simulator.create(path, "2xA100-40GB")
    uuid = machine.gpus[0].uuid

    def step(now: Machine) -> tuple[Machine, None]:
        held = replace(operate.find(now, uuid), passed_through=True, mig_pending=True)
        return operate.with_gpu(now, held), None

    Store(path).change(step)
    return path, uuid


def nvidia_smi(folder: Path, state: Path) -> str:
    """A command with nvidia-smi's options that resets simulated GPUs."""
    script = folder / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\n[ \"$1 $2\" = '--gpu-reset -i' ] || exit 2\n"
        f'exec {sys.executable} -m cli.main gpu --state {state} reset "$3"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def test_a_mode_that_waits_on_an_idle_gpu_is_planned_as_a_reset_of_that_gpu(
    waiting: tuple[Path, str],
) -> None:
    path, uuid = waiting
    with Driver(path) as driver:
        (gpu, other) = (gpu_state(one) for one in driver.observe().gpus)
    layout = GpuLayout(mode=Mode.MIG)
    nobody = Kubelet(held=Held(), offered=frozenset())

    assert ResetGpu(gpu=uuid, enabled=True) in plan_gpu(gpu, layout, nobody, served=None).ready
    ready = plan_gpu(other, layout, nobody, served=None).ready
    assert not any(isinstance(step, ResetGpu) for step in ready)


async def test_a_reset_by_command_brings_the_mode_of_one_gpu_into_force(
    waiting: tuple[Path, str], tmp_path: Path
) -> None:
    path, uuid = waiting
    command = nvidia_smi(tmp_path, path)
    gpus = Gpus(path, lambda _: None, wait_s=0.05, reset_by=by_command(command))
    await gpus.open()
    try:
        await gpus.reset_for_mode(uuid, enabled=True)

        modes = [gpu.mig_mode for gpu in (await gpus.look()).node.gpus]
        assert modes == [True, False]
    finally:
        await gpus.close()


async def test_a_gpu_in_use_is_never_reset(waiting: tuple[Path, str], tmp_path: Path) -> None:
    path, uuid = waiting
    Store(path).change(lambda machine: operate.start_process(machine, uuid))
    resets: list[str] = []
    gpus = Gpus(path, lambda _: None, wait_s=0.05, reset_by=resets.append)
    await gpus.open()
    try:
        with pytest.raises(Exception, match="while process 4001 uses it"):
            await gpus.reset_for_mode(uuid, enabled=True)
        assert resets == []
    finally:
        await gpus.close()


@pytest.mark.parametrize("command", ["/nonexistent/nvidia-smi", "false"])
def test_a_reset_that_fails_says_what_to_do(command: str) -> None:
    with pytest.raises(ResetError, match="nvidia-smi --gpu-reset -i GPU-1"):
        by_command(command)("GPU-1")


async def test_beside_nvidias_device_plugin_nothing_is_offered_until_it_is_gone() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})
        path = node.settings.plugin_dir / "nvidia-gpu.sock"
        with socket.socket(socket.AF_UNIX) as plugin:
            plugin.bind(str(path))
            plugin.listen()
            await node.stop("agent")
            await node.start_agent(until_ready=False)

            status = await node.until_status(
                lambda s: any(
                    one.type == "Undisputed" and one.status == "False" for one in s.conditions
                )
            )
            ready = next(one for one in status.conditions if one.type == "Ready")
            assert ready.status == "False"
            assert "nvidia-gpu.sock" in ready.message
            await node.until_allocatable({})
            assert await events(node, "ManagementConflict", kind="Node")

        assert path.exists()  # a dead socket is no rival
        await node.until_allocatable({"nvidia.com/gpu": 1})


async def test_beside_a_mig_manager_mig_is_left_alone_and_the_rest_is_served() -> None:
    async with node_bench("2xH100-80GB") as node:
        labels = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "success"}
        await node.client.patch(NODES, "n1", {"metadata": {"labels": labels}})
        await node.start_controller()
        await node.layout(MIG, {"gpus": "1", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.start_agent(until_ready=False)

        status = await node.until_status(
            lambda s: any(one.reason == "LayoutRefused" for one in s.conditions)
        )
        ready = next(one for one in status.conditions if one.type == "Ready")
        assert "acts on nvidia.com/mig.config=all-1g.10gb" in ready.message
        await node.until_allocatable({"nvidia.com/gpu": 1, "gpu.sharing/timeslice-1of2": 2})
        assert not node.machine().gpus[0].mig_current

        gone = dict.fromkeys(labels)
        await node.client.patch(NODES, "n1", {"metadata": {"labels": gone}})
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2, "gpu.sharing/timeslice-1of2": 2})


MIG_CONFIGS = """
version: v1
mig-configs:
  small:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  - {devices: [1], mig-enabled: false}
"""


async def test_nvidias_label_is_honoured_and_answered_only_where_that_was_asked_for() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.client.patch(
            NODES, "n1", {"metadata": {"labels": {"nvidia.com/mig.config": "small"}}}
        )
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 2})
        await node.stop("agent")

        file = node.folder / "mig.yaml"
        file.write_text(MIG_CONFIGS, "utf-8")
        await node.start_agent(mig_configs=file)
        await node.until_allocatable({"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7})
        await node.until(node.nodes, lambda: state(node) == "success", lambda: state(node))

        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        await node.client.patch(
            NODES, "n1", {"metadata": {"labels": {"nvidia.com/mig.config": "all-disabled"}}}
        )
        await node.until(node.nodes, lambda: state(node) == "pending", lambda: state(node))
        assert node.phase("train") == "Running"
        await node.client.patch(
            NODES, "n1", {"metadata": {"labels": {"nvidia.com/mig.config": "small"}}}
        )
        await node.until(node.nodes, lambda: state(node) == "success", lambda: state(node))

        await node.client.patch(
            NODES, "n1", {"metadata": {"labels": {"nvidia.com/mig.config": "odd"}}}
        )
        await node.until(node.nodes, lambda: state(node) == "failed", lambda: state(node))
        assert node.allocatable() == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7}

        await node.client.patch(
            NODES, "n1", {"metadata": {"labels": {"nvidia.com/mig.config": None}}}
        )
        await node.until(node.nodes, lambda: state(node) is None, lambda: state(node))
        assert node.allocatable() == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7}


async def test_mig_parteds_file_is_applied_and_one_that_does_not_suit_the_gpus_is_told_of() -> None:
    async with node_bench(["A30-24GB", "L4-24GB"]) as node:
        file = node.folder / "mig.yaml"
        file.write_text(MIG_CONFIGS.replace("[1]", "[9]"), "utf-8")
        await node.start_agent(layout_file=file, mig_config="all-balanced")
        await node.until_allocatable(
            {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.6gb": 2, "nvidia.com/mig-2g.12gb": 1}
        )

        file.write_text(
            "{version: v1, mig-configs: {all-balanced: [{devices: [1], mig-enabled: true, "
            "mig-devices: {1g.6gb: 1}}]}}",
            "utf-8",
        )
        status = await node.until_status(
            lambda s: any(one.reason == "SpecInvalid" for one in s.conditions)
        )
        ready = next(one for one in status.conditions if one.type == "Ready")
        assert "its board L4-24GB has no MIG" in ready.message
        assert node.allocatable() == {
            "nvidia.com/gpu": 1,
            "nvidia.com/mig-1g.6gb": 2,
            "nvidia.com/mig-2g.12gb": 1,
        }


def state(node: NodeBench) -> str | None:
    item = node.nodes.get("n1")
    assert item is not None
    label: str | None = item["metadata"]["labels"].get("nvidia.com/mig.config.state")
    return label


async def test_a_layout_in_the_names_of_the_driver_before_is_served_in_the_new_ones() -> None:
    async with node_bench("1xH100-80GB") as node:
        uuid = node.machine().gpus[0].uuid
        gpu = {"uuid": uuid, "layout": {"mode": "mig", "sizes": {"1g.9gb": 2}}}
        before = Acquaintance(pci_bus_id="", day=0, profiles={"1g.9gb": 0})
        node.settings.state_dir.mkdir()
        Memory(gpus={uuid: before}).save(node.settings.state_dir / "memory.json")
        await node.client.create(
            GPU_NODES,
            {
                "apiVersion": "gpu.sharing/v1alpha1",
                "kind": "GPUNode",
                "metadata": {"name": "n1"},
                "spec": {"gpus": [gpu]},
            },
        )

        await node.start_agent()

        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        status = await node.until_served()
        ready = next(one for one in status.conditions if one.type == "Ready")
        assert "1g.9gb is now 1g.10gb" in ready.message


async def test_a_gpu_that_was_swapped_is_served_as_the_new_one_and_the_old_one_is_forgotten() -> (
    None
):
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent()
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 8})
        await node.stop("agent")
        old = node.machine().gpus[0].uuid
        node.store().change(lambda machine: operate.swap(machine, "0", load().board("H200-141GB")))
        node.store().change(operate.reboot)

        await node.start_agent()

        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 8})
        status = await node.until_served()
        assert [gpu.board for gpu in status.gpus] == ["H200-141GB", "H100-80GB"]
        memory = recall(node.settings.state_dir / "memory.json")
        assert old not in memory.gpus
        assert old not in memory.applied


async def test_layouts_follow_their_gpus_when_a_reboot_shuffles_the_indices() -> None:
    async with node_bench("2xH100-80GB") as node:
        first, second = (gpu.uuid for gpu in node.machine().gpus)
        (node.folder / "layout.yaml").write_text(
            f"- {{gpus: 'uuid:{first}', mode: mig, sizes: {{1g.10gb: 2}}}}\n"
            f"- {{gpus: 'uuid:{second}', mode: time-slicing, sizes: {{1of2: 2}}}}\n",
            "utf-8",
        )
        offer = {"nvidia.com/mig-1g.10gb": 2, "gpu.sharing/timeslice-1of2": 2}
        await node.start_agent(layout_file=node.folder / "layout.yaml")
        await node.until_allocatable(offer)
        await node.stop("agent")

        node.store().change(lambda machine: operate.reboot(machine, [1, 0]))
        await node.start_agent(layout_file=node.folder / "layout.yaml")

        await node.until_allocatable(offer)
        status = await node.until_status(lambda s: s.gpus[0].uuid == second and s.plan is None)
        assert [gpu.uuid for gpu in status.gpus] == [second, first]
        assert [gpu.mig_enabled for gpu in status.gpus] == [False, True]


async def test_what_the_kubelet_was_told_counts_as_handed_out_until_it_is_withdrawn() -> None:
    async with node_bench("1xH100-80GB") as node:
        agent = await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})
        uuid = node.machine().gpus[0].uuid
        assert agent._listing.told == {Offered("nvidia.com/gpu", uuid)}

        await node.client.patch(GPU_NODES, "n1", {"spec": {"gpus": [sliced(uuid)]}})
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        assert agent._listing.told == {
            Offered("gpu.sharing/timeslice-1of2", f"{uuid}::{number}") for number in range(2)
        }


def sliced(uuid: str) -> dict[str, Any]:
    return {"uuid": uuid, "layout": {"mode": "time-slicing", "sizes": {"1of2": 2}}}


async def test_a_blocked_plan_and_a_fault_are_told_of_as_events() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 2})
        await node.run_pod("train", "nvidia.com/gpu", 2)
        await node.layout(MIG)
        await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        (blocked,) = await events(node, "LayoutBlocked")
        assert "waits to become mig 2x 1g.10gb" in blocked
        assert "pod default/train" in blocked

        node.store().change(
            lambda machine: operate.report_xid(machine, "1", 48, recovery=RecoveryAction.NONE)
        )
        await node.until_status(lambda s: not s.gpus[1].health.healthy)
        (fault,) = await events(node, "GpuUnhealthy", kind="Node")
        assert "takes no new work: Xid48" in fault
