"""How fast the agent is, and what it costs while nothing happens."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.agent.program import Program
from sharing.cluster.kind import GPU_NODES
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Machine
from tests.support.agent_bench import NodeBench, node_bench

_CHANGES: Final[tuple[tuple[dict[str, Any], dict[str, int]], ...]] = (
    ({"mode": "time-slicing", "sizes": {"1of4": 4}}, {"gpu.sharing/timeslice-1of4": 4}),
    (
        {"mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}},
        {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 1},
    ),
    ({"mode": "mig", "sizes": {"2g.20gb": 3}}, {"nvidia.com/mig-2g.20gb": 3}),
    (
        {"mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
        {"gpu.sharing/mps-1of2": 1, "gpu.sharing/mps-1of4": 2},
    ),
    ({"mode": "exclusive"}, {"nvidia.com/gpu": 1}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """An agent that has nothing to do."""

    cpu_percent: float
    """Of one core."""
    rss_mb: float
    lines: int
    """Lines logged meanwhile."""


async def want(node: NodeBench, *layouts: dict[str, Any]) -> None:
    """Write the node's wanted layouts by hand, one for each GPU."""
    gpus = [
        {"uuid": gpu.uuid, "layout": layout}
        for gpu, layout in zip(node.machine().gpus, layouts, strict=True)
    ]
    await node.client.patch(GPU_NODES, "n1", {"spec": {"gpus": gpus}})


async def apply_overheads(rounds: int) -> dict[str, list[float]]:
    """Seconds from a changed GPUNode.spec to the kubelet's new allocatable, by mode reached.

    The simulated driver takes no time of its own, so all of it is ours and the kubelet's.
    """
    found: dict[str, list[float]] = {}
    async with node_bench("1xH100-80GB") as node:
        program = Program(node)
        await program.start()
        try:
            await program.ready()
            await node.until_allocatable({"nvidia.com/gpu": 1})
            for layout, offer in _CHANGES * rounds:
                started = time.perf_counter()
                await want(node, layout)
                await node.until_allocatable(offer)
                took_s = time.perf_counter() - started
                found.setdefault(str(layout["mode"]), []).append(took_s)
                await node.until_served()
        finally:
            await program.stop()
    return found


async def fault_times(faults: int) -> list[float]:
    """Seconds from an XID to the kubelet counting a GPU less, one fault on each of some GPUs."""
    found = []
    async with node_bench(f"{faults}xH100-80GB") as node:
        program = Program(node)
        await program.start()
        try:
            await program.ready()
            await node.until_allocatable({"nvidia.com/gpu": faults})
            for index in range(faults):
                started = time.perf_counter()
                node.store().change(partial(_fault, str(index)))
                left = faults - 1 - index
                await node.until_allocatable({"nvidia.com/gpu": left} if left else {})
                found.append(time.perf_counter() - started)
        finally:
            await program.stop()
    return found


def _fault(which: str, machine: Machine) -> tuple[Machine, object]:
    return operate.report_xid(machine, which, 48, recovery=RecoveryAction.GPU_RESET)


async def idle(seconds: float) -> Idle:
    """An agent with four modes on eight GPUs, an API server and nothing to do."""
    async with node_bench("8xH100-80GB") as node:
        program = Program(node)
        await program.start()
        try:
            await program.ready()
            await node.until_served()
            layouts = [layout for layout, _ in _CHANGES] + [{"mode": "exclusive"}] * 3
            await want(node, *layouts)
            await node.until_served()
            await asyncio.sleep(5)
            cpu_s, lines = program.cpu_s(), program.lines()
            await asyncio.sleep(seconds)
            return Idle(
                cpu_percent=100 * (program.cpu_s() - cpu_s) / seconds,
                rss_mb=program.rss_mb(),
                lines=program.lines() - lines,
            )
        finally:
            await program.stop()
