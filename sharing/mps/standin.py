"""A stand-in for ``nvidia-cuda-mps-control`` on machines without GPUs.

Speaks the same command line and control protocol: ``-f`` runs the daemon of
``CUDA_MPS_PIPE_DIRECTORY`` in the foreground; without arguments, commands come from standard
input and answers go to standard output. It limits nothing, since there is nothing to limit; it
keeps the books that the real daemon keeps. What goes between client side and daemon is private
to each implementation, here a unix socket called ``control`` as there.

Not in the real one, for tests and simulations:

* ``GPU_SHARING_MPS_FAULTS`` names a file; the words in it, read at each command, are faults:
  ``hang``, ``fail-start``, ``misreport-memory``, ``misreport-threads``, ``refuse``.
* ``standin_attach PID UID`` and ``standin_detach PID`` stand for clients that come and go.

Standard library only, and nothing of this package: it starts once for each question.
Source: NVIDIA MPS documentation, "nvidia-cuda-mps-control".
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

NO_DAEMON: Final = "Cannot find MPS control daemon process"
_DEFAULT_PIPE: Final = "/tmp/nvidia-mps"  # noqa: S108 - the real program's default
_CONNECT_S: Final = 2.0
_LIMIT: Final = re.compile(r"([1-9][0-9]*)([MG])", re.ASCII)
_MIB_PER_GIB: Final = 1024
_LINE_BYTES: Final = 4096


class RefusedError(Exception):
    """A command that cannot be obeyed; the text is the answer."""


@dataclass
class Server:
    """One MPS server: the limits that it began with, and its clients."""

    pid: int
    uid: int
    threads: float
    memory_mib: dict[int, int]
    clients: list[int] = field(default_factory=list)


@dataclass
class Books:
    """What a control daemon knows."""

    multi_user: bool
    threads: float = 100.0
    memory_mib: dict[int, int] = field(default_factory=dict)
    servers: dict[int, Server] = field(default_factory=dict)
    next_pid: int = field(default_factory=lambda: os.getpid() + 1)

    def server(self, pid: str) -> Server:
        """A server by its PID as written in a command."""
        found = self.servers.get(_number(pid))
        if found is None:
            message = f"Server {pid} not found"
            raise RefusedError(message)
        return found

    def start_server(self, uid: int) -> Server:
        """A new server with the defaults of now."""
        server = Server(self.next_pid, uid, self.threads, dict(self.memory_mib))
        self.next_pid += 1
        self.servers[server.pid] = server
        return server

    def attach(self, pid: int, uid: int) -> str:
        """A client comes; it waits while a server of another user has clients."""
        fitting = [one for one in self.servers.values() if self.multi_user or one.uid == uid]
        if not fitting and any(one.clients for one in self.servers.values()):
            return "queued"
        if not fitting:
            self.servers.clear()
            fitting = [self.start_server(uid)]
        fitting[0].clients.append(pid)
        return str(fitting[0].pid)

    def detach(self, pid: int) -> str:
        """A client goes; its server stays, as the real one does."""
        for server in self.servers.values():
            with suppress(ValueError):
                server.clients.remove(pid)
        return ""


def _number(text: str) -> int:
    if not text.isdecimal():
        message = f"Invalid argument: {text}"
        raise RefusedError(message)
    return int(text)


def _percentage(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:  # noqa: PLR2004 - percent
        message = f"Invalid active thread percentage: {text}"
        raise RefusedError(message)
    return value


def _memory(text: str) -> int:
    match = _LIMIT.fullmatch(text)
    if match is None:
        message = f"Invalid memory limit: {text}"
        raise RefusedError(message)
    return int(match[1]) * (_MIB_PER_GIB if match[2] == "G" else 1)


def shown_memory(mib: int | None) -> str:
    """As the real daemon prints it: whole GiB where there is one, the rest dropped."""
    if mib is None:
        return ""
    return f"{mib // _MIB_PER_GIB}G" if mib >= _MIB_PER_GIB else f"{mib}M"


def obey(books: Books, line: str, faults: frozenset[str]) -> str:
    """The answer to one command; the books may change.

    Raises:
        RefusedError: The command is unknown or its arguments are wrong.
    """
    name, *arguments = line.split()
    command = _COMMANDS.get(name)
    if command is None or "refuse" in faults:
        message = f"Unknown command: {line}"
        raise RefusedError(message)
    try:
        answer = command(books, *arguments)
    except TypeError:
        message = f"Wrong number of arguments: {line}"
        raise RefusedError(message) from None
    if name == "get_default_device_pinned_mem_limit" and "misreport-memory" in faults:
        return "1M"
    if name == "get_default_active_thread_percentage" and "misreport-threads" in faults:
        return "100.0"
    return answer


def _set_default_memory(books: Books, device: str, limit: str) -> str:
    books.memory_mib[_number(device)] = _memory(limit)
    return ""


def _set_default_threads(books: Books, percentage: str) -> str:
    books.threads = _percentage(percentage)
    return f"{books.threads:.1f}"


def _set_memory(books: Books, pid: str, device: str, limit: str) -> str:
    books.server(pid).memory_mib[_number(device)] = _memory(limit)
    return ""


def _set_threads(books: Books, pid: str, percentage: str) -> str:
    server = books.server(pid)
    server.threads = _percentage(percentage)
    return f"{server.threads:.1f}"


def _lines(pids: Iterable[int]) -> str:
    return "\n".join(str(pid) for pid in sorted(pids))


def _start_server(books: Books, flag: str, uid: str) -> str:
    if flag != "-uid":
        message = f"Unknown option: {flag}"
        raise RefusedError(message)
    books.start_server(_number(uid))
    return ""


_COMMANDS: Final[dict[str, Callable[..., str]]] = {
    "set_default_device_pinned_mem_limit": _set_default_memory,
    "get_default_device_pinned_mem_limit": lambda books, device="0": shown_memory(
        books.memory_mib.get(_number(device))
    ),
    "set_default_active_thread_percentage": _set_default_threads,
    "get_default_active_thread_percentage": lambda books: f"{books.threads:.1f}",
    "set_device_pinned_mem_limit": _set_memory,
    "get_device_pinned_mem_limit": lambda books, pid, device: shown_memory(
        books.server(pid).memory_mib.get(_number(device))
    ),
    "set_active_thread_percentage": _set_threads,
    "get_active_thread_percentage": lambda books, pid: f"{books.server(pid).threads:.1f}",
    "get_server_list": lambda books: _lines(books.servers),
    "get_client_list": lambda books, pid: _lines(books.server(pid).clients),
    "start_server": _start_server,
    "standin_attach": lambda books, pid, uid: books.attach(_number(pid), _number(uid)),
    "standin_detach": lambda books, pid: books.detach(_number(pid)),
}


def faults_now() -> frozenset[str]:
    """The faults that the file asks for at this moment."""
    path = os.environ.get("GPU_SHARING_MPS_FAULTS") or os.devnull
    with suppress(OSError):
        return frozenset(Path(path).read_text(encoding="utf-8").split())
    return frozenset()


class Daemon:
    """The control daemon: one unix socket, one command a connection.

    Args:
        pipe: ``CUDA_MPS_PIPE_DIRECTORY``.
        books: What it knows at its start.
    """

    def __init__(self, pipe: Path, books: Books) -> None:
        self._socket_path = pipe / "control"
        self._pid_path = pipe / "nvidia-cuda-mps-control.pid"
        self._books = books
        self._held: list[socket.socket] = []

    def run(self) -> int:
        """Serve until told to quit; the exit code."""
        if ask(self._socket_path, "get_server_list") is not None:
            return _fail("An instance of this daemon is already running")
        signal.signal(signal.SIGTERM, self._on_signal)
        self._socket_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._socket_path))
            self._socket_path.chmod(0o666)  # clients of any user may come
            listener.listen(64)
            self._pid_path.write_text(f"{os.getpid()}\n", encoding="ascii")
            sys.stdout.write("Start\n")
            sys.stdout.flush()
            while self._serve_one(listener):
                pass
        self._clean_up()
        return 0

    def _serve_one(self, listener: socket.socket) -> bool:
        """Answer one connection; False when it was told to quit."""
        connection, _ = listener.accept()
        connection.settimeout(_CONNECT_S)
        with suppress(OSError):
            line = connection.recv(_LINE_BYTES).decode(errors="replace").strip()
            faults = faults_now()
            if "hang" in faults:
                self._held.append(connection)  # open and silent
                return True
            answer = self._answer(line, faults)
            connection.sendall(answer.encode())
            connection.close()
            return not line.startswith("quit")
        connection.close()
        return True

    def _answer(self, line: str, faults: frozenset[str]) -> str:
        if not line or line.startswith("quit"):
            return "+"
        try:
            return "+" + obey(self._books, line, faults)
        except RefusedError as error:
            return f"-{error}"

    def _on_signal(self, number: int, frame: FrameType | None) -> NoReturn:
        del frame
        self._clean_up()
        sys.exit(128 + number)

    def _clean_up(self) -> None:
        self._socket_path.unlink(missing_ok=True)
        self._pid_path.unlink(missing_ok=True)


def ask(path: Path, command: str) -> str | None:
    """A daemon's raw answer; None where no daemon listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return None
        connection.sendall(f"{command}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(_LINE_BYTES):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 1


def _client(pipe: Path) -> int:
    """Pass commands from standard input to the daemon."""
    for line in sys.stdin:
        if not line.strip():
            continue
        answer = ask(pipe / "control", line.strip())
        if answer is None:
            return _fail(NO_DAEMON)
        # A refused command is told on standard output too, and the next one is read.
        if answer[1:]:
            sys.stdout.write(f"{answer[1:]}\n")
    return 0


def _from_environment(*, multi_user: bool) -> Books:
    books = Books(multi_user=multi_user)
    with suppress(RefusedError, KeyError):
        books.threads = _percentage(os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
    for entry in os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").split(","):
        device, _, limit = entry.partition("=")
        with suppress(RefusedError):
            books.memory_mib[_number(device)] = _memory(limit)
    return books


def main(argv: list[str]) -> int:
    """Be the daemon or its client side."""
    if os.environ.get("CUDA_MPS_PROTOCOL_VERSION") == "3":
        return int(runpy.run_path(str(Path(__file__).with_name("standin3.py")))["main"](argv))
    parser = argparse.ArgumentParser(prog="nvidia-cuda-mps-control")
    parser.add_argument("-f", "--foreground", action="store_true")
    parser.add_argument("-M", "--multiuser-server", action="store_true")
    options = parser.parse_args(argv)
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", _DEFAULT_PIPE))
    if not options.foreground:
        return _client(pipe)
    if "fail-start" in faults_now():
        return _fail("Failed to start: no CUDA-capable device is detected")
    return Daemon(pipe, _from_environment(multi_user=options.multiuser_server)).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
