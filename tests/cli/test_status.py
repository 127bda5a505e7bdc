"""``gpu-sharing status``: a table that is readable at 100 columns, from a real API server."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner, Result

from cli.main import cli
from tests.support.agent_bench import NodeBench, node_bench


async def status(node: NodeBench, *arguments: str) -> Result:
    options = ["status", *arguments, "--kubeconfig", str(node.folder / "kubeconfig")]
    return await asyncio.to_thread(CliRunner().invoke, cli, options)


async def test_gpus_layouts_holders_and_troubles_are_shown() -> None:
    async with node_bench("2xH100-80GB") as node:
        nothing = await status(node)
        assert "no GPUs are known" in nothing.output

        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}})
        await node.start_agent()
        await node.until_allocatable(
            {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 1}
        )
        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        await node.until_status(lambda s: any(x.holders for g in s.gpus for x in g.shares))

        table = (await status(node)).output.splitlines()
        assert table[0].split() == ["NODE", "GPU", "BOARD", "LAYOUT", "HELD", "HEALTH"]
        assert "mig 1x 3g.40gb 4x 1g.10gb  1/5   healthy" in table[1]
        assert max(len(line) for line in table) <= 100

        one = (await status(node, "n1")).output
        assert "nvidia.com/mig-1g.10gb is held by default/train, container main" in one

        await node.layout({"gpus": "0", "mode": "exclusive"})
        await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        assert "n1: Ready is False, LayoutBlocked: pod default/train" in (await status(node)).output

        plain = json.loads((await status(node, "--json")).output)
        assert plain[0]["node"] == "n1"
        assert len(plain[0]["status"]["gpus"]) == 2
