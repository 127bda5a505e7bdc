"""``gpu-sharing embedded``: the embedded cluster in the foreground, for kubectl."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Final

import click

from cli import logs
from cli.trial.scenario import NodeSpec
from sharing.errors import InputError, shown
from sharing.names import MANAGED_LABEL

_FORM: Final = re.compile(r"(?:([1-9][0-9]?)x)?([1-9][0-9]?x\S+)")
_MOST_NODES: Final = 16


@click.command()
@click.option(
    "--nodes", default="2x8xH100-80GB", show_default=True, metavar="NxMxBOARD",
    help="N nodes with M GPUs each.",
)  # fmt: skip
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), default=Path("kubeconfig"), show_default=True,
    metavar="FILE", help="Where to write the administrator's kubeconfig.",
)  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT",
              help="The API server's port.  [a free one]")  # fmt: skip
def embedded(nodes: str, kubeconfig: Path, port: int) -> None:
    """Run a cluster with simulated GPUs and the product on it, until SIGINT or SIGTERM.

    A stock kubectl works with the kubeconfig that it writes. Nodes are called node-1, node-2, …
    and carry the label gpu.sharing/managed=true.

    \b
      gpu-sharing embedded --nodes 2x8xH100-80GB --kubeconfig kubeconfig
      kubectl --kubeconfig kubeconfig get nodes
    """  # noqa: D301 - click takes the character itself for its mark
    logs.configure(quiet=True)
    asyncio.run(_run(parse_nodes(nodes), kubeconfig, port))


def parse_nodes(text: str) -> tuple[NodeSpec, ...]:
    """The nodes that ``2x8xH100-80GB`` stands for.

    Raises:
        InputError: The text does not follow the form, or names an unknown board.
    """
    from sharing.catalogue import parse_node_gpus

    match = _FORM.fullmatch(text)
    count = int(match[1] or 1) if match else 0
    if match is None or count > _MOST_NODES:
        raise InputError(
            "--nodes",
            f"{shown(text)} is not understood",
            expected=f"<nodes>x<GPUs>x<board>, at most {_MOST_NODES} nodes",
            example="2x8xH100-80GB",
        )
    parse_node_gpus(match[2])
    return tuple(
        NodeSpec(name=f"node-{number}", gpus=match[2], labels={MANAGED_LABEL: "true"})
        for number in range(1, count + 1)
    )


async def _run(nodes: tuple[NodeSpec, ...], kubeconfig: Path, port: int) -> None:
    from cli.trial.embeddedground import EmbeddedGround
    from cli.trial.installation import Installation

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def tell(text: str) -> None:
        click.echo(f"{text}…", err=True)

    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as folder:
        ground = EmbeddedGround(Path(folder), nodes, port=port)
        async with Installation(ground, Path(folder), told=tell):
            _write_kubeconfig(ground.cluster.kubeconfig(), kubeconfig)
            click.echo(f"embedded cluster at {ground.cluster.api.url}")
            click.echo(f"  kubectl --kubeconfig {kubeconfig} get nodes")
            click.echo(f"  state and logs: {folder}")
            await stop.wait()
        click.echo("stopped", err=True)


def _write_kubeconfig(made: Path, wanted: Path) -> None:
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.touch(mode=0o600)
        shutil.copyfile(made, wanted)
    except OSError as error:
        raise InputError(
            f"--kubeconfig {wanted}",
            f"cannot be written: {error.strerror}",
            fix="name a file in a folder that you may write to",
        ) from error
