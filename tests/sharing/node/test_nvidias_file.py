"""An agent that is given the configuration file of NVIDIA's device plugin serves what it says."""

from __future__ import annotations

import structlog

from tests.support.agent_bench import node_bench

CONFIG = """
version: v1
flags: {failOnInitError: false}
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 2, devices: [0]}]
  mps:
    resources: [{name: nvidia.com/gpu, replicas: 4, devices: [1], rename: team-a}]
"""


async def test_an_agent_serves_the_file_and_says_what_it_did_not_carry_over() -> None:
    async with node_bench("3xH100-80GB") as node:
        file = node.folder / "config.yaml"
        file.write_text(CONFIG, "utf-8")
        with structlog.testing.capture_logs() as logs:
            await node.start_agent(layout_file=file)
            await node.until_allocatable(
                {
                    "nvidia.com/gpu": 1,
                    "gpu.sharing/timeslice-1of2": 2,
                    "team-a.gpu.sharing/mps-1of4": 4,
                }
            )

        said = [one["reason"] for one in logs if "not carried over" in one["event"]]
        assert len(said) == len(set(said)) == 2
        assert any("failOnInitError" in one for one in said)
        assert any("pool team-a" in one for one in said)
