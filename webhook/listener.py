"""Who accepts connections: how many at once, how many in their handshake, and when none is left.

asyncio's own server accepts without bound and tells nothing of handshakes. Each TLS connection
costs memory from its first moment, so a crowd that never says a word must be bounded as well.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog
from aiohttp import web

from sharing.errors import UnavailableError
from webhook.connection import Connection
from webhook.outcome import Answer, Drop, Outcome
from webhook.settings import ServerSettings

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
RespondAtOnce = Callable[[bytes], tuple[Answer, bool]]
"""From a body to its answer, and whether the connection ends with it."""

TLS_BUFFER_BYTES: Final = 32 * 1024
"""What one TLS connection reads at once, and holds in memory all its life: two records of TLS.
asyncio's own choice of 256 KiB would make a gigabyte of the most connections that we take."""

_LINGER_S: Final = 2.0
"""How long the rest of a refused body is read, so that its sender reads our answer."""
_SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long we wait for a peer's end of the TLS session."""
_BACKLOG: Final = 1024
_MOST_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop; reviews get the next."""
_PAUSE_S: Final = 1.0
"""How long nothing is accepted where the system has no more files or memory."""
_NO_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log: Final = structlog.get_logger()


def unusable(host: str, port: int, error: OSError) -> UnavailableError:
    """The error for an address that cannot be listened on."""
    return UnavailableError(
        f"address {host or '*'}:{port}",
        f"cannot listen there: {error.strerror or error}",
        fix="end the program that uses it, or choose another host or port",
    )


def bound_tls_memory() -> None:
    """Let TLS connections of this process take ``TLS_BUFFER_BYTES`` for reading."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


class Listener(web.Server):
    """Accepts connections up to bounds, and knows when the last one is gone."""

    def __init__(
        self,
        respond: Respond,
        settings: ServerSettings,
        unreadable: Callable[[Outcome], None],
        respond_at_once: RespondAtOnce | None = None,
    ) -> None:
        super().__init__(
            respond,
            keepalive_timeout=settings.keepalive_timeout_s,
            lingering_time=_LINGER_S,
            # A compressed body is refused by its head; nothing is to unpack it before.
            auto_decompress=False,
            access_log=None,
        )
        self._settings = settings
        self._sockets: list[socket.socket] = []
        self._local: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._in_handshake: dict[asyncio.Task[None], socket.socket] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self.unreadable = unreadable
        self.dropped: Callable[[Drop], None] = lambda _: None
        self.respond_at_once = respond_at_once
        self.open_count = 0

    def __call__(self) -> Connection:
        """A handler for a connection that was accepted."""
        settings = self._settings
        return Connection(
            self,
            loop=self._loop,
            head_timeout_s=settings.head_timeout_s,
            unused_timeout_s=settings.unused_timeout_s,
            **self._kwargs,
        )

    @property
    def handshakes(self) -> int:
        """TLS handshakes under way."""
        return len(self._in_handshake)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Open the port; returns its number.

        Raises:
            UnavailableError: The port cannot be had.
        """
        if tls is not None:
            bound_tls_memory()
        self._tls = tls
        # A free port is one number only on one address.
        hosts = [host] if host else ["0.0.0.0"] if port == 0 else ["0.0.0.0", "::"]
        for each in hosts:
            try:
                await self._bind(each, port)
            except OSError as error:
                # Everywhere includes a family that this machine may not have.
                if host or error.errno not in _NO_FAMILY or (each == "::" and not self._sockets):
                    self.stop_listening()
                    raise unusable(host, port, error) from error
        for made in self._sockets:
            made.listen(_BACKLOG)
            self._loop.add_reader(made.fileno(), self._accept, made)
        number: int = self._sockets[0].getsockname()[1]
        return number

    async def _bind(self, host: str, port: int) -> None:
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            # One number for all addresses, also where it was free to choose.
            number = self._sockets[0].getsockname()[1] if self._sockets else port
            chosen = (address[0], port or number, *address[2:])
            self._sockets.append(_made(family, chosen, self._settings))

    async def listen_locally(self, name: str) -> None:
        """Listen to other processes of this machine, in plain HTTP.

        Args:
            name: Of an abstract Unix socket, which needs no file.
        """
        self._local = await self._loop.create_unix_server(self, f"\0{name}", backlog=_BACKLOG)

    def _accept(self, listening: socket.socket) -> None:
        """Accept what waits, a number of connections at once."""
        for _ in range(_MOST_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(listening, error)
                return
            accepted.setblocking(False)
            self._begin(accepted)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        _log.error("connections wait, since the system has no room for them", error=error.strerror)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _begin(self, accepted: socket.socket) -> None:
        """Begin a connection; beyond the bound of handshakes the oldest gives way."""
        if len(self._in_handshake) >= self._settings.most_handshakes:
            self._give_up(next(iter(self._in_handshake)))
            self.dropped(Drop.CROWDED)
        self._empty.clear()
        task = self._loop.create_task(self._shake_hands(accepted))
        self._in_handshake[task] = accepted
        task.add_done_callback(self._handshake_ended)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        """End a handshake, also one that has not begun and so closes nothing itself."""
        accepted = self._in_handshake.pop(task)
        task.add_done_callback(lambda _: accepted.close())
        task.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        tls = self._tls
        try:
            await self._loop.connect_accepted_socket(
                self,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._settings.handshake_timeout_s,
                ssl_shutdown_timeout=None if tls is None else _SHUTDOWN_TIMEOUT_S,
            )
        except OSError:
            # Whoever reaches the port can cause these; a metric counts them.
            self.dropped(Drop.HANDSHAKE)

    def _handshake_ended(self, task: asyncio.Task[None]) -> None:
        self._in_handshake.pop(task, None)
        self._look_if_empty()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection could not begin", exc_info=error)

    def opened(self, connection: Connection) -> None:
        """Count a new connection; beyond the bound the longest idle one gives way, or this one."""
        self.open_count += 1
        self._empty.clear()
        if self.open_count > self._settings.most_connections:
            idle = [
                other
                for other in self._connections
                if isinstance(other, Connection) and other is not connection and other.is_idle
            ]
            self.dropped(Drop.CROWDED)
            min(idle, key=lambda other: other.idle_since_s, default=connection).abort()

    def lost(self) -> None:
        """Count a connection that is gone."""
        self.open_count -= 1
        self._look_if_empty()

    def _look_if_empty(self) -> None:
        if not self.open_count and not self._in_handshake:
            self._empty.set()

    def stop_listening(self) -> None:
        """Close the port; connections live on, and those that wait to be accepted begin."""
        if self._local is not None:
            self._local.close()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening.fileno())
            for accepted in _waiting(listening):
                self._begin(accepted)
            listening.close()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait for the last connection to go; False if some are left after the time, in seconds.

        A connection whose handshake is under way counts: a review follows it.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        return self._empty.is_set()

    async def close(self) -> None:
        """End all connections now."""
        self.stop_listening()
        beginning = tuple(self._in_handshake)
        for task in beginning:
            self._give_up(task)
        await asyncio.gather(*beginning, return_exceptions=True)
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.abort()
        await self.shutdown(timeout=1.0)


def _waiting(listening: socket.socket) -> Iterator[socket.socket]:
    """Connections that wait to be accepted."""
    with contextlib.suppress(OSError):
        for _ in range(2 * _BACKLOG):
            accepted, _ = listening.accept()
            accepted.setblocking(False)
            yield accepted


def _made(family: int, address: tuple[object, ...], settings: ServerSettings) -> socket.socket:
    """A socket with an address, that does not listen yet."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.reuse_port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # The other family has a socket of its own.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
