"""The agent as a process that can be told to kill itself at a point of its journal.

Everything is the real agent's; only the journal has a trigger. While the file ``ARM`` says
``<calls> <phase>``, the process ends by SIGKILL at that call of the journal:

    before    a step is about to be noted
    noted     the step is on disk and not done
    finish    all steps are done and the journal says otherwise
    finished  the journal is gone and nothing was told yet
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from cli import logs
from cli.service import serve
from sharing.cluster.client import Client
from sharing.node.agent import Agent
from sharing.node.journal import Journal
from sharing.node.settings import AgentSettings

PHASES: Final = ("before", "noted", "finish", "finished")


class DeadlyJournal(Journal):
    """Ends the process when the trigger says so."""

    def __init__(self, path: Path, trigger: Path) -> None:
        super().__init__(path=path)
        self._trigger = trigger
        self._armed = ""
        self._calls = 0

    def _reached(self, phase: str) -> None:
        try:
            armed = self._trigger.read_text("ascii")
        except FileNotFoundError:
            return
        if armed != self._armed:
            self._armed, self._calls = armed, 0
        calls, wanted = armed.split()[:2]
        if phase != wanted:
            return
        self._calls += 1
        if self._calls > int(calls):
            os.kill(os.getpid(), signal.SIGKILL)

    def starting(self, number: int) -> None:
        """As the journal's own, perhaps for the last time."""
        self._reached("before")
        super().starting(number)
        self._reached("noted")

    def finish(self) -> None:
        """As the journal's own, perhaps for the last time."""
        self._reached("finish")
        super().finish()
        self._reached("finished")


async def run(folder: Path) -> None:
    """Serve node ``n1`` of a bench in a folder, as ``gpu-sharing agent`` does."""
    settings = AgentSettings(
        node="n1",
        kubelet_dir=folder / "k",
        cdi_dir=folder / "cdi",
        state_dir=folder / "s",
        mps_dir=folder / "m",
        simulate=folder / "gpus.json",
    )
    settings.state_dir.mkdir(exist_ok=True)
    journal = DeadlyJournal(settings.state_dir / "journal.json", folder / "arm")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client.from_kubeconfig(folder / "kubeconfig", user_agent="gpu-sharing-agent")
        )
        agent = Agent(settings, client, journal=journal)
        await serve(agent.run(), agent.ready, lambda: "agent is ready")


if __name__ == "__main__":
    logs.configure()
    asyncio.run(run(Path(sys.argv[1])))
