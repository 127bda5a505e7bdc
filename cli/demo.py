"""``gpu-sharing demo``: a dozen pods, their whole way, on an embedded cluster."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import logs

if TYPE_CHECKING:
    from cli.trial.facts import Facts
    from cli.trial.scenario import Scenario

EXIT_DEVIATES = 1


@click.command()
@click.option(
    "--scenario", "file", type=click.Path(path_type=Path), metavar="FILE",
    help="Nodes, objects, pods and what must become of them; the built-in one if left out.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR",
    help="Leave logs, kubeconfigs and the GPUs' state in this new folder (a short path).",
)  # fmt: skip
@click.pass_context
def demo(context: click.Context, file: Path | None, *, as_json: bool, keep: Path | None) -> None:
    r"""Show the way of pods from a namespace's policy to a share on a GPU.

    Starts an embedded cluster with simulated GPUs, the webhook, the controller and one agent a
    node; creates the scenario's pods; reads back from the API server, the kubelets and NVML what
    became of them. Exits with 1 if anything is not as the scenario states.

    \b
      gpu-sharing demo
      gpu-sharing demo --json | jq '.pods[].containers'
      gpu-sharing demo --scenario my-scenario.yaml --keep /tmp/demo
    """
    from cli.trial import scenario as scenarios
    from cli.trial.deviations import deviations

    logs.configure(quiet=True)
    wanted = scenarios.load(file)
    facts = asyncio.run(_run(wanted, keep, _progress(shown=sys.stderr.isatty())))
    found = deviations(wanted, facts)
    if as_json:
        _print_json(facts, found)
    else:
        _print_report(facts, found)
    if found:
        context.exit(EXIT_DEVIATES)


async def _run(wanted: Scenario, keep: Path | None, told: Callable[[str], None]) -> Facts:
    from cli.trial import collecting
    from cli.trial.folder import kept_folder
    from cli.trial.installation import Installation

    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as temporary:
        folder = kept_folder(keep) if keep else Path(temporary)
        async with Installation(folder, wanted.nodes, objects=wanted.objects, told=told) as ready:
            started = time.monotonic()
            told("creating the pods")
            facts = await collecting.run(wanted, ready)
            told("")
            return replace(facts, elapsed_s={"start": round(started - begun, 3), **facts.elapsed_s})


def _progress(*, shown: bool) -> Callable[[str], None]:
    """What is being done, on one line of a terminal; in a file, line by line."""

    def tell(text: str) -> None:
        if shown:
            click.echo(f"\r\x1b[K{text}{'…' if text else ''}", err=True, nl=False)
        elif text:
            click.echo(f"{text}…", err=True)

    return tell


def _print_json(facts: Facts, found: tuple[str, ...]) -> None:
    import orjson

    document = {**facts.to_json(), "deviations": list(found)}
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def _print_report(facts: Facts, found: tuple[str, ...]) -> None:
    from rich.console import Console

    from cli.trial.report import WIDTH, show

    show(Console(width=WIDTH, highlight=False), facts, found)
