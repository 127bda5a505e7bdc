"""The table of ``gpu-sharing admit``: readable at 100 columns, coloured on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.admitresult import Result
from sharing.names import MODE_LABEL, PROFILE_LABEL
from sharing.printable import printable
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


def print_table(result: Result, *, only_touched: bool = False) -> None:
    """Print one row a container that gets a share, then what there is to say about each object.

    Args:
        result: The verdicts.
        only_touched: Leave objects out about which there is nothing to say; they are counted.
    """
    listed = tuple(one for one in result.previews if not only_touched or _is_touched(one))

    def show(console: Console) -> None:
        if listed:
            console.print(_table(listed))
        for decided in listed:
            _print_remarks(console, decided)
        console.print(_summary(result, left_out=len(result.previews) - len(listed)))
        if result.ungoverned:
            console.print(_hint(result.ungoverned))

    print_lines(show)


def print_lines(show: Callable[[Console], None]) -> None:
    """Print what is shown on a console, 100 columns wide where it is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    with console.capture() as captured:
        show(console)
    # Cells are padded; blanks at the ends of lines only disturb whoever pipes them on.
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _is_touched(decided: Preview) -> bool:
    return decided.kind is not VerdictKind.ALLOW or bool(decided.grants or decided.warnings)


def new_table(*headings: str) -> Table:
    """An empty table whose cells fold rather than being cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _table(previews: Iterable[Preview]) -> Table:
    table = new_table("OBJECT", "NAMESPACE", "VERDICT", "CONTAINER", "ASKED", "BECOMES")
    for decided in previews:
        name = cell(f"{decided.found.kind} {decided.found.name or '(no name)'}")
        verdict = Text(decided.kind.value, style=_STYLES[decided.kind])
        head: tuple[Text | str, ...] = (name, cell(decided.namespace), verdict)
        for grant in decided.grants:
            times = f" x{grant.count}" if grant.count > 1 else ""
            became = cell(f"{grant.share_class.resource_name}{times}")
            table.add_row(*head, cell(grant.container), cell(grant.request), became)
            head = ("", "", "")
        if not decided.grants:
            table.add_row(*head, "-", "-", "-")
    return table


def cell(text: str) -> Text:
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
        Text("\n") + cell(f"{decided.found.kind} {decided.namespace}/{decided.found.name}")
    )
    for word, style, text in remarks:
        print_remark(console, word, style, text)


def print_remark(console: Console, word: str, style: str, text: str) -> None:
    """Print a sentence below an object's name."""
    console.print(Padding(f"[{style}]{word}[/] {escape(printable(text))}", (0, 0, 0, 2)))


def _hint(ungoverned: Sequence[str]) -> str:
    names = escape(printable(", ".join(ungoverned[:_MOST_NAMES])))
    more = f" and {len(ungoverned) - _MOST_NAMES} more" if len(ungoverned) > _MOST_NAMES else ""
    return (
        f"Without policy, so pods stay as they are: {names}{more}. A namespace's label gives one: "
        f"--namespace-label {PROFILE_LABEL}=NAME or {MODE_LABEL}=mps"
    )


def _summary(result: Result, *, left_out: int) -> str:
    counts = Counter(decided.kind for decided in result.previews)
    parts = [f"{counts[kind]} {word}" for kind, word in _SUMMARY.items() if counts[kind]]
    total = len(result.previews)
    text = "\n" if total > left_out else ""
    text += f"{total} object{'' if total == 1 else 's'} that make{'s' if total == 1 else ''} pods"
    text += f": {', '.join(parts)}" if parts else ""
    if left_out:
        text += f"; {left_out} of them ask{'s' if left_out == 1 else ''} for no GPU"
    if result.passed_over:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.passed_over.items()))
        text += f"; passed over: {escape(printable(kinds))}"
    return text
