"""Reports against others that are about a whole node; each stands for its kind."""

from __future__ import annotations

from tests.support.agent_bench import node_bench


async def test_a_gpu_without_mig_is_served_beside_one_that_changes_its_instances() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1092: an L4 spoiled the whole node's list."""
    async with node_bench(["H100-80GB", "L4-24GB", "T4-16GB"]) as node:
        await node.start_controller()
        await node.layout(
            {"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 2}},
            {"gpus": "1", "mode": "mig", "sizes": {"1g.10gb": 2}},
            {"gpus": "2", "mode": "mps", "sizes": {"1of2": 2}},
        )
        await node.start_agent()

        served = {"nvidia.com/mig-1g.10gb": 2, "gpu.sharing/mps-1of2": 2, "nvidia.com/gpu": 1}
        await node.until_allocatable(served)
        status = await node.until_status(
            lambda s: any(one.reason == "LayoutRefused" for one in s.conditions)
        )
        ready = next(one for one in status.conditions if one.type == "Ready")
        assert ready.message.startswith("GPU 1: board L4-24GB")

        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"3g.40gb": 2}})
        await node.until_allocatable({"nvidia.com/mig-3g.40gb": 2, "nvidia.com/gpu": 2})


async def test_a_new_instance_starts_a_container_at_once() -> None:
    """HAMi#1903: the CDI file lacked the device when the container was to start."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})
        for number, profile in enumerate(("1g.10gb", "3g.40gb")):
            await node.layout({"gpus": "all", "mode": "mig", "sizes": {profile: 1}})
            await node.until_allocatable({f"nvidia.com/mig-{profile}": 1})
            pod = await node.run_pod(f"p{number}", f"nvidia.com/mig-{profile}")
            # The kubelet resolves CDI devices when it starts a container, and fails without.
            assert pod["status"]["phase"] == "Running"
            await node.delete_pod(f"p{number}")
