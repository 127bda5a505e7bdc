"""The agent of a bench as a process of its own, quick to look and quick to give a layout up.

``python -m tests.support.hasty_agent FOLDER`` serves node ``n1`` of the bench in FOLDER.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cli import logs
from cli.service import serve
from sharing.cluster.client import Client
from sharing.node.agent import Agent
from sharing.node.retreat import RetreatPolicy
from sharing.node.settings import AgentSettings
from tests.support.agent_bench import QUICK, QUICK_HEALTH


async def run(folder: Path) -> None:
    settings = AgentSettings(
        node="n1",
        kubelet_dir=folder / "k",
        cdi_dir=folder / "cdi",
        state_dir=folder / "s",
        mps_dir=folder / "m",
        simulate=folder / "gpus.json",
        tempo=QUICK,
        health=QUICK_HEALTH,
        retreat=RetreatPolicy(failures=2, first_s=3600.0),
    )
    async with Client.from_kubeconfig(folder / "kubeconfig") as client:
        agent = Agent(settings, client)
        await serve(agent.run(), agent.ready, lambda: "agent is ready")


if __name__ == "__main__":
    logs.configure()
    asyncio.run(run(Path(sys.argv[1])))
