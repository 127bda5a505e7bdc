"""The command's frame: which commands there are, and what becomes of an error.

Commands are imported when they run, so ``--help`` needs none of their libraries. Errors end here:
one sentence on stderr, exit status 2 for something that a person wrote, 1 for everything else.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

import click

from sharing.errors import GpuSharingError, InputError
from sharing.printable import printable

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "admit": "Show what would become of manifests.",
        "plan": "Show what would become of nodes.",
        "status": "Show GPUs, layouts and who holds which share.",
        "top": "Show how shares are used.",
        "doctor": "Check prerequisites and find conflicts.",
        "gpu": "Look at simulated GPUs, and break them.",
        "demo": "Show the way of pods on an embedded cluster with simulated GPUs.",
        "embedded": "Run an embedded cluster with simulated GPUs.",
        "webhook": "Serve admission reviews.",
        "agent": "Serve the GPUs of one node.",
        "controller": "Bring layouts and faults to the nodes.",
        "certs": "Make, check and rotate the webhook's certificates.",
    }
)
"""Name and summary of each command; its module in ``cli`` has the same name."""

EXIT_FAULT: Final = 1
EXIT_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE: Final = 141
"""What a shell reports for a program that wrote into a closed pipe: 128 + SIGPIPE."""


@dataclass(slots=True)
class Invocation:
    """What holds for the whole run of a command."""

    debug: bool = False
    """Whether errors show where in the program they came from."""


class Told(click.ClickException):
    """An error as a person is told about it."""

    exit_code = EXIT_FAULT

    def __init__(self, sentence: str, cause: Exception, *, debug: bool) -> None:
        super().__init__(sentence)
        self._cause = cause
        self._debug = debug

    def show(self, file: IO[Any] | None = None) -> None:
        """Say it on stderr; with --debug, where it came from as well."""
        stream = sys.stderr if file is None else file
        if self._debug:
            traceback.print_exception(self._cause, file=stream)
        click.echo(printable(f"Error: {self.message}"), file=stream)


class ToldInput(Told):
    """The same for something that a person wrote."""

    exit_code = EXIT_INPUT


def told(error: Exception, *, debug: bool) -> Told:
    """What a person is told about an error, and the exit status that goes with it."""
    known = _known(error)
    if known is not None:
        kind = ToldInput if isinstance(known, InputError) else Told
        return kind(str(known), error, debug=debug)
    hint = "" if debug else "; run gpu-sharing --debug … to see where"
    text = " ".join(str(error).split()) or "no more is known"
    return Told(
        f"gpu-sharing itself failed: {type(error).__name__}: {text}{hint}", error, debug=debug
    )


class CommandTable(click.Group):
    """The commands whose modules exist, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the table's order."""
        del ctx
        return [name for name in COMMANDS if find_spec(f"cli.{name}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command's own object, or None if there is no such command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(importlib.import_module(f"cli.{cmd_name}"), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"cli.{cmd_name}.{cmd_name} is no click command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; whatever it raises becomes one sentence and an exit status."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except BrokenPipeError as error:
            # The reader has gone, as with `| head`. Python would complain once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(EXIT_PIPE) from error
        except Exception as error:
            raise told(error, debug=ctx.ensure_object(Invocation).debug) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands' summaries, without importing them."""
        rows = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _version() -> str:
    try:
        return metadata.version("gpu-sharing")
    except metadata.PackageNotFoundError:
        return "0+unknown"


@click.group(
    cls=CommandTable,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(_version(), prog_name="gpu-sharing")
@click.option(
    "--debug",
    is_flag=True,
    envvar="GPU_SHARING_DEBUG",
    help="Show where in the program an error came from.",
)
@click.pass_context
def cli(ctx: click.Context, *, debug: bool) -> None:
    """GPU sharing on Kubernetes as namespace policy: time-slicing, MPS and MIG.

    Exit status: 0 done, 1 failed, 2 something in the input or the options is wrong; some commands
    add their own.
    """
    ctx.ensure_object(Invocation).debug = debug


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process with its exit status."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name=_program_name(),
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


def _program_name() -> str:
    name = Path(sys.argv[0]).name
    return "kubectl gpu_sharing" if name == "kubectl-gpu_sharing" else "gpu-sharing"


def _known(error: BaseException) -> GpuSharingError | None:
    """The error that teaches, also from inside a group that concurrent tasks ended with."""
    if isinstance(error, GpuSharingError):
        return error
    if isinstance(error, BaseExceptionGroup):
        inner = [_known(each) for each in error.exceptions]
        return next((each for each in inner if each is not None), None) if all(inner) else None
    return None


if __name__ == "__main__":
    main()
