"""The agent as a process: ready line, kill -9, SIGTERM, quiet when idle, sentences for mistakes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sharing.api.node import GpuNodeStatus
from sharing.nvml.codes import Code
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure
from tests.support.agent_bench import NodeBench, node_bench

LAYOUT = """
- {gpus: "0", mode: mig, sizes: {1g.10gb: 2}}
- {gpus: "1", mode: mps, sizes: {1of2: 2}}
"""
OFFER = {"nvidia.com/mig-1g.10gb": 2, "gpu.sharing/mps-1of2": 2}


@asynccontextmanager
async def process(node: NodeBench, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    folder = node.folder
    arguments = (
        *("cli.main", "agent", "--node-name", "n1"),
        *("--simulate-state", str(folder / "gpus.json"), "--layout", str(folder / "layout.yaml")),
        *("--kubelet-dir", str(folder / "k"), "--cdi-dir", str(folder / "cdi")),
        *("--state-dir", str(folder / "s"), "--mps-dir", str(folder / "m"), *more),
    )
    async with module(*arguments) as started:
        yield started


@asynccontextmanager
async def module(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


def end_mps(node: NodeBench) -> None:
    """The agent leaves MPS daemons to the pods; here there are none."""
    for found in Path("/proc").glob("[0-9]*/environ"):
        try:
            environ = found.read_bytes()
        except OSError:
            continue
        if f"CUDA_MPS_PIPE_DIRECTORY={node.folder}".encode() in environ:
            os.kill(int(found.parent.name), signal.SIGKILL)


async def line(started: asyncio.subprocess.Process) -> str:
    assert started.stdout is not None
    async with asyncio.timeout(20):
        return (await started.stdout.readline()).decode()


async def test_a_killed_agent_process_is_followed_by_one_that_serves_the_same() -> None:
    async with node_bench("2xH100-80GB") as node:
        (node.folder / "layout.yaml").write_text(LAYOUT, "utf-8")
        async with process(node) as first:
            assert "ready: 2 GPUs, 4 shares" in await line(first)
            await node.until_allocatable(OFFER)
            await node.run_pod("train", "nvidia.com/mig-1g.10gb")
            first.send_signal(signal.SIGKILL)
            await first.wait()

        async with process(node) as second:
            assert "ready" in await line(second)
            await node.until_allocatable(OFFER)
            assert node.phase("train") == "Running"
            second.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await second.wait() == 0
        end_mps(node)


SLICED = {"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}}
MIG = {"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 2}}


async def test_a_killed_agents_retreat_is_kept_by_the_next_one() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(SLICED)
        async with module("tests.support.hasty_agent", str(node.folder)) as first:
            await line(first)
            await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
            failure = Failure(
                function="nvmlDeviceCreateGpuInstanceWithPlacement", code=Code.UNKNOWN, times=1000
            )
            node.store().change(lambda machine: operate.fail_calls(machine, failure))
            await node.layout(MIG)
            await node.until_status(gave_up)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        left = node.machine().failures
        assert left[0].times < 1000

        async with module("tests.support.hasty_agent", str(node.folder)) as second:
            await line(second)
            await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
            assert gave_up(node.status)
            assert node.machine().failures == left, "it tried again at once"
            await node.layout(SLICED | {"sizes": {"1of2": 2}})
            await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
            second.terminate()
            await second.wait()


def gave_up(status: GpuNodeStatus) -> bool:
    return any("back to time-slicing 4x 1of4" in one.message for one in status.conditions)


QUIET_S = 2.5


async def drain(stream: asyncio.StreamReader) -> list[bytes]:
    """The lines that come until none came for a while."""
    lines = []
    while True:
        try:
            async with asyncio.timeout(QUIET_S):
                lines.append(await stream.readline())
        except TimeoutError:
            return lines


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.split("VmRSS:")[1].split()[0])


async def test_an_idle_agent_process_is_silent_and_small() -> None:
    async with node_bench("2xH100-80GB") as node:
        (node.folder / "layout.yaml").write_text("- {gpus: all, mode: exclusive}\n", "utf-8")
        async with process(node) as started:
            await line(started)
            assert started.stderr is not None
            await drain(started.stderr)
            before = cpu_s(started.pid)
            assert await drain(started.stderr) == []
            assert cpu_s(started.pid) - before < 0.05 * QUIET_S
            assert rss_kib(started.pid) * 1024 <= 100e6, rss_kib(started.pid)
