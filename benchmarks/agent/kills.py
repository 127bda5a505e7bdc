"""kill -9 of the agent's process, again and again, while it changes layouts under a pod.

Half of the kills come at points of its journal, in turn; the others at random times. After each
the next process has to bring the node to what is wanted by itself, and the pod's instance has to
be the one that it was.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.agent.deadly import PHASES
from benchmarks.agent.program import Program
from benchmarks.agent.timing import want
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Delays, GpuInstance
from tests.support.agent_bench import NodeBench, node_bench

_FIRST: Final[tuple[tuple[dict[str, Any], dict[str, int]], ...]] = (
    ({"mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}}, {"1g.10gb": 4, "3g.40gb": 1}),
    ({"mode": "mig", "sizes": {"1g.10gb": 1, "2g.20gb": 2}}, {"1g.10gb": 1, "2g.20gb": 2}),
    ({"mode": "mig", "sizes": {"1g.10gb": 7}}, {"1g.10gb": 7}),
)
"""Layouts of the GPU where a pod holds a 1g.10gb."""
_SECOND: Final[tuple[tuple[dict[str, Any], dict[str, int]], ...]] = (
    ({"mode": "mps", "sizes": {"1of4": 4}}, {"gpu.sharing/mps-1of4": 4}),
    ({"mode": "mig", "sizes": {"2g.20gb": 2}}, {"nvidia.com/mig-2g.20gb": 2}),
    ({"mode": "time-slicing", "sizes": {"1of2": 2}}, {"gpu.sharing/timeslice-1of2": 2}),
    ({"mode": "mps", "sizes": {"1of2": 2}}, {"gpu.sharing/mps-1of2": 2}),
    ({"mode": "exclusive"}, {"nvidia.com/gpu": 1}),
)
_DELAYS: Final = Delays(create_s=0.02, destroy_s=0.02, mode_s=0.05)
_CALLS: Final = 6
_LATEST_S: Final = 1.2
"""A layout is applied in about that time, so random kills hit all of it."""
_POINT_S: Final = 3.0


@dataclass(slots=True)
class Campaign:
    """What came of the kills."""

    kills: int = 0
    converged: int = 0
    converge_s: list[float] = field(default_factory=list)
    by_phase: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


async def campaign(kills: int, seed: int) -> Campaign:
    """Kill agents until there were so many kills.

    Args:
        kills: How many.
        seed: Decides layouts and times.
    """
    result, draw = Campaign(), random.Random(seed)
    async with node_bench("2xH100-80GB") as node:
        node.store().change(lambda machine: operate.slow_down(machine, _DELAYS))
        program = Program(node, deadly=True)
        await program.start()
        try:
            await program.ready()
            await node.until_allocatable({"nvidia.com/gpu": 2})
            await want(node, _FIRST[0][0], _SECOND[0][0])
            await _converged(node, _FIRST[0][1], _SECOND[0][1])
            held = await _occupy(node)
            turn = 0
            while result.kills < kills:
                await _one(node, program, result, _Turn.drawn(turn, draw))
                turn += 1
                if held not in node.machine().gpus[0].instances or node.phase("train") != "Running":
                    result.failures.append(f"kill {result.kills}: the pod lost its instance")
                    break
        finally:
            await program.stop()
    return result


async def _occupy(node: NodeBench) -> GpuInstance:
    await node.run_pod("train", "nvidia.com/mig-1g.10gb")
    status = await node.until_status(
        lambda s: any(share.holders for gpu in s.gpus for share in gpu.shares)
    )
    (taken,) = [share.id for share in status.gpus[0].shares if share.holders]
    start = int(taken.rpartition("-")[2])
    (found,) = [one for one in node.machine().gpus[0].instances if one.start == start]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One change of layouts, and when the agent dies in it."""

    first: tuple[dict[str, Any], dict[str, int]]
    second: tuple[dict[str, Any], dict[str, int]]
    phase: str
    """Of the journal, or ``random``."""
    trigger: str
    """What the journal is told."""
    after_s: float

    @classmethod
    def drawn(cls, number: int, draw: random.Random) -> _Turn:
        """The turn of a number: points of the journal in order, every other time at random."""
        phase = PHASES[number // 2 % len(PHASES)] if number % 2 == 0 else "random"
        calls = number // 2 // len(PHASES) % _CALLS if phase in PHASES[:2] else 0
        return cls(
            first=draw.choice(_FIRST),
            second=draw.choice(_SECOND),
            phase=phase,
            trigger=f"{calls} {phase} {number}",
            after_s=draw.uniform(0, _LATEST_S),
        )


async def _one(node: NodeBench, program: Program, result: Campaign, turn: _Turn) -> None:
    """Change the layouts, kill, start again, and wait until the node is what it shall be."""
    (first, first_offer), (second, second_offer), phase = turn.first, turn.second, turn.phase
    trigger = node.folder / "arm"
    if phase != "random":
        trigger.write_text(turn.trigger, "ascii")
    await want(node, first, second)
    if phase != "random":
        died = await program.ended(_POINT_S)
        trigger.unlink()
        if not died:
            await _converged(node, first_offer, second_offer)
            return  # the plan had fewer steps, or none
    else:
        await asyncio.sleep(turn.after_s)
        await program.kill()
    result.kills += 1
    result.by_phase[phase] = result.by_phase.get(phase, 0) + 1
    started = time.perf_counter()
    await program.start()
    try:
        await program.ready()  # what the dead one published proves nothing
        await _converged(node, first_offer, second_offer)
    except (AssertionError, TimeoutError) as error:
        result.failures.append(f"kill {result.kills} ({phase}): {str(error)[:500]}")
        return
    result.converged += 1
    result.converge_s.append(time.perf_counter() - started)


async def _converged(node: NodeBench, first: dict[str, int], second: dict[str, int]) -> None:
    offer = {f"nvidia.com/mig-{profile}": count for profile, count in first.items()}
    for resource, count in second.items():
        offer[resource] = offer.get(resource, 0) + count
    await node.until_allocatable(offer)
    await node.until_served()
