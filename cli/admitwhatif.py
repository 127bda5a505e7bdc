"""``gpu-sharing admit --what-if``: what a change of policy changes, as a table or for a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.admitforms import json_text, print_diff
from cli.admitresult import EXIT_DENIED, Result, patched, title
from cli.admittable import cell, new_table, print_lines, print_remark
from sharing.names import PROFILE_LABEL
from sharing.printable import printable
from webhook.verdict import VerdictKind
from webhook.whatif import Aspect, Change, Outlook

_MOST_NAMES: Final = 5
_MOST_UNKNOWN: Final = 10
_UNKNOWN: Final = (
    "Pods that were admitted already are taken back to what their record says they asked for. "
    "What it does not say:"
)
_WORDS: Final = {
    Aspect.VERDICT: ("verdict", "verdicts"),
    Aspect.GRANT: ("grant", "grants"),
    Aspect.NODES: ("node choice", "node choices"),
}


def exit_code(changes: Sequence[Change]) -> int:
    """3 if something that is admitted now would be denied."""
    return EXIT_DENIED if any(change.newly_denied for change in changes) else 0


def counts(result: Result, changes: Sequence[Change]) -> dict[str, int]:
    """How much changes."""
    aspects = Counter(aspect for change in changes for aspect in change.aspects)
    return {
        "objects": len(result.previews),
        "changed": len(changes),
        **{aspect.value: aspects[aspect] for aspect in Aspect},
        "newlyDenied": sum(change.newly_denied for change in changes),
        "newlyAdmitted": sum(c.now.denied and not c.then.denied for c in changes),
    }


def print_json(
    result: Result, changes: Sequence[Change], governed: Sequence[str], unknown: Sequence[str]
) -> None:
    """Print the change for a program."""
    value = {
        "counts": counts(result, changes),
        "namespaces": list(governed),
        "unknown": list(unknown),
        "changes": [
            {
                "kind": change.now.preview.found.kind,
                "namespace": change.now.preview.namespace,
                "name": change.now.preview.found.name,
                "changed": [aspect.value for aspect in change.aspects],
                "now": _side(change.now),
                "then": _side(change.then),
            }
            for change in changes
        ],
    }
    click.echo(json_text(value))


def _side(outlook: Outlook) -> dict[str, Any]:
    preview = outlook.preview
    return {
        "verdict": preview.kind.value,
        "message": preview.message,
        "warnings": list(preview.warnings),
        "grants": [grant.to_json() for grant in preview.grants],
        "nodes": None if outlook.nodes is None else list(outlook.nodes),
        "placement": [dict(said) for said in outlook.placement],
    }


def print_diffs(changes: Sequence[Change]) -> None:
    """Print how what each object becomes would differ from what it becomes now."""
    for change in changes:
        now, then = (
            None if side.denied else patched(side.preview) for side in (change.now, change.then)
        )
        name = title(change.now.preview)
        if now is not None and then is not None:
            print_diff(now, then, f"{name}, admitted now", f"{name}, admitted then")
        elif now is not None or then is not None:
            when, message = _denial(change)
            click.echo(printable(f"denied {when}: {name}: {message}"), err=True)


def _denial(change: Change) -> tuple[str, str]:
    if change.then.denied:
        return "then", change.then.preview.message
    return "now", change.now.preview.message


def print_table(
    result: Result,
    changes: Sequence[Change],
    governed: Sequence[str],
    names: Sequence[str],
    *,
    unknown: Sequence[str],
) -> None:
    """Print one row a change, why things are denied, counts, and what cannot be known."""

    def show(console: Console) -> None:
        if changes:
            console.print(_table(changes))
        for change in changes:
            if change.newly_denied:
                preview = change.then.preview
                console.print(Text("\n") + cell(title(preview)))
                print_remark(console, "denied", "red", preview.message)
        console.print(Text("\n" if changes else "") + cell(_summary(result, changes)))
        console.print(cell(_reach(governed, names)))
        if unknown:
            console.print(cell(_UNKNOWN))
        for sentence in unknown[:_MOST_UNKNOWN]:
            print_remark(console, "unknown", "dim", sentence)
        if len(unknown) > _MOST_UNKNOWN:
            console.print(cell(f"  and {len(unknown) - _MOST_UNKNOWN} more: -o json has them all"))

    print_lines(show)


def _table(changes: Sequence[Change]) -> Table:
    table = new_table("OBJECT", "NAMESPACE", "CHANGES", "NOW", "THEN")
    for change in changes:
        preview = change.now.preview
        name = f"{preview.found.kind} {preview.found.name or '(no name)'}"
        head = (cell(name), cell(preview.namespace))
        for aspect in change.aspects:
            now, then = _said(aspect, change)
            table.add_row(*head, _WORDS[aspect][0], now, then)
            head = (Text(), Text())
    return table


def _said(aspect: Aspect, change: Change) -> tuple[Text, Text]:
    match aspect:
        case Aspect.VERDICT:
            return _verdict(change.now), _verdict(change.then)
        case Aspect.GRANT:
            return _grants(change.now), _grants(change.then)
        case Aspect.NODES:
            now, then = _nodes(change.now), _nodes(change.then)
            if now == then:
                now, then = _placement(change.now), _placement(change.then)
            return cell(now), cell(then)


def _verdict(outlook: Outlook) -> Text:
    denied = outlook.preview.kind is VerdictKind.DENY
    return Text(outlook.preview.kind.value, style="bold red" if denied else "")


def _grants(outlook: Outlook) -> Text:
    said = [
        f"{container}: {resource}{f' x{count}' if count > 1 else ''}"
        for container, resource, count in outlook.grants
    ]
    return cell(", ".join(said) or "-")


def _nodes(outlook: Outlook) -> str:
    if outlook.nodes is None:
        return _placement(outlook)
    return _named(outlook.nodes) or "no known node"


def _placement(outlook: Outlook) -> str:
    keys = {key: said[key] for said in outlook.placement for key in said}
    return ", ".join(f"{key} {_short(keys[key])}" for key in sorted(keys)) or "anywhere"


def _short(value: Any) -> str:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return " ".join(f"{key}={value[key]}" for key in sorted(value))
    return value if isinstance(value, str) else json_text(value).replace("\n", " ")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _summary(result: Result, changes: Sequence[Change]) -> str:
    known = counts(result, changes)
    text = f"{known['changed']} of {known['objects']} objects that make pods would change"
    parts = [
        f"{known[aspect.value]} {words[known[aspect.value] != 1]}"
        for aspect, words in _WORDS.items()
        if known[aspect.value]
    ]
    text += f": {', '.join(parts)}" if parts else ""
    for key, word in (("newlyDenied", "denied"), ("newlyAdmitted", "admitted")):
        text += f"; {known[key]} newly {word}" if known[key] else ""
    return text


def _reach(governed: Sequence[str], names: Sequence[str]) -> str:
    if not names:
        return "The file holds no profile, but labels of namespaces."
    if governed:
        return f"Namespaces under {_named(names)}: {_named(governed)}."
    return (
        f"No namespace is under {_named(names)}. Give the namespace's manifest with the label "
        f"{PROFILE_LABEL} in the same file, or ask by --profile {names[0]} for all namespaces."
    )
