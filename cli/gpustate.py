"""Which simulated machine a ``gpu`` command is about; asked for when it runs, not for its help."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")


def pass_state(command: Callable[Concatenate[Path, P], R]) -> Callable[P, R]:
    """Give a command the state file of its group as first argument.

    Raises:
        click.UsageError: None was named.
    """

    @wraps(command)
    def with_state(*arguments: P.args, **options: P.kwargs) -> R:
        context = click.get_current_context()
        state = context.find_object(Path)
        if state is None:
            raise click.UsageError("Missing option '--state': name it behind 'gpu'.", context)
        return command(state, *arguments, **options)

    return with_state
