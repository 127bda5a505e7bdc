"""Starts and ends the programs inside a box.

It belongs to the first process of a pid namespace: orphans become its children, so one loop reaps
everything and nothing else may call ``wait``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from tests.cluster.daemons import tail

_RUN_TIMEOUT_S: Final = 30.0
_IDLE_S: Final = 0.02
_RESET: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)


class ProgramEndedError(RuntimeError):
    """A program ended that should run, or failed."""


@dataclass
class Program:
    """One named program: how it starts, and its last process."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    wanted: bool = False


class Supervisor:
    """The programs of one box, by name."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._exits: dict[int, int] = {}
        self._changed = threading.Condition()
        self.programs: dict[str, Program] = {}

    def spawn(
        self, arguments: Sequence[str], log: str, environment: Mapping[str, str] | None = None
    ) -> int:
        """Start a process, its output added to a log; its pid."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = os.open(self._logs / f"{log}.log", flags, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        actions = [
            (os.POSIX_SPAWN_DUP2, nothing, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ]
        try:
            with self._changed:  # the reaper must not note its end before its pid is fresh
                pid = os.posix_spawnp(
                    arguments[0],
                    list(arguments),
                    {**os.environ, **(environment or {})},
                    setsid=True,
                    setsigmask=[],
                    setsigdef=_RESET,
                    file_actions=actions,
                )
                self._exits.pop(pid, None)
                return pid
        finally:
            os.close(output)
            os.close(nothing)

    def reap_forever(self) -> NoReturn:
        """Collect every child that ends, ours or orphaned."""
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(_IDLE_S)  # there is no event for the first child
                continue
            with self._changed:
                self._exits[pid] = os.waitstatus_to_exitcode(status)
                self._changed.notify_all()

    def wait(self, pid: int, timeout_s: float = _RUN_TIMEOUT_S) -> int:
        """A process's exit code, once it ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: pid in self._exits, timeout_s):
                raise TimeoutError(f"process {pid} still runs after {timeout_s:g} s")
            return self._exits[pid]

    def run(self, *arguments: object) -> None:
        """Run a command to its end.

        Raises:
            ProgramEndedError: It failed.
        """
        words = [str(argument) for argument in arguments]
        code = self.wait(self.spawn(words, "run"))
        if code:
            raise ProgramEndedError(f"{' '.join(words)}: exit {code}\n{tail(self._logs, 'run')}")

    def start(
        self,
        name: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Start a program by name, as last time if no arguments are given."""
        if arguments:
            self.programs[name] = Program(tuple(arguments), dict(environment or {}))
        if name not in self.programs:
            raise ProgramEndedError(f"there is no program {name}; known: {sorted(self.programs)}")
        program = self.programs[name]
        if program.wanted and program.pid not in self._exits:
            raise ProgramEndedError(f"{name} runs already, process {program.pid}")
        program.pid = self.spawn(program.arguments, name, program.environment)
        program.wanted = True
        return program.pid

    def stop(self, name: str, how: signal.Signals) -> int:
        """End a program; its exit code."""
        program = self.programs[name]
        program.wanted = False
        if program.pid not in self._exits:
            os.kill(program.pid, how)
        return self.wait(program.pid)

    def kill_all_but(self, kept: Collection[str], timeout_s: float = _RUN_TIMEOUT_S) -> None:
        """Kill every process of the namespace but us and some programs, as a power cut does."""
        spared = {os.getpid(), *(self.programs[name].pid for name in kept)}
        for name, program in self.programs.items():
            program.wanted = program.wanted and name in kept
        deadline = time.monotonic() + timeout_s
        while victims := [pid for pid in _processes() if pid not in spared]:
            for pid in victims:
                _kill(pid)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {victims} outlive kill -9")
            time.sleep(_IDLE_S)

    def status(self) -> dict[str, dict[str, int | None]]:
        """Process and exit code, None while it runs, by program."""
        with self._changed:
            return {
                name: {"pid": program.pid, "exit": self._exits.get(program.pid)}
                for name, program in self.programs.items()
            }

    def check(self) -> None:
        """Raises:
        ProgramEndedError: A program ended without being told.
        """
        for name, program in self.programs.items():
            if program.wanted and program.pid in self._exits:
                code = self._exits[program.pid]
                raise ProgramEndedError(f"{name} ended with {code}\n{tail(self._logs, name)}")


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
