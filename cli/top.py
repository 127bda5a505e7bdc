"""``gpu-sharing top``: what the holders of shares use, now and again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from sharing.errors import GpuSharingError
from sharing.printable import printable

if TYPE_CHECKING:
    from cli.toprows import View
    from cli.topsource import Sight

Look = Callable[[], Awaitable["Sight"]]


@click.command(short_help="Show how shares are used.")
@click.argument("node", required=False)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The cluster, if not the usual one.",
)
@click.option(
    "--agent-namespace",
    default="gpu-sharing",
    show_default=True,
    metavar="NAME",
    help="Where the agents run.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="URL",
    help="Ask this agent and no cluster, such as http://127.0.0.1:8080; may be repeated.",
)
@click.option("-n", "--namespace", metavar="NAME", help="Only shares that pods of it hold.")
@click.option("--all", "free", is_flag=True, help="Shares that nobody holds as well.")
@click.option(
    "--sort",
    type=click.Choice(["place", "memory", "busy"]),
    default="place",
    show_default=True,
    help="By node and GPU, or the largest use first.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="From one look to the next.",
)
@click.option("--once", is_flag=True, help="Look once, as where the output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="The same for programs, once.")
def top(  # noqa: PLR0913 - one parameter an option
    *,
    node: str | None,
    kubeconfig: Path | None,
    agent_namespace: str,
    agents: tuple[str, ...],
    namespace: str | None,
    free: bool,
    sort: str,
    interval_s: float,
    once: bool,
    as_json: bool,
) -> None:
    """Show which pod holds which share, and how much of it is used, until Ctrl-C.

    \b
      gpu-sharing top
      gpu-sharing top n1 --sort memory --once
      gpu-sharing top --agent http://127.0.0.1:8080

    Figures are the agents' metrics, read through the API server: that takes the right to get
    pods/proxy where the agents run. A ? is what nobody can tell, a ! use above the share's memory.
    """  # noqa: D301 - click takes the character itself for its mark
    from cli.toprows import View

    if agents and (node is not None or kubeconfig is not None):
        raise click.UsageError("--agent asks no cluster: leave out NODE and --kubeconfig")
    view = View(namespace=namespace or "", free=free, order=sort)
    source = _source(agents, kubeconfig, node=node, namespace=agent_namespace)
    if as_json or once or not sys.stdout.isatty():
        asyncio.run(_once(source, view, as_json=as_json))
        return
    try:
        asyncio.run(_live(source, view, interval_s))
    except KeyboardInterrupt:
        return  # the way to end it


@asynccontextmanager
async def _source(
    agents: tuple[str, ...], kubeconfig: Path | None, *, node: str | None, namespace: str
) -> AsyncIterator[Look]:
    """How to look."""
    from cli.topsource import ProxyClient, look_at_agents, look_at_cluster

    if agents:
        yield lambda: look_at_agents(agents)
        return
    async with ProxyClient.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-top") as client:
        yield lambda: look_at_cluster(client, node=node, namespace=namespace)


async def _once(source: AbstractAsyncContextManager[Look], view: View, *, as_json: bool) -> None:
    from cli.toprows import lines, seen

    async with source as look:
        sight = await look()
    if as_json:
        content = {
            "shares": [asdict(row) for row in seen(sight.rows, view)],
            "remarks": list(sight.remarks),
        }
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
        return
    for line in (*lines(sight.rows, view), *sight.remarks):
        click.echo(printable(line))


async def _live(source: AbstractAsyncContextManager[Look], view: View, interval_s: float) -> None:
    """Look again and again; what fails is said in place, for it may pass."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from cli.toprows import lines

    with Live(console=Console(), screen=True, auto_refresh=False) as screen:
        async with source as look:
            while True:
                try:
                    sight = await look()
                    text = [*lines(sight.rows, view), *sight.remarks]
                except GpuSharingError as error:
                    text = [str(error)]
                now = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
                head = f"{now}, every {interval_s:g} s; Ctrl-C ends it"
                whole = "\n".join(map(printable, (head, "", *text)))
                screen.update(Text(whole, no_wrap=True, overflow="crop"), refresh=True)
                await asyncio.sleep(interval_s)
