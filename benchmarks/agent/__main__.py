"""``python -m benchmarks.agent``: how fast the agent is, what it costs, and whether kills hurt it.

The agent is a process of its own; API server and kubelet are the embedded ones and share the
measuring process, so they are part of every duration. The simulated driver takes no time of its
own. Full: some eight minutes. ``--quick``: under a minute, fewer kills and rounds.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import structlog

from benchmarks.agent.kills import Campaign, campaign
from benchmarks.agent.timing import apply_overheads, fault_times, idle
from benchmarks.telling import Meaning, Value, spread, tell

MEANINGS: Final = {
    "apply_overhead_s": Meaning(
        text="changed GPUNode.spec to the kubelet's new allocatable, worst", most=1.0
    ),
    "fault_to_unhealthy_s": Meaning(
        text="XID to the kubelet counting the GPU no longer, worst", most=1.0
    ),
    "idle_cpu_percent": Meaning(text="of one core; eight GPUs in four modes", most=1.0),
    "idle_log_lines": Meaning(text="logged meanwhile", most=0),
    "rss_mb": Meaning(text="of the agent's process then", most=100.0),
    "kills": Meaning(text="kill -9 at points of the journal and at random times"),
    "kills_converged": Meaning(text="after which the next process reached what is wanted"),
    "kill_to_converged_s_median": Meaning(text="from the start of the next process"),
    "load_average": Meaning(text="of the machine at the start"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    faults: int
    idle_s: float
    kills: int


FULL: Final = Effort(rounds=5, faults=16, idle_s=30.0, kills=200)
QUICK: Final = Effort(rounds=1, faults=4, idle_s=5.0, kills=8)


async def measure(effort: Effort, seed: int) -> tuple[dict[str, Value], list[str]]:
    """Flat figures, and what went wrong after a kill, in words."""
    figures: dict[str, Value] = {
        "load_average": round(os.getloadavg()[0], 1),
        "cpus": os.cpu_count() or 0,
        "python": platform.python_version(),
    }
    _say("layouts")
    overheads = await apply_overheads(effort.rounds)
    every = [value for values in overheads.values() for value in values]
    figures |= {"apply_overhead_s": round(max(every), 3)} | spread("apply_overhead_s", every)
    for mode, values in sorted(overheads.items()):
        figures |= spread(f"apply_overhead_s_{mode.replace('-', '_')}", values)
    _say("faults")
    faults = await fault_times(effort.faults)
    figures |= {"fault_to_unhealthy_s": round(max(faults), 3)}
    figures |= spread("fault_to_unhealthy_s", faults)
    _say("idle")
    quiet = await idle(effort.idle_s)
    figures |= {
        "idle_cpu_percent": round(quiet.cpu_percent, 2),
        "idle_log_lines": quiet.lines,
        "rss_mb": round(quiet.rss_mb, 1),
    }
    _say("kills")
    killed = await campaign(effort.kills, seed)
    return figures | of_kills(killed), killed.failures


def of_kills(killed: Campaign) -> dict[str, Value]:
    """The figures of a campaign."""
    figures: dict[str, Value] = {"kills": killed.kills, "kills_converged": killed.converged}
    figures |= {f"kills_at_{phase}": n for phase, n in sorted(killed.by_phase.items())}
    return figures | (spread("kill_to_converged_s", killed.converge_s) if killed.converge_s else {})


@click.command()
@click.option("--quick", is_flag=True, help="Under a minute, for a look.")
@click.option("--kills", type=click.IntRange(min=0), help="How many instead of 200.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides layouts and times.")
@click.option("--json", "file", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              metavar="FILE", help="Where the figures go as one flat JSON object.")  # fmt: skip
def main(*, quick: bool, kills: int | None, seed: int, file: Path | None) -> None:
    """Measure the agent; exit status 1 if one did not recover from a kill."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[_drop])
    effort = QUICK if quick else FULL
    if kills is not None:
        effort = Effort(
            rounds=effort.rounds, faults=effort.faults, idle_s=effort.idle_s, kills=kills
        )
    figures, failures = asyncio.run(measure(effort, seed))
    tell(figures, MEANINGS, file)
    for failure in failures:
        click.echo(failure, err=True)
    sys.exit(1 if failures else 0)


def _say(what: str) -> None:
    click.echo(f"measuring {what}", err=True)


def _drop(_logger: object, _method: str, _event: object) -> str:
    raise structlog.DropEvent


if __name__ == "__main__":
    main()
