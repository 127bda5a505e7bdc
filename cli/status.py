"""``gpu-sharing status``: the GPUs of a cluster, what they serve, who holds it, how they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from sharing.printable import printable

if TYPE_CHECKING:
    from sharing.api.node import GpuNodeStatus, ObservedGpuStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One GPU."""

    node: str
    gpu: str
    board: str
    layout: str
    held: str
    health: str


@click.command(short_help="Show GPUs, layouts and who holds which share.")
@click.argument("node", required=False)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The cluster, if not the usual one.",
)
@click.option("--json", "as_json", is_flag=True, help="The GPUNodes' status, for programs.")
def status(*, node: str | None, kubeconfig: Path | None, as_json: bool) -> None:
    """Show the GPUs of all nodes, or of one with who holds each share.

    \b
      gpu-sharing status
      gpu-sharing status n1

    HELD is shares held of shares offered. Below the table: what each node's agent has to say.
    """  # noqa: D301 - click takes the character itself for its mark
    items = asyncio.run(_fetch(node, kubeconfig))
    if as_json:
        content = [{"node": _name(item), "status": item.get("status") or {}} for item in items]
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
        return
    read = [(_name(item), _status(item)) for item in items]
    for line in _lines(read, with_holders=node is not None):
        click.echo(printable(line))


async def _fetch(node: str | None, kubeconfig: Path | None) -> list[dict[str, Any]]:
    from sharing.cluster.client import Client
    from sharing.cluster.kind import GPU_NODES

    async with Client.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-status") as client:
        if node is not None:
            return [await client.get(GPU_NODES, node)]
        items: list[dict[str, Any]] = (await client.list(GPU_NODES))["items"]
        return sorted(items, key=_name)


def _name(item: dict[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("name"))


def _status(item: dict[str, Any]) -> GpuNodeStatus:
    from sharing.api.model import parse_model
    from sharing.api.node import GpuNodeStatus

    return parse_model(GpuNodeStatus, item.get("status") or {}, f"GPUNode {_name(item)}, status")


def _lines(nodes: list[tuple[str, GpuNodeStatus]], *, with_holders: bool) -> Iterator[str]:
    rows = [_row(name, gpu) for name, found in nodes for gpu in found.gpus]
    if not rows:
        yield "no GPUs are known: no GPUNode has any in its status"
    else:
        yield from _table(rows)
    for name, found in nodes:
        if with_holders:
            yield from _holders(found)
        yield from _remarks(name, found)


def _row(node: str, gpu: ObservedGpuStatus) -> Row:
    offered = [share for share in gpu.shares if share.healthy or share.holders]
    held = sum(bool(share.holders) for share in offered)
    return Row(
        node=node,
        gpu=str(gpu.index),
        board=gpu.board,
        layout="changing" if gpu.layout is None else str(gpu.layout.to_layout()),
        held=f"{held}/{len(offered)}",
        health="healthy" if gpu.health.healthy else gpu.health.reason,
    )


def _table(rows: Iterable[Row]) -> Iterator[str]:
    head = Row(node="NODE", gpu="GPU", board="BOARD", layout="LAYOUT", held="HELD", health="HEALTH")
    cells = [
        (row.node, row.gpu, row.board, row.layout, row.held, row.health) for row in (head, *rows)
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _holders(found: GpuNodeStatus) -> Iterator[str]:
    for gpu in found.gpus:
        for share in gpu.shares:
            above = f"; above its memory since {share.over_budget_since}"
            for one in share.holders:
                yield (
                    f"GPU {gpu.index}: {share.resource} is held by {one.namespace}/{one.pod}, "
                    f"container {one.container}{above if share.over_budget_since else ''}"
                )
            if (fault := share.fault) is not None:
                yield f"GPU {gpu.index}: share {share.id}: {fault.reason}: {fault.message}"


def _remarks(node: str, found: GpuNodeStatus) -> Iterator[str]:
    for one in found.conditions:
        if one.status != "True":
            yield f"{node}: {one.type} is {one.status}, {one.reason}: {one.message}"
