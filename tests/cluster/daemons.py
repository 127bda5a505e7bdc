"""Programs that run beside the tests and die with them, also when the tests are killed.

The kernel sends the parent-death signal when the *thread* that started a program ends, so all are
started by one thread that lives as long as this process, whichever thread asks.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from tests.cluster import programs

_GRACE_S: Final = 0.3
"""An API server that is told to end takes 10 s to say goodbye to watches that nobody reads."""
_STOP_TIMEOUT_S: Final = 30.0
_TAIL_LINES: Final = 20


class DaemonEndedError(AssertionError):
    """A program ended that should run."""


@cache
def _starter() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="cluster-starter")


def dying_with_parent(arguments: Sequence[str]) -> list[str]:
    """The command line that is killed when the thread that started it ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *arguments]


def start_process(
    arguments: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of any name, its output added to a log."""

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                dying_with_parent(arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    return _starter().submit(start).result()


class Daemons:
    """The programs of one cluster by name; a program keeps its flags over restarts."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._flags: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, flags: Sequence[str] | None = None) -> None:
        """Start a program, with the flags of last time if none are given."""
        if name in self._running:
            raise DaemonEndedError(f"{name} runs already")
        if flags is not None:
            self._flags[name] = list(flags)
        command = [str(programs.find(name)), *self._flags[name]]
        self._running[name] = start_process(command, self.logs / f"{name}.log")

    def stop(self, name: str) -> None:
        """End a program as a service manager does: ask, and wait until it is gone."""
        self._end(name, signal.SIGTERM, _STOP_TIMEOUT_S)

    def kill(self, name: str) -> None:
        """End a program with kill -9."""
        self._end(name, signal.SIGKILL, _STOP_TIMEOUT_S)

    def stop_all(self) -> None:
        """End everything fast, the latest start first."""
        for name in reversed(list(self._running)):
            self._end(name, signal.SIGTERM, _GRACE_S)

    def _end(self, name: str, how: signal.Signals, patience_s: float) -> None:
        process = self._running.pop(name)
        process.send_signal(how)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)

    def pids(self) -> dict[str, int]:
        """Process ids of what runs."""
        return {name: process.pid for name, process in self._running.items()}

    def check(self) -> None:
        """Raises:
        DaemonEndedError: A program ended without being told.
        """
        for name, process in self._running.items():
            check_runs(process, self.logs, name)


def check_runs(process: subprocess.Popen[bytes], logs: Path, name: str) -> None:
    """Raises:
    DaemonEndedError: The process ended; its log's tail is in the message.
    """
    if process.poll() is not None:
        raise DaemonEndedError(f"{name} ended with {process.returncode}\n{tail(logs, name)}")


def tail(logs: Path, name: str = "*", lines: int = _TAIL_LINES) -> str:
    """The last lines of a program's log, or of all."""
    return "\n".join(
        f"--- {log.name}\n" + "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])
        for log in sorted(logs.glob(f"{name}.log"))
    )
