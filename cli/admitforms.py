"""The forms for programs: YAML, JSON, patches, answers to reviews; and the one for eyes, a diff."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import orjson

from cli.admitresult import Result, entry, operations, patched, title
from sharing.documents import write_documents
from sharing.printable import printable
from webhook.preview import Preview
from webhook.verdict import VerdictKind

_COLOURS: Final = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}
"""By a line's beginning; the longer ones first."""


def print_yaml(result: Result) -> None:
    """Print the objects as they would be; denials to standard error."""
    made = [patched(one) for one in result.previews if one.kind is not VerdictKind.DENY]
    click.echo(write_documents(made) if made else "", nl=False)
    _print_denials(result)


def print_json(result: Result) -> None:
    """Print everything there is to know."""
    click.echo(json_text([entry(preview) for preview in result.previews]))


def print_patches(result: Result) -> None:
    """Print one JSON Patch a line, one line an object; denials to standard error."""
    for decided in result.previews:
        click.echo(orjson.dumps(operations(decided)).decode())
    _print_denials(result)


def print_diffs(result: Result) -> None:
    """Print what changes in each object, as ``diff -u`` would; denials to standard error."""
    for decided in result.previews:
        before, after = title(decided), f"{title(decided)}, admitted"
        print_diff(decided.found.value, patched(decided), _placed(before, decided), after)
    _print_denials(result)


def print_diff(before: Any, after: Any, old: str, new: str) -> None:
    """Print how two objects differ; nothing where they do not."""
    if before == after:
        return
    coloured = _is_coloured()
    for line in _difference(before, after, printable(old), printable(new)):
        colour = next((c for start, c in _COLOURS.items() if line.startswith(start)), "")
        styled = {"bold": True} if colour == "bold" else {"fg": colour or None}
        click.echo(click.style(line, **styled) if coloured and colour else line)


def _difference(before: Any, after: Any, old: str, new: str) -> Iterator[str]:
    first, second = (write_documents([value]).splitlines()[1:] for value in (before, after))
    for line in difflib.unified_diff(first, second, old, new, lineterm=""):
        yield printable(line)


def _placed(name: str, decided: Preview) -> str:
    found = decided.found
    return f"{name} ({found.source}:{found.line})" if found.source else name


def _is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_answers(answers: Iterable[dict[str, Any]], output: str) -> None:
    """Print answers to AdmissionReviews."""
    for answer in answers:
        if output == "yaml":
            click.echo(write_documents([answer]), nl=False)
        elif output == "patch":
            import base64

            click.echo(base64.b64decode(answer["response"].get("patch", "W10=")))
        else:
            click.echo(json_text(answer))


def _print_denials(result: Result) -> None:
    for decided in result.denied:
        click.echo(printable(f"denied: {title(decided)}: {decided.message}"), err=True)


def json_text(value: Any) -> str:
    """JSON for people and programs."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
