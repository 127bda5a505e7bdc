"""``gpu-sharing plan``: what would become of a node's GPUs, step by step. Nothing is changed."""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import orjson

from sharing.errors import InputError
from sharing.printable import printable

if TYPE_CHECKING:
    from sharing.node.facts import NodeFacts
    from sharing.node.layoutfile import LayoutFile
    from sharing.node.plan import Blocker
    from sharing.node.preview import GpuPreview, NodePreview, StepPreview
    from sharing.node.wanted import Wanted

EXIT_BLOCKED: Final = 3
_WIDTH: Final = 100
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


@click.command(short_help="Show what would become of nodes.")
@click.option(
    "--node",
    required=True,
    metavar="FILE|NAME",
    help="The node as it is: an inventory file, a simulator's state file or GPUNode manifests; "
    "or the name of a node in the cluster.",
)
@click.option(
    "--layout",
    "layout_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Layout entries, a GPULayout, mig-parted's mig-configs or the configuration of NVIDIA's "
    "device plugin; what the GPUNode wants already if this is left out.",
)
@click.option(
    "--mig-config",
    metavar="NAME",
    help="Which configuration, if --layout is mig-parted's file or a ConfigMap with several files.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The cluster of NAME, if not the usual one.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(
    *,
    node: str,
    layout_file: Path | None,
    mig_config: str | None,
    kubeconfig: Path | None,
    as_json: bool,
) -> None:
    """Show what would be done to a node's GPUs, what blocks it and whom each step interrupts.

    The steps are those that the node's agent would do, made by the same code. Nothing is changed.

    \b
      gpu-sharing plan --node nodes.yaml --layout layout.yaml
      gpu-sharing plan --node n1 --layout config.yaml --mig-config all-balanced

    Exit status: 0 it could be done now, 3 something is refused or has to wait, 2 input wrong.
    """  # noqa: D301 - click takes the character itself for its mark
    from sharing.node.preview import preview_node

    listed = _facts(node, kubeconfig)
    layout = _layout(layout_file, mig_config)
    previews = [preview_node(facts, _wanted(facts, layout)) for facts in listed]
    notes = [_notes(facts, layout) for facts in listed]
    if as_json:
        content = [
            one.to_json() | ({"notCarriedOver": said} if said else {})
            for one, said in zip(previews, notes, strict=True)
        ]
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
    else:
        for one, said in zip(previews, notes, strict=True):
            for line in _lines(one, said):
                click.echo(printable(line))
    if not all(one.can_be_done for one in previews):
        click.get_current_context().exit(EXIT_BLOCKED)


def _facts(node: str, kubeconfig: Path | None) -> tuple[NodeFacts, ...]:
    from sharing.node.facts import facts_of, read_facts

    path = Path(node)
    if path.exists():
        return read_facts(path)
    if not _NAME.fullmatch(node) or path.suffix in {".yaml", ".yml", ".json"}:
        raise InputError(
            "--node",
            f"{node!r} is no file that is there, and no node's name",
            expected="an inventory file, a simulator's state file, GPUNode manifests, or a name",
            example="--node n1",
        )
    return (facts_of(asyncio.run(_fetch(node, kubeconfig)), f"GPUNode {node}"),)


async def _fetch(node: str, kubeconfig: Path | None) -> dict[str, object]:
    from sharing.cluster.client import Client
    from sharing.cluster.kind import GPU_NODES

    async with Client.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-plan") as client:
        return await client.get(GPU_NODES, node)


def _layout(layout_file: Path | None, mig_config: str | None) -> LayoutFile | None:
    from sharing.node.layoutfile import read_layout

    return None if layout_file is None else read_layout(layout_file, mig_config)


def _notes(facts: NodeFacts, layout: LayoutFile | None) -> list[str]:
    return [] if layout is None else list(layout.notes([one.gpu for one in facts.gpus]))


def _wanted(facts: NodeFacts, layout: LayoutFile | None) -> Wanted:
    if layout is not None:
        return layout.wanted([one.gpu for one in facts.gpus])
    if facts.spec is None:
        raise click.UsageError(f"node {facts.name} wants no layout by itself: give --layout FILE")
    return facts.spec


def _lines(preview: NodePreview, notes: Iterable[str]) -> Iterator[str]:
    changed = sum(bool(gpu.steps) for gpu in preview.gpus)
    yield f"node {preview.name}: {changed} of {len(preview.gpus)} GPUs change"
    for gpu in preview.gpus:
        yield from _gpu_lines(gpu)
    for note in notes:
        yield from _wrapped("Not carried over: ", note)
    yield f"Not known from this source: {preview.unknown}."
    yield "Nothing was changed."


def _gpu_lines(gpu: GpuPreview) -> Iterator[str]:
    head = f"GPU {gpu.index}  {gpu.board}  {gpu.uuid}"
    if not gpu.steps and not gpu.refused:
        yield f"{head}  stays {gpu.now}"
        return
    yield head
    yield f"  now     {gpu.now}"
    yield f"  wanted  {gpu.wanted}"
    if gpu.refused:
        yield from _wrapped("  refused ", gpu.refused)
    told: tuple[Blocker, ...] = ()
    for number, step in enumerate(gpu.steps, start=1):
        yield from _step_lines(number, step, told)
        told += step.blocked_by


def _step_lines(number: int, step: StepPreview, told: tuple[Blocker, ...]) -> Iterator[str]:
    """A step; whom an earlier one waits for already is not told again."""
    yield from _wrapped(f"  {number:>2}. ", step.text)
    if not step.interrupts.startswith("nobody"):
        yield from _wrapped("      interrupts: ", step.interrupts)
    for blocker in (one for one in step.blocked_by if one not in told):
        yield from _wrapped("      waits: ", str(blocker))


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width=_WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
