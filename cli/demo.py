"""``gpu-sharing demo``: a dozen pods, their whole way, on an embedded or a real cluster."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import logs
from sharing.errors import InputError

if TYPE_CHECKING:
    from cli.trial.facts import Facts
    from cli.trial.scenario import Scenario
    from cli.trial.where import Where

EXIT_DEVIATES = 1
_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--scenario", "file", type=_FILE, metavar="FILE",
    help="Nodes, objects, pods and what must become of them; the built-in one if left out.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.option(
    "--keep", type=_FILE, metavar="DIR",
    help="Leave logs, kubeconfigs and the GPUs' state in this new folder (a short path).",
)  # fmt: skip
@click.option(
    "--same-as", "earlier", type=_FILE, metavar="FILE",
    help="Facts of an earlier run, from --json; what differs but for names and times deviates.",
)  # fmt: skip
@click.option(
    "--cluster", type=click.Choice(["embedded", "real"]),
    help="Start an embedded cluster, or use one that is there.  [real with --kubeconfig]",
)  # fmt: skip
@click.option("--kubeconfig", type=_FILE, metavar="FILE", help="The real cluster.")
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--node", "nodes", multiple=True, metavar="NAME[=KUBELET_DIR,CDI_DIR]",
    help="A real node for each of the scenario's, in its order; an agent is started if its "
    "folders are given, and must be there already if not.",
)  # fmt: skip
@click.option(
    "--webhook-listen", "listen", metavar="HOST:PORT",
    help="Where the webhook listens.  [0.0.0.0 and a free port]",
)  # fmt: skip
@click.option(
    "--webhook-url", metavar="URL",
    help="How the API server reaches it.  [this machine's address on the way to it]",
)  # fmt: skip
@click.option("--image", metavar="IMAGE", help="What pods run.  [docker.io/library/busybox:1]")
@click.option(
    "--identity", "identities", multiple=True, metavar="PROGRAM=KUBECONFIG",
    help="With whose rights webhook, controller or agent works, if not with yours.",
)  # fmt: skip
@click.pass_context
def demo(
    invoked: click.Context,
    /,
    *,
    file: Path | None,
    as_json: bool,
    keep: Path | None,
    earlier: Path | None,
    **real: Any,
) -> None:
    """Show the way of pods from a namespace's policy to a share on a GPU.

    Starts an embedded cluster with simulated GPUs, the webhook, the controller and one agent a
    node; creates the scenario's pods; reads back from the API server, the kubelets, the containers
    and NVML what became of them. Exits with 1 if anything is not as the scenario states.

    With --cluster real the same happens on a cluster that is there already, with simulated GPUs
    on nodes whose folders this machine has; what was created is removed in the end.

    \b
      gpu-sharing demo
      gpu-sharing demo --json | jq '.pods[].containers'
      gpu-sharing demo --scenario my-scenario.yaml --keep /tmp/demo
      gpu-sharing demo --kubeconfig admin.conf --scenario my-scenario.yaml \\
        --node worker-1=/var/lib/kubelet,/var/run/cdi
    """  # noqa: D301 - click takes the character itself for its mark
    from cli.trial import scenario as scenarios
    from cli.trial.deviations import deviations
    from cli.trial.sameness import differences

    logs.configure(quiet=True)
    where = _where(**real)
    wanted = scenarios.load(file)
    before = None if earlier is None else _facts(earlier)
    facts = asyncio.run(_run(wanted, where, keep, _progress(shown=sys.stderr.isatty())))
    found = deviations(wanted, facts)
    if before is not None:
        found += differences(before, {**facts.to_json(), "deviations": list(found)})
    if as_json:
        _print_json(facts, found)
    else:
        _print_report(facts, found)
    if found:
        invoked.exit(EXIT_DEVIATES)


def _where(*, cluster: str | None, **said: Any) -> Where | None:
    """What was said of a real cluster; None for an embedded one."""
    from cli.trial.where import REAL, Where

    named = [name for name, value in said.items() if value]
    if (cluster or (REAL if said["kubeconfig"] else "embedded")) != REAL:
        if named:
            raise click.UsageError("options of a real cluster need --cluster real")
        return None
    return Where(**said)


def _facts(path: Path) -> dict[str, Any]:
    """An earlier run's facts.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    import orjson

    try:
        facts = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"facts {path}", f"cannot be read: {error}") from error
    if not isinstance(facts, dict) or not {"pods", "gpus"} <= facts.keys():
        raise InputError(
            f"facts {path}", "are none", example="gpu-sharing demo --json > facts.json"
        )
    return facts


async def _run(
    wanted: Scenario, where: Where | None, keep: Path | None, told: Callable[[str], None]
) -> Facts:
    from cli.trial import collecting
    from cli.trial.folder import kept_folder
    from cli.trial.installation import Installation
    from cli.trial.where import ground_for

    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as temporary:
        folder = kept_folder(keep) if keep else Path(temporary)
        ground = ground_for(where, folder, wanted.nodes)
        async with Installation(ground, folder, objects=wanted.objects, told=told) as ready:
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
