"""One agent as a process beside a bench, and what is measured of a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.support.agent_bench import NodeBench

_START_S: Final = 60.0


class Program:
    """An agent process on a bench's node.

    Args:
        bench: The node.
        deadly: Whether it can be told to kill itself, see ``deadly``.
    """

    def __init__(self, bench: NodeBench, *, deadly: bool = False) -> None:
        self._bench = bench
        self._deadly = deadly
        self._process: asyncio.subprocess.Process | None = None
        self.log = bench.folder / "agent.log"

    async def start(self) -> None:
        """Start it; does not wait for anything."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *self._arguments(),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )

    def _arguments(self) -> tuple[str, ...]:
        folder = self._bench.folder
        if self._deadly:
            return ("benchmarks.agent.deadly", str(folder))
        return (
            *("cli.main", "agent", "--node-name", "n1"),
            *("--kubeconfig", str(folder / "kubeconfig")),
            *("--simulate-state", str(folder / "gpus.json"), "--kubelet-dir", str(folder / "k")),
            *("--cdi-dir", str(folder / "cdi"), "--state-dir", str(folder / "s")),
            *("--mps-dir", str(folder / "m")),
        )

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "not started"
        return self._process

    async def ready(self) -> None:
        """Wait for the line that says so."""
        stream = self._running.stdout
        assert stream is not None
        async with asyncio.timeout(_START_S):
            line = await stream.readline()
        assert b"ready" in line, (line, self.log.read_text("utf-8")[-2000:])

    async def kill(self) -> None:
        """SIGKILL it, if it lives, and wait for its end."""
        with suppress(ProcessLookupError):
            self._running.send_signal(signal.SIGKILL)
        await self._running.wait()

    async def ended(self, timeout_s: float) -> bool:
        """Wait for its end; False when time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._running.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End it as a kubelet does, and the MPS daemons that it left to pods."""
        with suppress(ProcessLookupError):
            self._running.terminate()
        if not await self.ended(_START_S):
            await self.kill()
        end_mps(self._bench.folder)

    def cpu_s(self) -> float:
        """Processor time that it used so far."""
        stat = Path(f"/proc/{self._running.pid}/stat").read_text("ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Resident memory in megabytes (10^6 bytes)."""
        status = Path(f"/proc/{self._running.pid}/status").read_text("ascii")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6

    def lines(self) -> int:
        """How many lines it has logged."""
        return self.log.read_bytes().count(b"\n")


def end_mps(folder: Path) -> None:
    """End the MPS daemons of a bench: they outlive agents, and here no pod needs them."""
    for found in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"CUDA_MPS_PIPE_DIRECTORY={folder}".encode() in found.read_bytes():
                os.kill(int(found.parent.name), signal.SIGKILL)
