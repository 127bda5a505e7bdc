"""``gpu-sharing status``: a table that is readable at 100 columns, from a real API server."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial

from sharing.node.excess import ExcessPolicy
from sharing.nvml.simulator import operate
from tests.support.agent_bench import NodeBench, node_bench


async def status(node: NodeBench, *arguments: str) -> str:
    """What it prints, as a process of its own: this one's agent logs to the same output."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "status", *arguments,
        "--kubeconfig", str(node.folder / "kubeconfig"), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await program.communicate()
    return printed.decode()


async def test_who_takes_too_much_and_who_stays_too_long_is_shown() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent(excess=ExcessPolicy(grace_s=0.0))
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        pod = await node.run_pod("train", "gpu.sharing/timeslice-1of4")
        cgroup = f"/kubepods/pod{pod['metadata']['uid']}/{'c' * 64}"
        start = partial(operate.start_process, which="0", memory_mib=30_000, cgroup=cgroup)
        node.store().change(start)
        await node.until_status(lambda s: any(x.over_budget_since for x in s.gpus[0].shares))
        assert "container main; above its memory since 20" in (await status(node, "n1"))

        await node.delete_pod("train")
        await node.until_status(lambda s: any(x.fault for x in s.gpus[0].shares))
        assert ": StillInUse: process 4001 of pod" in (await status(node, "n1"))


async def test_gpus_layouts_holders_and_troubles_are_shown() -> None:
    async with node_bench("2xH100-80GB") as node:
        nothing = await status(node)
        assert "no GPUs are known" in nothing

        await node.start_controller()
        await node.layout({"gpus": "0", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}})
        await node.start_agent()
        await node.until_allocatable(
            {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 1}
        )
        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        await node.until_status(lambda s: any(x.holders for g in s.gpus for x in g.shares))

        table = (await status(node)).splitlines()
        assert table[0].split() == ["NODE", "GPU", "BOARD", "LAYOUT", "HELD", "HEALTH"]
        assert "mig 1x 3g.40gb 4x 1g.10gb  1/5   healthy" in table[1]
        assert max(len(line) for line in table) <= 100

        one = await status(node, "n1")
        assert "nvidia.com/mig-1g.10gb is held by default/train, container main" in one

        await node.layout({"gpus": "0", "mode": "exclusive"})
        await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        assert "n1: Ready is False, LayoutBlocked: pod default/train" in (await status(node))

        plain = json.loads(await status(node, "--json"))
        assert plain[0]["node"] == "n1"
        assert len(plain[0]["status"]["gpus"]) == 2
