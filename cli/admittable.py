"""The table of ``gpu-sharing admit``: readable at 100 columns, coloured on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.printable import printable
from sharing.names import MODE_LABEL, PROFILE_LABEL
from webhook.preview import Preview
from webhook.verdict import VerdictKind

_PLAIN_WIDTH: Final = 100
_MOST_NAMES: Final = 5
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


def print_table(
    previews: Sequence[Preview], passed_over: Mapping[str, int], ungoverned: Sequence[str]
) -> None:
    """Print one row a container that gets a share, then what there is to say about each object."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    with console.capture() as captured:
        if previews:
            console.print(_table(previews))
        for decided in previews:
            _print_remarks(console, decided)
        console.print(_summary(previews, passed_over))
        if ungoverned:
            console.print(_hint(ungoverned))
    # Cells are padded; blanks at the ends of lines only disturb whoever pipes them on.
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _table(previews: Iterable[Preview]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("OBJECT", "NAMESPACE", "VERDICT", "CONTAINER", "ASKED", "BECOMES"):
        table.add_column(heading, overflow="fold")
    for decided in previews:
        name = _cell(f"{decided.found.kind} {decided.found.name or '(no name)'}")
        verdict = Text(decided.kind.value, style=_STYLES[decided.kind])
        head: tuple[Text | str, ...] = (name, _cell(decided.namespace), verdict)
        for grant in decided.grants:
            times = f" x{grant.count}" if grant.count > 1 else ""
            became = _cell(f"{grant.share_class.resource_name}{times}")
            table.add_row(*head, _cell(grant.container), _cell(grant.request), became)
            head = ("", "", "")
        if not decided.grants:
            table.add_row(*head, "-", "-", "-")
    return table


def _cell(text: str) -> Text:
    """Text of others: no markup, no escapes."""
    return Text(printable(text))


def _print_remarks(console: Console, decided: Preview) -> None:
    remarks = [("denied", "red", decided.message)] if decided.message else []
    remarks += [("warning", "yellow", warning) for warning in decided.warnings]
    remarks += [
        ("why", "dim", f"{grant.container}: {grant.reason}")
        for grant in decided.grants
        if grant.reason and not any(grant.reason in warning for warning in decided.warnings)
    ]
    if not remarks:
        return
    console.print(
        Text("\n") + _cell(f"{decided.found.kind} {decided.namespace}/{decided.found.name}")
    )
    for word, style, text in remarks:
        line = f"[{style}]{word}[/] {escape(printable(text))}"
        console.print(Padding(line, (0, 0, 0, 2)))


def _hint(ungoverned: Sequence[str]) -> str:
    names = escape(printable(", ".join(ungoverned[:_MOST_NAMES])))
    more = f" and {len(ungoverned) - _MOST_NAMES} more" if len(ungoverned) > _MOST_NAMES else ""
    return (
        f"Without policy, so pods stay as they are: {names}{more}. A namespace's label gives one: "
        f"--namespace-label {PROFILE_LABEL}=NAME or {MODE_LABEL}=mps"
    )


def _summary(previews: Sequence[Preview], passed_over: Mapping[str, int]) -> str:
    counts = Counter(decided.kind for decided in previews)
    parts = [f"{counts[kind]} {word}" for kind, word in _SUMMARY.items() if counts[kind]]
    objects = f"{len(previews)} object{'' if len(previews) == 1 else 's'}"
    text = f"\n{objects} that make{'s' if len(previews) == 1 else ''} pods"
    text += f": {', '.join(parts)}" if parts else ""
    if passed_over:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(passed_over.items()))
        text += f"; passed over: {escape(printable(kinds))}"
    return text
