"""``python -m benchmarks.admit``: how long ``gpu-sharing admit`` takes for 1,000 manifests.

The whole command is timed, from its start to its exit. Full: five runs in each of two forms of
output. ``--quick``: one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from benchmarks.admit.manifests import write_manifests
from benchmarks.telling import Meaning, Value, spread, tell
from sharing.errors import UnavailableError

MANIFESTS: Final = 1000
_RUNS: Final = 5
_OUTPUTS: Final = ("table", "json")
_DENIED: Final = 3
"""Exit status where something is denied."""
MEANINGS: Final = {
    "admit_1000_s": Meaning(text="admit over a folder of 1,000 manifests, worst", most=5.0),
    "admit_1000_cpu_s": Meaning(text="processor time of the same, worst"),
    "load_average": Meaning(text="of the machine at the start"),
}


def run_once(manifests: Path, nodes: Path, output: str) -> tuple[float, float]:
    """Wall and processor time, in seconds, of one ``gpu-sharing admit``.

    Raises:
        UnavailableError: It did not end as it should.
    """
    program = [sys.executable, "-c", "from cli.main import main; main()", "admit"]
    words = [*program, "-f", str(manifests), "--nodes", str(nodes), "-o", output]
    before, began_s = _children_s(), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    taken_s = time.perf_counter() - began_s
    if done.returncode not in (0, _DENIED):
        said = done.stderr.strip().splitlines()
        raise UnavailableError("gpu-sharing admit", said[-1] if said else str(done.returncode))
    return taken_s, _children_s() - before


def _children_s() -> float:
    """Processor time of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(runs: int, count: int = MANIFESTS) -> dict[str, Value]:
    """Flat figures of so many runs in each form of output.

    Raises:
        UnavailableError: A run did not end as it should.
    """
    figures: dict[str, Value] = {"load_average": round(os.getloadavg()[0], 1)}
    wall: dict[str, list[float]] = {output: [] for output in _OUTPUTS}
    used: list[float] = []
    with tempfile.TemporaryDirectory(prefix="gs-admit-") as folder:
        manifests, nodes = write_manifests(Path(folder) / "repository", count)
        for _ in range(runs):
            for output in _OUTPUTS:
                taken_s, cpu_s = run_once(manifests, nodes, output)
                wall[output].append(taken_s)
                used.append(cpu_s)
    every = [taken_s for listed in wall.values() for taken_s in listed]
    figures |= {f"admit_{count}_s": round(max(every), 3)} | spread(f"admit_{count}_s", every)
    figures |= {f"admit_{count}_cpu_s": round(max(used), 3)}
    figures |= spread(f"admit_{count}_cpu_s", used)
    for output, listed in wall.items():
        figures |= spread(f"admit_{count}_s_{output}", listed)
    return figures


@click.command()
@click.option("--quick", is_flag=True, help="One run.")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where the figures go as one flat JSON object.",
)
def main(*, quick: bool, file: Path | None) -> None:
    """Time gpu-sharing admit over a folder of 1,000 manifests."""
    try:
        figures = measure(1 if quick else _RUNS)
    except UnavailableError as error:
        raise click.ClickException(str(error)) from error
    tell(figures, MEANINGS, file)


if __name__ == "__main__":
    main()
