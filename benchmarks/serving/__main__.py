"""``python -m benchmarks.serving``: how fast shares are served to the kubelet, and what that costs.

The agent is a process of its own on eight simulated GPUs of 48 shares each, half by MPS, half by
time slices. It is asked over its unix sockets as a kubelet asks it; API server and kubelet are the
embedded ones in the measuring process. Full: some two minutes. ``--quick``: half a minute.
"""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path
from typing import Final

import click
import structlog

from benchmarks.serving.measuring import Effort, measure
from benchmarks.telling import Meaning, Value, tell

MEANINGS: Final = {
    "allocate_p99_ms": Meaning(text="one Allocate call after the other, 384 shares", most=5.0),
    "allocate_together_p99_ms": Meaning(text="of eight calls at a time"),
    "preferred_p99_ms": Meaning(text="GetPreferredAllocation over 192 free shares"),
    "health_update_ms": Meaning(
        text="XID to the list with the GPU's 48 shares unhealthy, worst; up to 50 ms of it pass "
        "until the simulator looks for events",
        most=100.0,
    ),
    "register_after_start_s": Meaning(
        text="process start to the kubelet offering the shares again, worst", most=1.0
    ),
    "register_cpu_s": Meaning(text="processor time that the agent used until then, worst"),
    "mps_after_start_s": Meaning(text="the same for MPS, whose limits are read back first, worst"),
    "idle_cpu_percent": Meaning(text="of one core", most=1.0),
    "rss_mb": Meaning(text="of the agent's process", most=100.0),
    "load_average": Meaning(text="of the machine at the start"),
}
FULL: Final = Effort(calls=4000, faults=7, starts=10, idle_s=30.0)
QUICK: Final = Effort(calls=500, faults=3, starts=2, idle_s=5.0)


@click.command()
@click.option("--quick", is_flag=True, help="Half a minute, for a look.")
@click.option("--json", "file", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              metavar="FILE", help="Where the figures go as one flat JSON object.")  # fmt: skip
def main(*, quick: bool, file: Path | None) -> None:
    """Measure how shares are served."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[_drop])
    machine: dict[str, Value] = {
        "cpus": os.cpu_count() or 0,
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }
    figures = asyncio.run(measure(QUICK if quick else FULL, told=_say))
    tell(machine | figures, MEANINGS, file)


def _say(what: str) -> None:
    click.echo(f"measuring {what}", err=True)


def _drop(_logger: object, _method: str, _event: object) -> str:
    raise structlog.DropEvent


if __name__ == "__main__":
    main()
