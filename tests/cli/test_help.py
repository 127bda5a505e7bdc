"""What a person reads first: the help of each command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cli.main import COMMANDS, cli


def commands() -> Iterator[tuple[str, ...]]:
    """Each command that exists, with the commands below it."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is None:
            continue
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, below) for below in command.list_commands(context))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_keeps_examples_on_lines_of_their_own(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"])

    assert shown.exit_code == 0
    assert "\\b" not in shown.output
    assert "\b" not in shown.output
    for line in shown.output.splitlines():
        assert line.count("  gpu-sharing ") <= 1, line
        assert len(line) <= 100, line
