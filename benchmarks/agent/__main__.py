"""Prints the agent's figures as JSON: ``python -m benchmarks.agent [--kills 200] [--rounds 5]``.

    apply_overhead_s      from a changed GPUNode.spec to the kubelet's new allocatable, worst
    fault_to_unhealthy_s  from an XID to the kubelet counting the GPU no longer, worst
    idle_cpu_percent      of one core, eight GPUs in four modes and an API server
    rss_mb                of the agent's process then
    kills                 kill -9 at points of the journal and at random times
    kills_converged       after how many the next process reached the wanted layouts by itself

Each has its spread beside it. The agent is a process of its own; API server and kubelet are the
embedded ones and share the measuring process, so they are part of every duration.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from typing import Any

import structlog

from benchmarks.agent.figures import spread
from benchmarks.agent.kills import campaign
from benchmarks.agent.timing import apply_overheads, fault_times, idle


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {"cpus": os.cpu_count(), "python": platform.python_version()}
    if not options.only_kills:
        overheads = await apply_overheads(options.rounds)
        every = [value for values in overheads.values() for value in values]
        faults = await fault_times()
        quiet = await idle(options.idle_s)
        figures |= {
            "apply_overhead_s": round(max(every), 3),
            "apply_overhead_spread": spread(every),
            "apply_overhead_by_mode": {mode: spread(values) for mode, values in overheads.items()},
            "fault_to_unhealthy_s": round(max(faults), 3),
            "fault_to_unhealthy_spread": spread(faults),
            "idle_cpu_percent": round(quiet.cpu_percent, 2),
            "idle_log_lines": quiet.lines,
            "rss_mb": round(quiet.rss_mb, 1),
        }
    if options.kills:
        result = await campaign(options.kills, options.seed)
        figures |= {
            "kills": result.kills,
            "kills_converged": result.converged,
            "kills_by_point": dict(sorted(result.by_phase.items())),
            "kills_failures": result.failures,
        }
        if result.converge_s:
            figures["kill_to_converged_spread"] = spread(result.converge_s)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--only-kills", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle-s", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[_drop])
    print(json.dumps(asyncio.run(_measure(parser.parse_args())), indent=2))


def _drop(_logger: object, _method: str, _event: object) -> str:
    raise structlog.DropEvent


if __name__ == "__main__":
    main()
