"""``python -m benchmarks.webhook``: build the Go servers, check that all agree, measure, report.

Full: about seven minutes after the first build, which takes minutes of its own. ``--quick``: under
a minute, fewer and shorter rounds, one restart in place of five.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click
from rich.console import Console

from benchmarks.webhook.building import Programs, build, cache_folder, find_go
from benchmarks.webhook.credentials import Credentials
from benchmarks.webhook.loads import Bench
from benchmarks.webhook.machine import Cores, quietness, resident_mb
from benchmarks.webhook.processes import Command, Load, Webhook, go_command, our_command
from benchmarks.webhook.report import (
    COMPARED,
    NEW_CONNECTION,
    OURS,
    SERVERS,
    Results,
    figures,
    show,
)
from benchmarks.webhook.restarts import Restarts
from benchmarks.webhook.reviews import ReviewInput, inputs
from benchmarks.webhook.rounds import measure_rounds
from benchmarks.webhook.world import write_world
from sharing.errors import GpuSharingError

_SMALL: Final = 10
_LARGE: Final = 10_000
_CROWD: Final = "crowd"
_BUSY: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    sample_s: float
    rounds: int
    """Of the typical reviews."""
    other_rounds: int
    rates: tuple[float, ...]
    latency_s: float
    """Of one measurement at a fixed rate; each server gets two."""
    restarts: int


_FULL: Final = Effort(
    sample_s=1.0, rounds=7, other_rounds=2, rates=(50.0, 200.0, 1000.0), latency_s=5.0, restarts=5
)
_QUICK: Final = Effort(
    sample_s=0.15, rounds=2, other_rounds=1, rates=(200.0,), latency_s=0.5, restarts=1
)


class Run:
    """One run, from built programs to results.

    Args:
        programs: The Go programs.
        effort: How much is measured.
        folder: For policies, certificates and output.
        console: Where progress is told.
    """

    def __init__(self, programs: Programs, effort: Effort, folder: Path, console: Console) -> None:
        self._programs = programs
        self._effort = effort
        self._folder = folder
        self._console = console
        self._cores = Cores.choose()
        self._results = Results()
        self._began_s = time.monotonic()
        self.inputs: dict[str, ReviewInput] = {one.name: one for one in inputs()}

    def measure(self) -> Results:
        """Start everything, measure, end everything.

        Raises:
            GpuSharingError: A server does not start, fails a request, or differs from the others.
        """
        self._credentials = Credentials.make(self._folder, successors=self._effort.restarts)
        small = write_world(self._folder / "small", _SMALL)
        with ExitStack() as stack:
            load = Load(self._programs.path("load"), core=self._cores.client)
            stack.enter_context(load)
            with ExitStack() as servers:
                self._compare(self._bench(servers, load, self._commands(small)))
                self._grow(servers, load, small)
            self._restart(load, small)
        return self._results

    def _commands(self, world: Path) -> list[Command]:
        program = self._programs.path("controllerruntime")
        return [
            our_command(OURS, world),
            go_command("go_idiom", program, "--patch=diff"),
            go_command("go_hand", program, "--patch=hand"),
            go_command("go_lean", self._programs.path("lean")),
        ]

    def _bench(self, stack: ExitStack, load: Load, commands: list[Command]) -> Bench:
        self._say("starting " + ", ".join(command.name for command in commands))
        started = {}
        for command in commands:
            # What is only looked at for its memory does not share the core of what is timed.
            core = self._cores.client if command.name == _CROWD else self._cores.server
            server = Webhook(command, self._credentials, core=core, folder=self._folder)
            stack.callback(server.close)
            started[command.name] = server
        for server in started.values():
            server.wait_ready()
        return Bench(
            load=load,
            credentials=self._credentials,
            servers=started,
            folder=self._folder,
            sample_s=self._effort.sample_s,
        )

    def _compare(self, bench: Bench) -> None:
        results, effort = self._results, self._effort
        for asked in self.inputs.values():
            self._say(f"checking that all servers agree on {asked.name}")
            bench.check(asked)
        for kind, asked in self.inputs.items():
            self._say(f"CPU: {kind}")
            rounds = effort.rounds if kind in COMPARED else effort.other_rounds
            results.cpu[kind] = measure_rounds(
                SERVERS, partial(bench.cpu_us, asked=asked), rounds=rounds
            )
        typical = self.inputs["typical"]
        self._say(f"CPU: {NEW_CONNECTION}")
        results.cpu[NEW_CONNECTION] = measure_rounds(
            SERVERS,
            lambda name: bench.cpu_us(name, typical, fresh=True),
            rounds=effort.other_rounds,
        )
        # Before the open loop: more than a machine can do would be told of here as memory.
        for name, server in bench.servers.items():
            results.resident_mb[name] = resident_mb(server.pid)
        for rate in effort.rates:
            for name in [*SERVERS, *reversed(SERVERS)]:
                self._say(f"latency at {rate:.0f}/s: {name}")
                measured = bench.latency(name, typical, rate, effort.latency_s)
                results.latencies.setdefault((name, rate), []).append(measured)

    def _grow(self, stack: ExitStack, load: Load, small: Path) -> None:
        large = write_world(self._folder / "large", _LARGE)
        crowd = write_world(self._folder / "crowd", _SMALL, namespaces=_LARGE)
        worlds = {"ten": small, "many": large, _CROWD: crowd}
        bench = self._bench(stack, load, [our_command(*world) for world in worlds.items()])
        typical = self.inputs["typical"]
        bench.check(typical)
        self._say(f"CPU: {_SMALL} and {_LARGE:,} namespaces, profiles and nodes")
        rounds = measure_rounds(
            ("ten", "many"),
            lambda name: bench.cpu_us(name, typical),
            rounds=max(self._effort.other_rounds, 3),
        )
        bench.cpu_us(_CROWD, typical)
        self._results.growth = rounds.ratio("many", "ten")
        self._results.large_mb = resident_mb(bench.servers["many"].pid)
        self._results.crowd_mb = resident_mb(bench.servers[_CROWD].pid)

    def _restart(self, load: Load, small: Path) -> None:
        restarts = Restarts(
            load=load,
            credentials=self._credentials,
            world=small,
            core=self._cores.server,
            folder=self._folder,
            say=self._say,
        )
        self._results.survived = restarts.survive(
            self.inputs["typical"], times=self._effort.restarts
        )

    def _say(self, what: str) -> None:
        passed_s = time.monotonic() - self._began_s
        self._console.print(f"[dim]{passed_s:4.0f} s  {what}[/dim]", highlight=False)


@click.command()
@click.option("--quick", is_flag=True, help="Under a minute, for a look; the spread is wider.")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where the figures go as one flat JSON object.",
)
def main(*, quick: bool, file: Path | None) -> None:
    """Compare the webhook with three Go servers that do the same, in one run on this machine."""
    # Docker and CI end a run by SIGTERM; it takes the same way out as Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    progress = Console(stderr=True)
    effort = _QUICK if quick else _FULL
    try:
        progress.print(f"[dim]building the Go programs in {cache_folder()}[/dim]", highlight=False)
        programs = build(find_go())
        _describe(programs, progress)
        with tempfile.TemporaryDirectory(prefix="gs-bench-") as folder:
            run = Run(programs, effort, Path(folder), progress)
            results = run.measure()
    except GpuSharingError as error:
        raise click.ClickException(str(error)) from error
    show(results, run.inputs, Console())
    if file is not None:
        file.write_text(json.dumps(figures(results), indent=2) + "\n", "utf-8")


def _describe(programs: Programs, progress: Console) -> None:
    cores = Cores.choose()
    idle, load = quietness(), os.getloadavg()[0]
    progress.print(
        f"[dim]{programs.go_version}, controller-runtime {programs.controller_runtime}, "
        f"Python {sys.version.split()[0]}; server on core {cores.server}, client on core "
        f"{cores.client}; load average {load:.1f}, {idle:.0%} idle[/dim]",
        highlight=False,
    )
    if idle < _BUSY:
        progress.print(
            "[yellow]The machine is busy: CPU ratios hold, latencies are those of a busy machine."
        )


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
