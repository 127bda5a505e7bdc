"""Several processes behind one port (``--workers``): started, watched, started again, ended.

Each worker is the whole program: its own watches, its own certificate, its own part of the
connections, which the kernel hands out among the sockets that listen on one port (SO_REUSEPORT).
A worker listens only while it knows policies, and answers for its health on a socket of this
machine; probes and metrics of all come together here. This process keeps the port, so that nobody
else takes it, but does not listen on it.

A signal goes to all workers, which drain side by side. Where this process is killed, the workers
see their standard input end, and drain as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from sharing.errors import UnavailableError
from webhook.listener import unusable
from webhook.program import Announce, Signals, ending_signals, shown_host
from webhook.server import PATH
from webhook.settings import ServerSettings
from webhook.workerhealth import Roster, WorkersHealth

_RESTART_S: Final = 1.0
_MOST_RESTART_S: Final = 30.0
_CALM_S: Final = 60.0
"""After so long a life, a worker that ends is started again at once."""
_NO_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many workers, and how they are started."""

    count: int
    settings: ServerSettings
    command: Callable[[int, str], Sequence[str]]
    """What starts a worker that serves on a port and answers for its health by a name."""
    announce: Announce
    """Tells a person one line."""


class WorkerFailedError(UnavailableError):
    """A worker ended before it was ever ready; it has said why."""


async def run_workers(plan: Plan) -> None:
    """Run all workers until a signal ends them.

    Raises:
        UnavailableError: A port cannot be had, or a worker cannot start.
    """
    settings = plan.settings
    with _reserved(settings.host, settings.port) as kept, ending_signals() as signals:
        crew = Crew(plan, kept.getsockname()[1])
        health = WorkersHealth(settings, crew.roster)
        try:
            if settings.health_port is not None:
                await health.start()
                address = f"http://{shown_host(settings.health_host)}:{health.port}/readyz"
                plan.announce(f"health: {address}")
            await crew.run(signals)
        finally:
            await health.close()


class Crew:
    """The workers of one program.

    Args:
        plan: How many, and how they are started.
        port: The port that all of them listen on.
    """

    def __init__(self, plan: Plan, port: int) -> None:
        self._plan = plan
        self._port = port
        stem = f"gpu-sharing-webhook-{os.getpid()}-{secrets.token_hex(8)}"
        self.roster = Roster(names=tuple(f"{stem}-{index}" for index in range(plan.count)))
        self._processes: dict[int, Process] = {}
        self._started: set[int] = set()
        self._ending = asyncio.Event()

    async def run(self, signals: Signals) -> None:
        """Keep all workers running until a signal, and return with the end of the last one.

        Raises:
            WorkerFailedError: One ended before it was ever ready; the others are ended.
        """
        keeping = [
            asyncio.create_task(self._keep(index), name=f"worker {index}")
            for index in range(self._plan.count)
        ]
        obeying = asyncio.create_task(self._obey(signals), name="signals")
        try:
            done, _ = await asyncio.wait(keeping, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
        finally:
            for task in (obeying, *keeping):
                task.cancel()
            await asyncio.gather(obeying, *keeping, return_exceptions=True)

    async def _obey(self, signals: Signals) -> None:
        while True:
            number = await signals.get()
            if not self._ending.is_set():
                _log.info("ending began", signal=number.name, workers=len(self._processes))
            self.roster.is_ending = True
            self._ending.set()
            for process in self._processes.values():
                _tell(process, number)

    async def _keep(self, index: int) -> None:
        """Run one worker, again and again, until the end."""
        loop = asyncio.get_running_loop()
        delay_s = 0.0
        while not self._ending.is_set():
            began_s = loop.time()
            status = await self._run_once(index)
            if self._ending.is_set():
                return
            if index not in self._started:
                raise WorkerFailedError(
                    f"worker {index}", f"it ended with status {status} before it was ready"
                )
            calm = loop.time() - began_s > _CALM_S
            delay_s = 0.0 if calm else min(max(_RESTART_S, 2 * delay_s), _MOST_RESTART_S)
            _log.error("worker ended", worker=index, status=status, starts_again_in_s=delay_s)
            self.roster.restarts[index] += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay_s)

    async def _run_once(self, index: int) -> int:
        command = self._plan.command(self._port, self.roster.names[index])
        # In a session of its own: signals of a terminal reach it through us alone.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        self._processes[index] = process
        if self._ending.is_set():
            _tell(process, signal.SIGTERM)
        try:
            await self._listen_to(process, index)
            return await process.wait()
        finally:
            self.roster.ready.discard(index)
            del self._processes[index]
            _tell(process, signal.SIGKILL)
            await process.wait()

    async def _listen_to(self, process: Process, index: int) -> None:
        """Read what a worker says about itself, until it says no more."""
        if process.stdout is None:
            return
        async for line in process.stdout:
            if line.startswith(b"ready: "):
                self.roster.ready.add(index)
                self._note_start(index)

    def _note_start(self, index: int) -> None:
        was_complete = len(self._started) == self._plan.count
        self._started.add(index)
        if not was_complete and len(self._started) == self._plan.count:
            host = shown_host(self._plan.settings.host)
            self._plan.announce(f"ready: https://{host}:{self._port}{PATH}")


def _tell(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _reserved(host: str, port: int) -> socket.socket:
    """A socket that keeps a port for us, without listening on it.

    Raises:
        UnavailableError: The port cannot be had.
    """
    try:
        return _bound(host or "0.0.0.0", port)
    except OSError as error:
        if host or error.errno not in _NO_FAMILY:
            raise unusable(host, port, error) from error
    try:
        return _bound("::", port)
    except OSError as error:
        raise unusable(host, port, error) from error


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made
