"""The processes of a run: webhooks, and the load generator. All end with the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.webhook.credentials import Credentials
from benchmarks.webhook.machine import on_core
from sharing.errors import UnavailableError

_READY: Final = "ready: "
_START_TIMEOUT_S: Final = 180.0
_STOP_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How a webhook is started; the certificate is added."""

    name: str
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


class Webhook:
    """A webhook that runs as a process on one core.

    Args:
        command: How it is started.
        credentials: What it serves with.
        core: The core.
        folder: Where its output goes.
    """

    def __init__(
        self, command: Command, credentials: Credentials, *, core: int, folder: Path
    ) -> None:
        self.name = command.name
        self.url = ""
        number = len(list(folder.glob("*.out")))
        self._out = folder / f"{command.name}-{number}.out"
        self._log = folder / f"{command.name}-{number}.log"
        words = [
            *command.words,
            "--cert",
            str(credentials.certificate),
            "--key",
            str(credentials.key),
        ]
        environment = os.environ | dict(command.environment)
        with self._out.open("wb") as out, self._log.open("wb") as log, on_core(core):
            # In a session of its own, so that Ctrl-C reaches us and we end it in order.
            self._process = subprocess.Popen(
                words, stdout=out, stderr=log, env=environment, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.split("/")[2].replace("localhost", "127.0.0.1")

    def wait_ready(self) -> Self:
        """Return when it has said that it is ready.

        Raises:
            UnavailableError: It ended, or did not become ready in time.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            for line in self._out.read_text("utf-8").splitlines():
                if line.startswith(_READY):
                    self.url = line.removeprefix(_READY).replace("localhost", "127.0.0.1")
                    return self
            if self._process.poll() is not None:
                break
            time.sleep(_POLL_S)
        said = self._log.read_text("utf-8", "replace").strip().splitlines()
        raise UnavailableError(
            f"webhook {self.name}",
            f"it did not become ready: {said[-1] if said else 'it said nothing'}",
        )

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)

    def wait_ended(self, timeout_s: float) -> int | None:
        """Its exit status; None if it still runs after so many seconds."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End it now."""
        _end(self._process)


class Load:
    """The load generator, which takes one command at a time; a context manager.

    Args:
        program: Its path.
        core: The core that it runs on.
    """

    def __init__(self, program: str, *, core: int) -> None:
        with on_core(core):
            self._process = subprocess.Popen(
                [program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

    def do(self, what: str, **options: Any) -> dict[str, Any]:
        """One command's answer.

        Raises:
            UnavailableError: It could not be done; a call that failed is such a reason.
        """
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        try:
            pipe_in.write(json.dumps({"do": what, **options}) + "\n")
            pipe_in.flush()
            line = pipe_out.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise UnavailableError("load generator", "it ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise UnavailableError("load generator", answer["error"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end(self._process)


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def our_command(name: str, world: Path, *options: str) -> Command:
    """The real ``gpu-sharing webhook --static``, on a free port of the loopback."""
    installed = Path(sys.executable).with_name("gpu-sharing")
    program: tuple[str, ...] = (str(installed),)
    if not installed.exists():
        program = (sys.executable, "-c", "from cli.main import main; main()")
    options = ("--static", str(world), "--host", "127.0.0.1", "--port", "0", *options)
    return Command(name=name, words=(*program, "webhook", *options))


def go_command(name: str, program: str, *options: str) -> Command:
    """A Go server on one processor."""
    return Command(name=name, words=(program, *options), environment=(("GOMAXPROCS", "1"),))
