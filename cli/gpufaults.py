"""``gpu-sharing gpu heat|ecc|rows|nvlink|driver``: let a simulated GPU age."""

from __future__ import annotations

from pathlib import Path

import click

from cli.gpustate import pass_state
from sharing.errors import InputError
from sharing.nvml.simulator import ageing
from sharing.nvml.simulator.state import Renamed
from sharing.nvml.simulator.store import Store

_GPU = click.argument("which", metavar="GPU")


@click.command()
@_GPU
@click.argument("celsius", type=click.IntRange(-40, 200))
@pass_state
def heat(state: Path, *, which: str, celsius: int) -> None:
    """Let a GPU have CELSIUS degrees; its hardware slows down at 90."""
    Store(state).change(lambda machine: ageing.heat(machine, which, celsius))
    click.echo(f"GPU {which}: {celsius} degrees Celsius")


@click.command()
@_GPU
@click.argument("count", type=click.IntRange(1))
@click.option("--corrected", is_flag=True, help="Errors that ECC corrects.")
@pass_state
def ecc(state: Path, *, which: str, count: int, corrected: bool) -> None:
    """Let COUNT memory errors happen."""
    right, wrong = (count, 0) if corrected else (0, count)
    Store(state).change(
        lambda machine: ageing.memory_errors(machine, which, corrected=right, uncorrected=wrong)
    )
    click.echo(f"GPU {which}: {count} {'corrected' if corrected else 'uncorrected'} errors")


@click.command()
@_GPU
@click.argument("what", type=click.Choice(["well", "pending", "failed"]))
@pass_state
def rows(state: Path, *, which: str, what: str) -> None:
    """Let a memory row wait for its replacement, or find none."""
    Store(state).change(
        lambda machine: ageing.remap_rows(
            machine, which, pending=what == "pending", failed=what == "failed"
        )
    )
    click.echo(f"GPU {which}: rows {what}")


@click.command()
@_GPU
@click.argument("link", type=click.IntRange(0))
@click.argument("what", type=click.Choice(["up", "down"]))
@pass_state
def nvlink(state: Path, *, which: str, link: int, what: str) -> None:
    """Let an NVLink go down or come up."""
    Store(state).change(lambda machine: ageing.set_link(machine, which, link, up=what == "up"))
    click.echo(f"GPU {which}: NVLink {link} is {what}")


@click.command()
@click.argument("version")
@click.option(
    "--rename",
    multiple=True,
    metavar="OLD=NEW[,MIB]",
    help="A MIG profile that the driver names, and measures, otherwise.",
)
@pass_state
def driver(state: Path, *, version: str, rename: tuple[str, ...]) -> None:
    """Start the node again with the driver of a VERSION."""
    renamed = [_renamed(text) for text in rename]
    Store(state).change(lambda machine: ageing.change_driver(machine, version, renamed))
    click.echo(f"driver {version}")


def _renamed(text: str) -> Renamed:
    old, equals, new = text.partition("=")
    name, _, memory = new.partition(",")
    if not old or not equals or not name or (memory and not memory.isdecimal()):
        raise InputError("--rename", f"{text!r} is no pair", example="1g.23gb=1g.24gb,20480")
    return Renamed(profile=old, name=name, memory_mib=int(memory or 0))


COMMANDS = (heat, ecc, rows, nvlink, driver)
