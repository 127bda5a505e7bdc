"""Starts the product's programs as processes and waits until they say that they are ready."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sharing.errors import UnavailableError

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
_SHOWN_LINES: Final = 15


class Program:
    """One ``gpu-sharing …`` process.

    Args:
        name: What it is called in messages.
        arguments: The command line after ``gpu-sharing``.
        log: Where its log goes.
        ready: What the line says that it prints when it is ready.
        inside: Words before the command line, such as those that enter another namespace.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log: Path,
        ready: str = "ready",
        inside: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.name = name
        self.printed: tuple[str, ...] = ()
        """Its lines, the one that says that it is ready last."""
        self._ready = ready
        self._arguments = tuple(arguments)
        self._log = log
        self._inside = inside
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start it and wait for the line that it prints when it is ready.

        Raises:
            UnavailableError: It ended, or did not become ready in time.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the trial, which then ends them in order
            )  # fmt: skip
        self._process = process
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                printed = await self._until_ready(process.stdout)
        except TimeoutError:
            await self.stop()
            raise self._error(f"was not ready after {START_TIMEOUT_S:.0f} s") from None
        if not printed:
            code = await process.wait()
            self._process = None
            raise self._error(f"ended at its start with exit status {code}")
        self.printed = printed

    def _command(self) -> tuple[str, ...]:
        """Elsewhere a parent's process id says nothing, and whoever runs that place ends it."""
        if words := self._inside():
            return (*words, sys.executable, "-m", "cli.main", *self._arguments)
        return (sys.executable, "-m", "cli.trial.child", str(os.getpid()), *self._arguments)

    async def _until_ready(self, stdout: asyncio.StreamReader) -> tuple[str, ...]:
        """Its lines up to the one that says so; none if the program ended before."""
        lines: list[str] = []
        async for line in stdout:
            lines.append(line.decode("utf-8", "replace").strip())
            if self._ready in lines[-1]:
                return tuple(lines)
        return ()

    def address(self, scheme: str) -> str:
        """The address of a scheme that it printed."""
        words = (word for line in self.printed for word in line.split())
        return next(word for word in words if word.startswith(f"{scheme}://"))

    async def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait; it is killed if it takes longer than it may."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        _send(process, sent)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.communicate()
        except TimeoutError:
            _send(process, signal.SIGKILL)
            await process.communicate()

    def _error(self, wrong: str) -> UnavailableError:
        lines = self._log.read_text("utf-8", "replace").splitlines()[-_SHOWN_LINES:]
        said = "".join(f"\n  {line}" for line in lines) or " nothing"
        return UnavailableError(self.name, f"{wrong}; its log says:{said}")


def _send(process: asyncio.subprocess.Process, sent: signal.Signals) -> None:
    """To its whole group: what enters another namespace waits for a child that is the program."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, sent)
