"""The agent on simulated GPUs, with a real gRPC kubelet and a real API server."""

from __future__ import annotations

from sharing.api.node import GpuNodeStatus
from sharing.cluster.kind import GPU_NODES
from tests.support.agent_bench import node_bench


async def test_a_gpu_that_nobody_gave_a_layout_is_offered_whole() -> None:
    async with node_bench("2xH100-80GB") as node:
        await node.start_agent()

        await node.until_allocatable({"nvidia.com/gpu": 2})
        status = await node.until_served()
        assert [gpu.board for gpu in status.gpus] == ["H100-80GB", "H100-80GB"]
        assert [len(gpu.shares) for gpu in status.gpus] == [1, 1]


async def test_four_modes_are_served_side_by_side_on_one_node() -> None:
    """openshift/instaslice-operator#96, #143: counts were patched by hand, and drifted."""
    async with node_bench("4xH100-80GB") as node:
        await node.start_controller()
        await node.layout(
            {"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}},
            {"gpus": "1", "mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
            {"gpus": "2", "mode": "time-slicing", "sizes": {"1of4": 4}, "pool": "team-a"},
            {"gpus": "rest", "mode": "exclusive"},
        )
        await node.start_agent()

        await node.until_allocatable(
            {
                "nvidia.com/gpu": 1,
                "nvidia.com/mig-1g.10gb": 4,
                "nvidia.com/mig-3g.40gb": 1,
                "gpu.sharing/mps-1of2": 1,
                "gpu.sharing/mps-1of4": 2,
                "team-a.gpu.sharing/timeslice-1of4": 4,
            }
        )
        status = await node.until_served()
        assert status.plan is None
        labels = node.nodes.get("n1")["metadata"]["labels"]  # type: ignore[index]
        assert labels["gpu.sharing/modes"] == "exclusive_mig_mps_time-slicing"
        assert labels["gpu.sharing/mps-1of4.memory-mib"] == str(81559 // 4)
        assert labels["gpu.sharing/board"] == "H100-80GB"


async def test_a_layout_change_under_a_holder_waits_and_goes_on_by_itself() -> None:
    """NVIDIA/k8s-device-plugin#240, #214: names of the old layout kept non-zero counts."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent()
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        await node.run_pod("train", "gpu.sharing/timeslice-1of4")

        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"3g.40gb": 2}})
        status = await node.until_status(lambda s: s.plan is not None and s.plan.blocked_by != ())
        assert status.plan is not None
        assert any("pod default/train" in one for one in status.plan.blocked_by)
        assert node.phase("train") == "Running"
        await node.until_allocatable({})

        await node.delete_pod("train")
        await node.until_allocatable({"nvidia.com/mig-3g.40gb": 2})
        await node.until_served()


async def test_instances_in_use_stay_and_the_new_layout_lies_around_them() -> None:
    """NVIDIA/k8s-device-plugin#992, #389: new MIG devices were offered after a restart only."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 7}})
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 7})
        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        (held,) = _held(await node.until_status(lambda status: bool(_held(status))))

        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"3g.40gb": 1, "1g.10gb": 1}})
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-3g.40gb": 1})
        status = await node.until_served()

        assert held in [share.id for gpu in status.gpus for share in gpu.shares]
        assert node.phase("train") == "Running"


def _held(status: GpuNodeStatus) -> list[str]:
    return [share.id for gpu in status.gpus for share in gpu.shares if share.holders]


async def test_an_unmanaged_node_is_left_alone() -> None:
    async with node_bench("1xH100-80GB", managed=False) as node:
        await node.start_agent()

        status = await node.until_status(lambda s: bool(s.conditions))
        ready = next(one for one in status.conditions if one.type == "Ready")
        assert ready.status == "False"
        assert "gpu.sharing/managed" in ready.message
        assert node.allocatable() == {}


async def test_a_malformed_spec_changes_nothing_and_is_told_of() -> None:
    async with node_bench("1xL4-24GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})

        uuid = node.status.gpus[0].uuid
        gpu = {"uuid": uuid, "layout": {"mode": "mig", "sizes": {"1g.10gb": 1}}}
        await node.client.patch(GPU_NODES, "n1", {"spec": {"gpus": [gpu]}})

        status = await node.until_status(
            lambda s: any(one.reason == "LayoutRefused" for one in s.conditions)
        )
        assert "has no MIG" in next(o.message for o in status.conditions if o.type == "Ready")
        assert node.allocatable() == {"nvidia.com/gpu": 1}
