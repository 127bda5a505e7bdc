"""The measurements, one after the other on one node."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.agent.program import Program
from benchmarks.agent.timing import want
from benchmarks.serving.client import PluginClient, percentile
from benchmarks.telling import Value, spread
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Machine
from tests.support.agent_bench import NodeBench, node_bench

SHARES: Final = 48
"""Of each GPU: as many as an MPS server takes clients."""
SLICES: Final = f"gpu.sharing/timeslice-1of{SHARES}"
MPS: Final = f"gpu.sharing/mps-1of{SHARES}"
_POLL_S: Final = 0.002
_PATIENCE_S: Final = 60.0
_TOGETHER: Final = 8
_XID: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    calls: int
    faults: int
    """GPUs that fall ill, those shared by time slices first."""
    starts: int
    idle_s: float
    gpus: int = 8
    """Half of them are shared by time slices, half by MPS."""

    @property
    def of_each(self) -> int:
        """GPUs of each mode."""
        return self.gpus // 2


async def measure(effort: Effort, *, told: Callable[[str], None]) -> dict[str, Value]:
    """All figures of one agent.

    Args:
        effort: How much.
        told: Hears what is being measured.
    """
    async with node_bench(f"{effort.gpus}xH100-80GB") as node:
        program = Program(node)
        await program.start()
        try:
            await program.ready()
            await _lay_out(node, effort.of_each)
            gc.collect()
            gc.freeze()  # no pause of this process, with API server and kubelet, counts
            told("allocation")
            figures = await _allocation(node, effort.calls)
            told("rest")
            figures |= await _rest(program, effort.idle_s)
            told("starts")
            figures |= await _starts(node, program, effort)
            told("health")
            return figures | await _health(node, effort)
        finally:
            await program.stop()


async def _lay_out(node: NodeBench, of_each: int) -> None:
    sizes = {f"1of{SHARES}": SHARES}
    slices: list[dict[str, Any]] = [{"mode": "time-slicing", "sizes": sizes}] * of_each
    limits: list[dict[str, Any]] = [{"mode": "mps", "sizes": sizes}] * of_each
    await want(node, *slices, *limits)
    await _offered(node, SLICES, of_each)
    await _offered(node, MPS, of_each)


async def _offered(node: NodeBench, resource: str, gpus: int) -> None:
    """Wait until the kubelet has every share of a class for pods."""
    table = node.kubelet.table
    await _until(lambda: len(table.get(resource).healthy) == gpus * SHARES)


async def _until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if met():
                return
            await asyncio.sleep(_POLL_S)


async def _allocation(node: NodeBench, calls: int) -> dict[str, Value]:
    alone: list[float] = []
    advised: list[float] = []
    for resource in (SLICES, MPS):
        async with PluginClient.of(node, resource) as client:
            ids = sorted(node.kubelet.table.get(resource).all)
            await client.allocate(ids[0])  # the connection is not part of it
            asked = [ids[number % len(ids)] for number in range(calls // 2)]
            alone += [await client.allocate(one) for one in asked]
            advised += [await client.preferred(ids) for _ in range(max(calls // 20, 1))]
    together = await _together(node, calls // 2)
    return {
        "allocate_p99_ms": round(percentile(alone, 99), 3),
        **spread("allocate_ms", alone),
        "allocate_together_p99_ms": round(percentile(together, 99), 3),
        "preferred_p99_ms": round(percentile(advised, 99), 3),
    }


async def _together(node: NodeBench, calls: int) -> list[float]:
    async with PluginClient.of(node, SLICES) as client:
        ids = sorted(node.kubelet.table.get(SLICES).all)
        found: list[float] = []
        for start in range(0, calls, _TOGETHER):
            some = [ids[(start + number) % len(ids)] for number in range(_TOGETHER)]
            found += await asyncio.gather(*map(client.allocate, some))
        return found


async def _rest(program: Program, seconds: float) -> dict[str, Value]:
    await asyncio.sleep(3)
    cpu_s = program.cpu_s()
    await asyncio.sleep(seconds)
    return {
        "idle_cpu_percent": round(100 * (program.cpu_s() - cpu_s) / seconds, 2),
        "rss_mb": round(program.rss_mb(), 1),
    }


async def _starts(node: NodeBench, program: Program, effort: Effort) -> dict[str, Value]:
    """Kill it by SIGKILL and start it again; MPS daemons live on, as their pods need."""
    slices, limits, used = [], [], []
    for _ in range(effort.starts):
        await program.kill()
        await _until(lambda: not any(node.kubelet.table.get(one).healthy for one in (SLICES, MPS)))
        began = time.perf_counter()
        await program.start()
        await _offered(node, SLICES, effort.of_each)
        slices.append(time.perf_counter() - began)
        used.append(program.cpu_s())
        await _offered(node, MPS, effort.of_each)
        limits.append(time.perf_counter() - began)
        await program.ready()
    return {
        "register_after_start_s": round(max(slices), 3),
        **spread("register_after_start_s", slices),
        "register_cpu_s": round(max(used), 3),
        "mps_after_start_s": round(max(limits), 3),
    }


async def _health(node: NodeBench, effort: Effort) -> dict[str, Value]:
    """One GPU after the other falls ill, the first by time slices."""
    found = []
    for index in range(effort.faults):
        uuid = node.machine().gpus[index].uuid
        async with PluginClient.of(node, SLICES if index < effort.of_each else MPS) as client:
            await client.listening()
            began = time.perf_counter()
            await asyncio.to_thread(node.store().change, partial(_fall_ill, str(index)))
            heard_at = await client.until_unhealthy(uuid, SHARES)
            found.append(1000 * (heard_at - began))
    return {"health_update_ms": round(max(found), 1), **spread("health_update_ms", found, 1)}


def _fall_ill(which: str, machine: Machine) -> tuple[Machine, object]:
    return operate.report_xid(machine, which, _XID, recovery=RecoveryAction.GPU_RESET)
