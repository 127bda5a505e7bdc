"""The table of ``gpu-sharing admit``: readable at 100 columns, coloured on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from webhook.preview import Preview
from webhook.verdict import VerdictKind

_PLAIN_WIDTH: Final = 100
_STYLES: Final = {
    VerdictKind.ALLOW: "green",
    VerdictKind.PATCH: "cyan",
    VerdictKind.DENY: "bold red",
}
_SUMMARY: Final = {
    VerdictKind.PATCH: "changed",
    VerdictKind.ALLOW: "unchanged",
    VerdictKind.DENY: "denied",
}


def print_table(previews: Sequence[Preview], passed_over: Mapping[str, int]) -> None:
    """Print one row a container that gets a share, then what there is to say about each object."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    if previews:
        console.print(_table(previews))
    for decided in previews:
        _print_remarks(console, decided)
    console.print(_summary(previews, passed_over))


def _table(previews: Iterable[Preview]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("OBJECT", "NAMESPACE", "VERDICT", "CONTAINER", "ASKED", "BECOMES"):
        table.add_column(heading, overflow="fold")
    for decided in previews:
        name = Text(f"{decided.found.kind} {decided.found.name or '(no name)'}")
        verdict = Text(decided.kind.value, style=_STYLES[decided.kind])
        head: tuple[Text | str, ...] = (name, Text(decided.namespace), verdict)
        for grant in decided.grants:
            times = f" x{grant.count}" if grant.count > 1 else ""
            became = Text(f"{grant.share_class.resource_name}{times}")
            table.add_row(*head, Text(grant.container), Text(grant.request), became)
            head = ("", "", "")
        if not decided.grants:
            table.add_row(*head, "-", "-", "-")
    return table


def _print_remarks(console: Console, decided: Preview) -> None:
    remarks = [("denied", "red", decided.message)] if decided.message else []
    remarks += [("warning", "yellow", warning) for warning in decided.warnings]
    remarks += [("why", "dim", f"{g.container}: {g.reason}") for g in decided.grants if g.reason]
    if not remarks:
        return
    console.print(Text(f"\n{decided.found.kind} {decided.namespace}/{decided.found.name}"))
    for word, style, text in remarks:
        line = f"[{style}]{word}[/] {escape(_printable(text))}"
        console.print(Padding(line, (0, 0, 0, 2)))


def _summary(previews: Sequence[Preview], passed_over: Mapping[str, int]) -> str:
    counts = Counter(decided.kind for decided in previews)
    parts = [f"{counts[kind]} {word}" for kind, word in _SUMMARY.items() if counts[kind]]
    objects = f"{len(previews)} object{'' if len(previews) == 1 else 's'}"
    text = f"\n{objects} that make{'s' if len(previews) == 1 else ''} pods"
    text += f": {', '.join(parts)}" if parts else ""
    if passed_over:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(passed_over.items()))
        text += f"; passed over: {escape(_printable(kinds))}"
    return text


def _printable(text: str) -> str:
    """Text from manifests without what would steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
