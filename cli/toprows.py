"""Shares and their use, as ``gpu-sharing top`` shows them, from agents' metrics or GPUNodes (pure).

What nobody can tell stays unknown: a GPU's own figure is never shown as a share's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from sharing.errors import UnavailableError

if TYPE_CHECKING:
    from sharing.api.node import GpuNodeStatus

_MIB: Final = 1 << 20
_PREFIX: Final = "gpu_sharing_"
_INFO: Final = f"{_PREFIX}share_info"
_HEAD: Final = ("NODE", "GPU", "SHARE", "POD", "MEMORY MiB", "BUSY", "PROCESSES")
UNKNOWN: Final = "?"
"""What a figure is that nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One share, and what its holder uses; None for what cannot be told."""

    node: str
    gpu: str
    """Its index, or its UUID where that is not known."""
    share: str
    """The device id at the kubelet."""
    resource: str
    namespace: str = ""
    """Empty, as the next two, for a share that nobody holds."""
    pod: str = ""
    container: str = ""
    memory_limit_mib: int | None = None
    memory_used_mib: int | None = None
    busy_percent: int | None = None
    """Of the time of the share's GPU or MIG instance."""
    thread_limit_percent: int | None = None
    processes: int | None = None
    mps_clients: int | None = None
    over_budget: bool = False

    @property
    def held(self) -> bool:
        """Whether a container has it."""
        return bool(self.pod)


def rows_of_metrics(node: str, text: str) -> tuple[Row, ...]:
    """The shares that an agent's metrics tell of; none if it was told to leave them out.

    Args:
        node: Where the agent is.
        text: What its ``/metrics`` says.

    Raises:
        UnavailableError: It is no text of metrics.
    """
    infos: list[Mapping[str, str]] = []
    figures: dict[tuple[str, str], float] = {}
    indices: dict[str, str] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == _INFO:
                    infos.append(sample.labels)
                elif sample.name == f"{_PREFIX}gpu_healthy":
                    indices[sample.labels["gpu"]] = sample.labels["index"]
                elif "share" in sample.labels:
                    name = sample.name.removeprefix(f"{_PREFIX}share_")
                    figures[sample.labels["share"], name] = sample.value
        return tuple(_row(node, one, figures, indices) for one in infos)
    except (ValueError, KeyError, OverflowError) as error:
        raise UnavailableError(
            f"metrics of the agent on {node}",
            "cannot be read",
            expected="the text that gpu-sharing agent serves at /metrics",
        ) from error


def _row(
    node: str,
    info: Mapping[str, str],
    figures: Mapping[tuple[str, str], float],
    indices: Mapping[str, str],
) -> Row:
    share = info["share"]

    def figure(name: str, scale: float = 1.0) -> int | None:
        value = figures.get((share, name))
        return None if value is None else round(value * scale)

    return Row(
        node=node,
        gpu=indices.get(info["gpu"], info["gpu"]),
        share=share,
        resource=info["resource"],
        namespace=info["namespace"],
        pod=info["pod"],
        container=info["container"],
        memory_limit_mib=figure("memory_limit_bytes", 1 / _MIB),
        memory_used_mib=figure("memory_used_bytes", 1 / _MIB),
        busy_percent=figure("busy_ratio", 100),
        thread_limit_percent=figure("thread_limit_ratio", 100),
        processes=figure("processes"),
        mps_clients=figure("mps_clients"),
        over_budget=figure("over_budget") == 1,
    )


def rows_of_status(node: str, status: GpuNodeStatus) -> tuple[Row, ...]:
    """The shares that a GPUNode tells of: who holds them, but not what is used."""
    return tuple(
        Row(
            node=node,
            gpu=str(gpu.index),
            share=share.id,
            resource=share.resource,
            namespace=share.holders[0].namespace if share.holders else "",
            pod=share.holders[0].pod if share.holders else "",
            container=share.holders[0].container if share.holders else "",
            memory_limit_mib=share.memory_mib,
            over_budget=share.over_budget_since is not None,
        )
        for gpu in status.gpus
        for share in gpu.shares
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is to be seen of all shares."""

    namespace: str = ""
    """Only shares that pods of it hold; empty for all."""
    free: bool = False
    """Whether shares that nobody holds are shown too."""
    order: str = "place"
    """``place``, ``memory`` or ``busy``; the largest first."""


def seen(rows: Iterable[Row], view: View) -> list[Row]:
    """The rows that are shown, in their order."""
    chosen = [
        row
        for row in rows
        if (row.held or (view.free and not view.namespace))
        and (not view.namespace or row.namespace == view.namespace)
    ]
    return sorted(chosen, key=lambda row: (-_rank(row, view.order), _place(row)))


def _rank(row: Row, order: str) -> int:
    figures = {"memory": row.memory_used_mib, "busy": row.busy_percent}
    return figures.get(order) or 0


def _place(row: Row) -> tuple[str, int, str, str, str]:
    index = int(row.gpu) if row.gpu.isdecimal() else -1
    return row.node, index, row.gpu, row.resource, row.share


def lines(rows: Sequence[Row], view: View) -> Iterator[str]:
    """The table and what it adds up to."""
    shown = seen(rows, view)
    held = sum(row.held for row in rows)
    if shown:
        yield from _table([_HEAD, *(_cells(row) for row in shown)])
    nodes = len({row.node for row in rows})
    over = sum(row.over_budget for row in rows)
    above = f", {over} above their memory" if over else ""
    yield f"{held} of {len(rows)} shares on {nodes} nodes are held{above}"


def _cells(row: Row) -> tuple[str, ...]:
    if not row.held:
        return (row.node, row.gpu, row.resource, "-", f"- / {_text(row.memory_limit_mib)}", "", "")
    used = f"{_text(row.memory_used_mib)} / {_text(row.memory_limit_mib)}"
    processes = _text(row.processes)
    if row.mps_clients is not None:
        processes += f" ({row.mps_clients} MPS)"
    return (
        row.node,
        row.gpu,
        row.resource,
        f"{row.namespace}/{row.pod}",
        f"{used} !" if row.over_budget else used,
        UNKNOWN if row.busy_percent is None else f"{row.busy_percent}%",
        processes,
    )


def _text(figure: int | None) -> str:
    return UNKNOWN if figure is None else str(figure)


def _table(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()
