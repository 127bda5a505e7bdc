"""``gpu-sharing gpu``: look at the simulated GPUs of a node, and break them while it runs.

Each command changes the state file in one step; programs that use the same file see it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from cli import gpufaults
from cli.gpulist import rows_of
from cli.gpustate import pass_state
from sharing import catalogue
from sharing.errors import InputError
from sharing.migprofile import MigProfile
from sharing.nvml import simulator
from sharing.nvml.codes import Code
from sharing.nvml.driver import Driver
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Delays, Failure, Machine, ProcessKind
from sharing.nvml.simulator.store import Store

Result = TypeVar("Result")
_INSTANCE = click.option(
    "--instance", "gi_id", type=int, metavar="ID", help="GPU instance, as 'gpu list' shows it."
)
_GPU = click.argument("which", metavar="GPU")


@click.group(short_help="Look at simulated GPUs, and break them.")
@click.option(
    "--state",
    envvar="GPU_SHARING_SIMULATE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="State file of the simulated machine.  [required]",
)
@click.pass_context
def gpu(ctx: click.Context, *, state: Path | None) -> None:
    """Look at the simulated GPUs of a node, and break them while it runs.

    GPU is an index or a UUID.

    \b
      gpu-sharing gpu --state gpus.json create 4xH100-80GB 2xL4-24GB
      gpu-sharing gpu --state gpus.json mig 0 on
      gpu-sharing gpu --state gpus.json xid 1 79
    """  # noqa: D301 - click takes the character itself for its mark
    ctx.obj = state


@gpu.command()
@click.argument("boards", nargs=-1, required=True)
@click.option("--seed", metavar="TEXT", help="Decides the UUIDs.  [default: the file's name]")
@pass_state
def create(state: Path, *, boards: tuple[str, ...], seed: str | None) -> None:
    """Make a machine with BOARDS, over whatever the file held."""
    machine = simulator.create(state, boards, seed=seed)
    click.echo(f"{state} holds {len(machine.gpus)} GPUs")


@gpu.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@pass_state
def list_gpus(state: Path, *, output: str) -> None:
    """Show each GPU as NVML reports it, with instances and processes."""
    with Driver(state) as driver:
        node = driver.observe()
        users = {each.uuid: driver.processes(each.uuid) for each in node.gpus if each.readable}
    if output == "json":
        facts = [
            {
                **{key: value for key, value in asdict(each).items() if key != "board"},
                "board": each.board.name,
                "processes": [asdict(user) for user in users.get(each.uuid, ())],
            }
            for each in node.gpus
        ]
        click.echo(orjson.dumps(facts, default=str, option=orjson.OPT_INDENT_2))
        return
    for row in rows_of(node, users):
        click.echo(row)


@gpu.command()
@_GPU
@click.argument("mode", type=click.Choice(["on", "off"]))
@pass_state
def mig(state: Path, *, which: str, mode: str) -> None:
    """Ask for MIG mode on or off, as nvidia-smi would."""
    status = _do(state, operate.set_mig_mode, which, on=mode == "on")
    told = {
        Code.SUCCESS: f"MIG mode is {mode}",
        Code.IN_USE: "in use: MIG mode is as it was, or pending before Hopper",
        Code.RESET_REQUIRED: f"MIG mode will be {mode} after a reboot",
    }
    click.echo(f"GPU {which}: {told[status]}")


@gpu.group()
def process() -> None:
    """Pretend that processes use a GPU."""


@process.command("start")
@_GPU
@_INSTANCE
@click.option("--name", default="python", show_default=True)
@click.option("--pid", type=click.IntRange(1), help="[default: the next free one]")
@click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in ProcessKind]),
    default=str(ProcessKind.COMPUTE),
    show_default=True,
    help="monitor: an open client such as DCGM.",
)
@click.option("--memory-mib", type=click.IntRange(0), default=512, show_default=True, metavar="MIB")
@click.option(
    "--cgroup",
    default="",
    metavar="PATH",
    help="Where it lies, as /proc/PID/cgroup says: /kubepods/pod<uid>/<64 digits> is of a pod.",
)
@pass_state
def start_process(state: Path, /, *, which: str, kind: str, **options: Any) -> None:
    """Start a process on a GPU, or in an instance of it."""
    started = _do(state, operate.start_process, which, kind=ProcessKind(kind), **options)
    click.echo(f"GPU {which}: process {started.pid} runs")


@process.command("stop")
@click.argument("pid", type=int)
@pass_state
def stop_process(state: Path, *, pid: int) -> None:
    """End a process."""
    _do(state, operate.stop_process, pid)
    click.echo(f"process {pid} has ended")


@gpu.command()
@_GPU
@click.argument("number", type=click.IntRange(1, 999))
@_INSTANCE
@pass_state
def xid(state: Path, *, which: str, number: int, gi_id: int | None) -> None:
    """Report XID error NUMBER, of a GPU or of one instance."""
    _do(state, operate.report_xid, which, number, gi_id=gi_id)
    click.echo(f"GPU {which}: XID {number} reported")


@gpu.command()
@_GPU
@pass_state
def lose(state: Path, *, which: str) -> None:
    """Let a GPU fall off the bus; a reset or reboot brings it back."""
    _do(state, operate.lose, which)
    click.echo(f"GPU {which}: lost")


@gpu.command()
@_GPU
@pass_state
def reset(state: Path, *, which: str) -> None:
    """Reset a GPU: instances go, a pending MIG mode comes into force."""
    _do(state, operate.reset, which)
    click.echo(f"GPU {which}: reset")


@gpu.command()
@click.option("--order", metavar="I,I,…", help="The old indices in their new order.")
@pass_state
def reboot(state: Path, *, order: str | None) -> None:
    """Start the node again."""
    boot = _do(state, operate.reboot, _indices(order))
    click.echo(f"booted, {boot} boots in all")


@gpu.command()
@_GPU
@click.argument("board")
@pass_state
def swap(state: Path, *, which: str, board: str) -> None:
    """Put another GPU, a BOARD, into a GPU's slot."""
    fresh = _do(state, operate.swap, which, catalogue.load().board(board))
    click.echo(f"GPU {which}: is {fresh.uuid} now")


@gpu.group()
def foreign() -> None:
    """Change MIG instances behind the agent's back."""


@foreign.command("create")
@_GPU
@click.argument("profile")
@click.option("--start", type=click.IntRange(0), help="[default: the highest free place]")
@click.option("--half-made", is_flag=True, help="Without compute instance.")
@pass_state
def create_instance(
    state: Path, *, which: str, profile: str, start: int | None, half_made: bool
) -> None:
    """Create an instance of a MIG PROFILE."""
    wanted = MigProfile.parse(profile)
    made = _do(state, operate.create_instance, which, wanted, start, with_compute=not half_made)
    click.echo(f"GPU {which}: instance {made.id} is {wanted} at {made.start}")


@foreign.command("destroy")
@_GPU
@click.argument("instance", type=int)
@pass_state
def destroy_instance(state: Path, *, which: str, instance: int) -> None:
    """Destroy the INSTANCE of an id."""
    _do(state, operate.destroy_instance, which, instance)
    click.echo(f"GPU {which}: instance {instance} is gone")


@gpu.command()
@click.argument("function")
@click.option("--code", default=str(Code.UNKNOWN.name), show_default=True, help="NVML's name.")
@click.option("--times", type=click.IntRange(1), default=1, show_default=True)
@click.option("--gpu", "which", metavar="GPU", help="On this GPU only.")
@click.option("--takes-effect", is_flag=True, help="Do what was asked and fail nevertheless.")
@pass_state
def fail(
    state: Path, *, function: str, code: str, times: int, which: str | None, takes_effect: bool
) -> None:
    """Let the next calls to an NVML FUNCTION fail."""
    if code not in Code.__members__:
        raise InputError(
            "--code",
            f"{code!r} is no return code",
            expected=f"one of {', '.join(Code.__members__)}",
        )

    def step(machine: Machine) -> tuple[Machine, Failure]:
        uuid = operate.find(machine, which).uuid if which is not None else ""
        failure = Failure(
            function=function,
            code=int(Code[code]),
            times=times,
            uuid=uuid,
            takes_effect=takes_effect,
        )
        return operate.fail_calls(machine, failure)

    Store(state).change(step)
    click.echo(f"{function} will answer {code} {times} times")


@gpu.command()
@click.option("--create-s", type=click.FloatRange(0), default=0.0, metavar="S")
@click.option("--destroy-s", type=click.FloatRange(0), default=0.0, metavar="S")
@click.option("--mode-s", type=click.FloatRange(0), default=0.0, metavar="S")
@click.option("--walk-s", type=click.FloatRange(0), default=0.0, metavar="S")
@click.option("--list-s", type=click.FloatRange(0), default=0.0, metavar="S")
@click.option("--open-s", type=click.FloatRange(0), default=0.0, metavar="S")
@click.option(
    "--pace",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="REAL",
    help="Real seconds for a simulated one.",
)
@pass_state
def delay(state: Path, /, **seconds: float) -> None:
    """Let slow calls take seconds, as on real GPUs: about 0.2, 1, 1 and up to 10."""
    _do(state, operate.slow_down, Delays(**seconds))
    click.echo(", ".join(f"{name} {value:g}" for name, value in sorted(seconds.items())))


for _command in gpufaults.COMMANDS:
    gpu.add_command(_command)


def _do(
    state: Path, step: Callable[..., tuple[Machine, Result]], *arguments: Any, **options: Any
) -> Result:
    return Store(state).change(lambda machine: step(machine, *arguments, **options))


def _indices(order: str | None) -> list[int] | None:
    if order is None:
        return None
    try:
        return [int(part) for part in order.split(",")]
    except ValueError as error:
        raise InputError(
            "--order", f"{order!r} is no list of indices", example="--order 1,0"
        ) from error
