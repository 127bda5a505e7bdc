"""Orders to a box's first process: one JSON line each way over a unix socket.

A listener that is asked for is made inside and comes as a descriptor (SCM_RIGHTS, unix(7)).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

_LONGEST: Final = 1 << 16
_CREDENTIALS: Final = struct.Struct("3i")


class Op(StrEnum):
    """What can be ordered."""

    STATUS = "status"
    START = "start"
    STOP = "stop"
    LISTEN = "listen"
    REBOOT = "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One order.

    Attributes:
        op: What to do.
        name: The program that it is about.
        signal: How to stop it.
        arguments: Its command line, for a program that the box does not know.
        environment: Variables that such a program gets in addition.
        host: Where to listen.
        port: Where to listen; 0 for a free one.
        whole: Whether a reboot takes the control plane too.
    """

    op: Op
    name: str = ""
    signal: str = "SIGTERM"
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of it; ``listener`` where one was asked for."""

    values: Mapping[str, Any] = field(default_factory=dict)
    listener: socket.socket | None = None


class ControlError(AssertionError):
    """The box could not do what it was told."""


def ask(path: Path, request: Request, *, timeout_s: float) -> Reply:
    """Send an order and wait for its end.

    Raises:
        ControlError: It failed inside.
        OSError: The box does not answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(json.dumps(dataclasses.asdict(request)).encode() + b"\n")
        data, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 1)
        while data and not data.endswith(b"\n"):
            more = connection.recv(_LONGEST)
            if not more:
                break
            data += more
    if not data:
        raise ConnectionError(f"the box ended while it was told to {request.op} {request.name}")
    answer = json.loads(data)
    if "error" in answer:
        raise ControlError(f"{request.op} {request.name}: {answer['error']}")
    listener = socket.socket(fileno=descriptors[0]) if descriptors else None
    return Reply(values=answer, listener=listener)


def server_pid(path: Path) -> int:
    """The process that listens, as this pid namespace numbers it (SO_PEERCRED, unix(7))."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, _, _ = _CREDENTIALS.unpack(raw)
    return int(pid)


class ControlServer:
    """Answers orders, each connection in a thread of its own."""

    def __init__(self, path: Path, answer: Callable[[Request], Reply]) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        unfinished = path.with_suffix(".new")
        self._socket.bind(str(unfinished))
        self._socket.listen()
        unfinished.rename(path)  # whoever sees the path can connect
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def close(self) -> None:
        """Take no further orders."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # close alone does not wake accept
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            line = lines.readline()
            if not line:
                return  # somebody looked who we are
            reply = self._reply(line)
            descriptors = [reply.listener.detach()] if reply.listener else []
            text = json.dumps(reply.values).encode() + b"\n"
            try:
                socket.send_fds(connection, [text], descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _reply(self, line: bytes) -> Reply:
        try:
            values = json.loads(line)
            values["op"] = Op(values["op"])
            return self._answer(Request(**values))
        except Exception as error:  # noqa: BLE001 - told to whoever ordered
            return Reply(values={"error": f"{type(error).__name__}: {error}"})
