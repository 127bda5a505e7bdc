"""A board that the catalogue does not know is served from what its driver says."""

from __future__ import annotations

from dataclasses import replace

from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Machine
from tests.support.agent_bench import node_bench


def unheard_of(machine: Machine) -> tuple[Machine, None]:
    gpu = replace(machine.gpus[0], product="NVIDIA Z999 Unheard Of")
    return operate.with_gpu(machine, gpu), None


async def test_an_unknown_board_is_served_in_every_mode() -> None:
    """nebuly-ai/nos#21: a model missing from a static table was an error."""
    async with node_bench("1xRTX-PRO-6000-96GB") as node:
        node.store().change(unheard_of)
        await node.start_controller()
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})
        assert node.status.gpus[0].board == "NVIDIA Z999 Unheard Of"

        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"2g.48gb": 1, "1g.24gb+me": 1}})
        await node.until_allocatable({"nvidia.com/mig-2g.48gb": 1, "nvidia.com/mig-1g.24gb.me": 1})
        status = await node.until_served()
        assert sorted(share.memory_mib for share in status.gpus[0].shares) == [24192, 48512]
        pod = await node.run_pod("train", "nvidia.com/mig-2g.48gb")
        assert pod["status"]["phase"] == "Running"
        await node.delete_pod("train")

        await node.layout({"gpus": "all", "mode": "mps", "sizes": {"1of4": 4}})
        await node.until_allocatable({"gpu.sharing/mps-1of4": 4})
