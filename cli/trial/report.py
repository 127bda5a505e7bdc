"""The facts of a trial for a person: readable at 100 columns, in colour where a terminal allows."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cli.trial.facts import ContainerFacts, Facts, GpuFacts, PodFacts

WIDTH: Final = 100
_TELLING: Final = ("NVIDIA_VISIBLE_DEVICES", "GPU_SHARING_MEMORY_MIB")
_VERDICT_STYLES: Final = {"allow": "dim", "patch": "green", "deny": "red"}
_MODE_STYLES: Final = {
    "mig": "magenta",
    "mps": "cyan",
    "time-slicing": "yellow",
    "exclusive": "blue",
}


def show(console: Console, facts: Facts, found: tuple[str, ...]) -> None:
    """Print the pods, the GPUs and what deviates."""
    console.print(_heading("Pods: what each asked, what it became and why, where it runs"))
    for pod in facts.pods:
        console.print(_pod(pod))
    console.print(_heading("GPUs: layout, and who holds which share"))
    for node, gpus in groupby(facts.gpus, key=lambda gpu: gpu.node):
        console.print(_node(node, tuple(gpus)))
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in facts.elapsed_s.items())
    console.print(Text(f"\n{times}", style="dim"))
    if not found:
        console.print(Text("All is as the scenario states.", style="bold green"))
    for text in found:
        console.print(Text(f"deviates: {text}", style="bold red"))


def _heading(text: str) -> Text:
    return Text(f"\n{text}\n", style="bold")


def _pod(pod: PodFacts) -> Group:
    head = Text.assemble(
        (pod.key, "bold"), "  ", (pod.verdict, _VERDICT_STYLES[pod.verdict]),
        "  ", (pod.about, "dim"),
    )  # fmt: skip
    lines = Table.grid(padding=(0, 1), expand=False)
    lines.add_column(width=10, justify="right", style="dim")
    lines.add_column(width=WIDTH - 13, overflow="fold")
    lines.add_row("asked", pod.asked)
    if pod.verdict == "deny":
        lines.add_row("refused", Text(f"{pod.code}: {pod.message}", style="red"))
    for warning in pod.warnings:
        lines.add_row("warning", Text(warning, style="yellow"))
    for container in pod.containers:
        if container.resource is not None:
            _add_container(lines, pod, container)
    if pod.verdict != "deny" and pod.phase != "Running":
        lines.add_row(pod.phase or "gone", Text(pod.message, style="red"))
    elif not any(container.resource for container in pod.containers) and pod.node:
        lines.add_row("runs", f"on {pod.node}, sees no GPU")
    return Group(head, lines, "")


def _add_container(lines: Table, pod: PodFacts, container: ContainerFacts) -> None:
    became = Text.assemble(f"{container.name}: ", (container.resource or "", "bold"))
    lines.add_row("became", became)
    if container.why:
        lines.add_row("why", container.why)
    if container.device_ids:
        gpus = " and ".join(f"GPU {index}" for index in container.gpus)
        lines.add_row("runs", f"on {pod.node}, {gpus}, device {', '.join(container.device_ids)}")
    sees = [f"{name}={value}" for name, value in sorted(container.sees.items()) if _tells(name)]
    if container.device_nodes:
        sees.append("+ " + " ".join(container.device_nodes))
    if sees:
        lines.add_row("sees", "\n".join(sees))


def _tells(name: str) -> bool:
    """Whether a variable says something that the lines above do not; all are in the JSON."""
    return name.startswith("CUDA_MPS_") or name in _TELLING


def _node(node: str, gpus: tuple[GpuFacts, ...]) -> Table:
    table = Table(
        title=f"{node}: {len(gpus)} × {gpus[0].board}",  # noqa: RUF001 - a count, as people write it
        title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False,
    )  # fmt: skip
    table.add_column("GPU", width=3, justify="right")
    table.add_column("layout", ratio=5, overflow="fold")
    table.add_column("NVML shows", ratio=6, overflow="fold")
    table.add_column("held", width=5, justify="right")
    table.add_column("by", ratio=6, overflow="fold")
    for gpu in gpus:
        held = [share for share in gpu.shares if share.holder]
        holders = "\n".join(f"{share.resource.split('/')[-1]} {share.holder}" for share in held)
        style = _MODE_STYLES.get(gpu.layout.split(" ")[0], "")
        table.add_row(
            str(gpu.index), Text(gpu.layout, style=style), gpu.observed,
            f"{len(held)}/{len(gpu.shares)}", holders,
        )  # fmt: skip
    return table
