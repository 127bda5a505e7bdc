"""A stand-in for ``nvidia-cuda-mps-control`` in the words of MPS v3, on machines without GPUs.

``standin`` hands over to it when ``CUDA_MPS_PROTOCOL_VERSION`` is 3. ``-f -a FILE`` runs the daemon
in the foreground with a configuration; ``MODULE VERB …`` asks it. It limits nothing; it keeps the
books of the real one, and makes the folders that clients connect through. The faults are those of
``standin``; ``standin attach PID NAMESPACE`` and ``standin detach PID`` stand for clients.

Standard library only, and nothing of this package: it starts once for each question.
Source: NVIDIA MPS documentation, "MPS v3 Interface", "Configuration File", "Namespaces".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

NO_DAEMON: Final = "Cannot find MPS control daemon process"
_DEFAULT_PIPE: Final = "/run/nvidia-mps"
_CONNECT_S: Final = 2.0
_MESSAGE_BYTES: Final = 1 << 16
_NAME: Final = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_MEMORY: Final = re.compile(r"[1-9][0-9]*[GMK]", re.ASCII)
_FIELDS: Final = {"pinned-memory-limit": "memory", "active-thread-percentage": "threads"}
_NAMESPACE_KEYS: Final = {"pinned_memory_limit", "active_thread_percentage", "client_priority"}
_SERVER_KEYS: Final = _NAMESPACE_KEYS | {
    *("allowed_devices", "uid", "locality_domains", "namespaces", "devices")
}


class RefusedError(Exception):
    """A command that cannot be obeyed; the text goes to standard error."""


@dataclass
class Namespace:
    """Clients with the same limits."""

    memory: str = "-"
    threads: str = "100"
    clients: list[int] = field(default_factory=list)

    def set(self, key: str, value: str) -> None:
        """Change a limit."""
        if key == "pinned-memory-limit" and _MEMORY.fullmatch(value):
            self.memory = value
        elif key == "active-thread-percentage" and value.isdecimal() and 0 < int(value) <= 100:  # noqa: PLR2004 - percent
            self.threads = value
        else:
            raise RefusedError(f"Invalid value for --{key}: {value}")


@dataclass
class Server:
    """A named server."""

    devices: str = "-"
    uid: int = 0
    pid: int | None = None
    namespaces: dict[str, Namespace] = field(default_factory=lambda: {"default": Namespace()})


@dataclass
class Books:
    """What a control daemon knows."""

    pipe: Path
    servers: dict[str, Server] = field(default_factory=dict)
    next_pid: int = field(default_factory=lambda: os.getpid() + 1)

    def configure(self, document: dict[str, Any]) -> None:
        """Take in a configuration file; an unknown key is an error, as for the real one."""
        for name, wanted in document.get("servers", {}).items():
            _known(wanted, _SERVER_KEYS, f"servers.{name}")
            server = self.create_server(name)
            server.devices = wanted.get("allowed_devices", "-")
            server.uid = wanted.get("uid", os.getuid())
            _take(server.namespaces["default"], wanted)
            for inner, limits in wanted.get("namespaces", {}).items():
                _known(limits, _NAMESPACE_KEYS, f"servers.{name}.namespaces.{inner}")
                _take(self.create_namespace(name, inner), limits)

    def server(self, name: str) -> Server:
        """A server by its name."""
        if name not in self.servers:
            raise RefusedError(f"Server '{name}' not found")
        return self.servers[name]

    def namespace(self, server: str, name: str) -> Namespace:
        """A namespace by its name."""
        known = self.server(server).namespaces
        if name not in known:
            raise RefusedError(f"Namespace '{name}' not found on server '{server}'")
        return known[name]

    def create_server(self, name: str) -> Server:
        """A new server; its process starts with its first client."""
        _check_name(name, self.servers)
        self.servers[name] = Server()
        self._listen(self.pipe / name)
        self._listen(self.pipe / name / "default")
        return self.servers[name]

    def create_namespace(self, server: str, name: str) -> Namespace:
        """A new namespace; ``default`` is there already and meant by that name."""
        known = self.server(server).namespaces
        if name == "default":
            return known[name]
        _check_name(name, known)
        known[name] = Namespace()
        self._listen(self.pipe / server / name)
        return known[name]

    def delete_namespace(self, server: str, name: str, *, force: bool) -> None:
        """Remove a namespace; refused while it has clients."""
        if self.namespace(server, name).clients and not force:
            raise RefusedError(f"Namespace '{name}' has active clients")
        del self.server(server).namespaces[name]
        (self.pipe / server / name / "control").unlink(missing_ok=True)
        (self.pipe / server / name).rmdir()

    def attach(self, pid: int, server: str, name: str) -> str:
        """A client comes through a namespace's folder."""
        found = self.server(server)
        self.namespace(server, name).clients.append(pid)
        if found.pid is None:
            found.pid, self.next_pid = self.next_pid, self.next_pid + 1
        return str(found.pid)

    def detach(self, pid: int) -> None:
        """A client goes."""
        for server in self.servers.values():
            for namespace in server.namespaces.values():
                with suppress(ValueError):
                    namespace.clients.remove(pid)

    @staticmethod
    def _listen(folder: Path) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        (folder / "control").touch()


def _known(table: dict[str, Any], keys: set[str], where: str) -> None:
    if unknown := sorted(table.keys() - keys):
        raise RefusedError(f"Unknown key '{unknown[0]}' in [{where}]")


def _take(namespace: Namespace, table: dict[str, Any]) -> None:
    for key in ("pinned_memory_limit", "active_thread_percentage"):
        if key in table:
            namespace.set(key.replace("_", "-"), str(table[key]))


def _check_name(name: str, known: Iterable[str]) -> None:
    if name in known or not _NAME.fullmatch(name):
        raise RefusedError(f"Name is taken or invalid: {name}")


def obey(books: Books, words: Sequence[str], faults: frozenset[str]) -> str:
    """What one command prints; the books may change.

    Raises:
        RefusedError: The command is unknown or its arguments are wrong.
    """
    command = _COMMANDS.get(" ".join(words[:2]))
    if command is None or "refuse" in faults:
        raise RefusedError(f"Unknown command: {' '.join(words)}")
    plain = [word for word in words[2:] if "=" not in word and not word.startswith("--")]
    pairs = dict(word.lstrip("-").split("=", 1) for word in words[2:] if "=" in word)
    flags = {word.lstrip("-") for word in words[2:] if word.startswith("--") and "=" not in word}
    try:
        return command(books, plain, pairs, flags, faults)
    except (IndexError, KeyError, ValueError) as error:
        raise RefusedError(f"Missing argument: {error}") from error


def _set(namespace: Namespace, pairs: dict[str, str]) -> str:
    if not pairs:
        raise RefusedError("At least one option is required")
    for key, value in pairs.items():
        namespace.set(key, value)
    return ""


def _get(namespace: Namespace, key: str, faults: frozenset[str]) -> str:
    if key not in _FIELDS:
        raise RefusedError(f"Unknown field: {key}")
    if f"misreport-{_FIELDS[key]}" in faults:
        return "1M" if key == "pinned-memory-limit" else "100"
    return str(getattr(namespace, _FIELDS[key]))


def _list_servers(books: Books, names: Sequence[str]) -> str:
    listed = {name: books.server(name) for name in names} if names else books.servers
    return "\n".join(
        f"{name},{one.uid},{one.pid or '-'},{'Ready' if one.pid else 'Idle'},"
        f"{books.pipe / name},{one.devices},-"
        for name, one in listed.items()
    )


def _list_namespaces(books: Books, server: str, faults: frozenset[str]) -> str:
    return "\n".join(
        f"{name},{server},-,{_get(one, 'pinned-memory-limit', faults)},"
        f"{_get(one, 'active-thread-percentage', faults)},0,{books.pipe / server / name}"
        for name, one in books.server(server).namespaces.items()
    )


def _list_clients(books: Books, server: str) -> str:
    return "\n".join(
        f"{pid},{server},0,{name},python train.py"
        for name, one in books.server(server).namespaces.items()
        for pid in one.clients
    )


_COMMANDS: Final[dict[str, Callable[..., str]]] = {
    "server list": lambda b, plain, _p, _f, _x: _list_servers(b, plain),
    "server set": lambda b, plain, pairs, _f, _x: _set(b.namespace(plain[0], "default"), pairs),
    "namespace list": lambda b, _a, pairs, _f, faults: _list_namespaces(b, pairs["server"], faults),
    "namespace create": lambda b, plain, pairs, _f, _x: (
        b.create_namespace(pairs["server"], plain[0]) and ""
    ),
    "namespace delete": lambda b, plain, pairs, flags, _x: (
        b.delete_namespace(pairs["server"], plain[0], force="force" in flags) or ""
    ),
    "namespace set": lambda b, plain, pairs, _f, _x: _set(
        b.namespace(pairs.pop("server"), plain[0]), pairs
    ),
    "namespace get": lambda b, plain, _p, _f, faults: _get(
        b.namespace(plain[1], plain[0]), plain[2], faults
    ),
    "client list": lambda b, _a, pairs, _f, _x: _list_clients(b, pairs["server"]),
    "standin attach": lambda b, plain, _p, _f, _x: b.attach(int(plain[0]), "shares", plain[1]),
    "standin detach": lambda b, plain, _p, _f, _x: b.detach(int(plain[0])) or "",
}


def faults_now() -> frozenset[str]:
    """The faults that the file asks for at this moment."""
    path = Path(os.environ.get("GPU_SHARING_MPS_FAULTS") or os.devnull)
    return frozenset(path.read_text(encoding="utf-8").split() if path.exists() else ())


class Daemon:
    """The control daemon: one unix socket, one command a connection."""

    def __init__(self, books: Books) -> None:
        self._books, self._socket_path = books, books.pipe / "control"
        self._pid_path = books.pipe / "nvidia-cuda-mps-control.pid"
        self._held: list[socket.socket] = []

    def run(self) -> int:
        """Serve until told to quit; the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        self._socket_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._socket_path))
            self._socket_path.chmod(0o666)
            listener.listen(64)
            self._pid_path.write_text(f"{os.getpid()}\n", encoding="ascii")
            sys.stdout.write(f"set CUDA_MPS_PIPE_DIRECTORY={self._books.pipe}\n")
            sys.stdout.flush()
            while self._serve_one(listener):
                pass
        self._clean_up()
        return 0

    def _serve_one(self, listener: socket.socket) -> bool:
        """Answer one connection; False when it was told to quit."""
        connection, _ = listener.accept()
        connection.settimeout(_CONNECT_S)
        with suppress(OSError, ValueError):
            words = json.loads(connection.recv(_MESSAGE_BYTES))
            faults = faults_now()
            if "hang" in faults:
                self._held.append(connection)  # open and silent
                return True
            connection.sendall(json.dumps(self._answer(words, faults)).encode())
            connection.close()
            return bool(words != ["--quit"])
        connection.close()
        return True

    def _answer(self, words: list[str], faults: frozenset[str]) -> tuple[int, str]:
        try:
            return 0, "" if words == ["--quit"] else obey(self._books, words, faults)
        except RefusedError as error:
            return 1, str(error)

    def _on_signal(self, number: int, frame: FrameType | None) -> NoReturn:
        del frame
        self._clean_up()
        sys.exit(128 + number)

    def _clean_up(self) -> None:
        self._socket_path.unlink(missing_ok=True)
        self._pid_path.unlink(missing_ok=True)


def _ask(path: Path, words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return _fail(NO_DAEMON)
        connection.sendall(json.dumps(words).encode())
        code, text = json.loads(connection.makefile("rb").read())
    (sys.stderr if code else sys.stdout).write(f"{text}\n" if text else "")
    return int(code)


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 1


def main(argv: list[str]) -> int:
    """Be the daemon or its client side."""
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", _DEFAULT_PIPE))
    if "-f" not in argv:
        return _ask(pipe / "control", argv)
    parser = argparse.ArgumentParser(prog="nvidia-cuda-mps-control")
    parser.add_argument("-f", "--foreground", action="store_true")
    parser.add_argument("-m", "--multiuser", action="store_true")
    parser.add_argument("-p", "--protocol", type=int, choices=(2, 3))
    parser.add_argument("-a", "--apply", type=Path)
    options = parser.parse_args(argv)
    if "fail-start" in faults_now():
        return _fail("Failed to start: no CUDA-capable device is detected")
    books = Books(pipe)
    try:
        if options.apply is not None:
            books.configure(tomllib.loads(options.apply.read_text(encoding="utf-8")))
    except (OSError, ValueError, RefusedError) as error:
        return _fail(f"Configuration was refused: {error}")
    return Daemon(books).run()
