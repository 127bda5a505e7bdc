"""MPS v3 on a node: each container reaches the limits of its own size, and no others."""

from __future__ import annotations

from pathlib import Path

from sharing.layout import GpuLayout
from sharing.mode import Mode
from sharing.mps.control3 import MpsControl3
from sharing.mps.program import MpsVersion, stand_in
from sharing.node.clients import daemons_of
from sharing.node.observed import Cuttable
from sharing.size import OneOf
from tests.support.agent_bench import node_bench

MIXED = {"1of2": 1, "1of4": 2}


def test_a_layout_of_several_sizes_makes_a_group_of_each() -> None:
    layout = GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 1), (OneOf(4), 2)))
    (daemon,) = daemons_of(
        {"GPU-a": layout}, [Cuttable(uuid="GPU-a", gpu_uuid="GPU-a", memory_mib=16384)]
    )
    assert [(one.name, one.memory_mib, one.thread_percentage) for one in daemon.groups] == [
        ("1of2", 8192, 50), ("1of4", 4096, 25),
    ]  # fmt: skip


async def test_containers_connect_through_the_folder_of_their_size() -> None:
    """Beside a GPU in MIG mode, which made MPS fail in NVIDIA/k8s-device-plugin#713."""
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.layout(
            {"gpus": "0", "mode": "mps", "sizes": MIXED},
            {"gpus": "1", "mode": "mig", "sizes": {"3g.40gb": 2}},
        )
        agent = await node.start_agent(mps_version=MpsVersion.V3)
        await node.until_allocatable(
            {"gpu.sharing/mps-1of2": 1, "gpu.sharing/mps-1of4": 2, "nvidia.com/mig-3g.40gb": 2}
        )
        uuid = node.machine().gpus[0].uuid
        folders = agent._daemons.folders(uuid)
        for size in MIXED:
            await node.run_pod(f"pod-{size}", f"gpu.sharing/mps-{size}")
            view = node.kubelet.view("default", f"pod-{size}", "main")
            assert view is not None
            env = dict(view.env)
            pipe = Path(env["CUDA_MPS_PIPE_DIRECTORY"])
            assert pipe == folders.pipe / "shares" / size
            assert str(pipe) in {mount.container_path for mount in view.mounts}
            assert str(folders.pipe) not in {mount.container_path for mount in view.mounts}
        control = MpsControl3(
            program=stand_in().speaking(MpsVersion.V3), folders=folders, timeout_s=10
        )
        threads = await control.ask(
            "namespace", "get", "1of4", "shares", "active-thread-percentage"
        )
        assert threads == "25"
