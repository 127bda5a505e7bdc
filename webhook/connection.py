"""HTTP connections with the bounds that aiohttp leaves to its user.

aiohttp alone waits for ever for a request's head and takes any number of connections. Its
low-level server is used, without router and middlewares, since an API server calls one path.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from sharing.errors import UnavailableError
from webhook import express
from webhook.outcome import Answer, Outcome, refusal
from webhook.settings import ServerSettings

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
RespondAtOnce = Callable[[bytes], tuple[Answer, bool]]
"""From a body to its answer, and whether the connection ends with it."""

_LINGER_S: Final = 2.0
"""How long the rest of a refused body is read, so that its sender reads our answer."""
_SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long we wait for a peer's end of the TLS session."""
_MOST_HELD_BYTES: Final = 256 * 1024
_HOLD_S: Final = 0.05
"""How much of a call is kept, and how long, until it takes aiohttp's way after all."""
_BACKLOG: Final = 1024
_NO_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_LOOK_S: Final = 0.05
SERVER_HEADER: Final = "gpu-sharing"


class Connection(web.RequestHandler):
    """One connection: a request's head has to be complete within a deadline."""

    __slots__ = (
        "_detoured",
        "_head_deadline",
        "_head_timeout_s",
        "_held",
        "_listener",
        "_rest_deadline",
    )

    def __init__(self, listener: Listener, *, head_timeout_s: float, **options: Any) -> None:
        super().__init__(listener, **options)
        self._listener = listener
        self._head_timeout_s = head_timeout_s
        self._head_deadline: asyncio.TimerHandle | None = None
        self._detoured = False
        self._held = b""
        self._rest_deadline: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered or waits."""
        return not (self._request_in_progress or self._messages or self._held)

    @property
    def idle_since_s(self) -> float:
        """When it became idle, on the loop's clock."""
        return self._next_keepalive_close_time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TLS session stands: a request has to follow."""
        super().connection_made(transport)
        self._listener.opened(self)
        self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._head_arrived()
        self._held = b""
        super().connection_lost(exc)
        self._listener.lost()

    def data_received(self, data: bytes) -> None:
        """Bytes of a head or a body."""
        if not self._detoured:
            data, self._held = self._held + data, b""
            if self._answer_at_once(data):
                return
            self._detoured = True
        super().data_received(data)
        if not self.is_idle:
            self._head_arrived()
        elif self._head_deadline is None:
            self._expect_head()

    def _answer_at_once(self, data: bytes) -> bool:
        """Answer a call, or wait for the rest of it, if it looks as API servers' calls do.

        Args:
            data: All bytes of the call that have come.

        Returns:
            False if the call has to take aiohttp's way, and with it all later ones: its parser
            may keep a part of one, so only it knows where the next begins.
        """
        respond, transport = self._listener.respond_at_once, self.transport
        if respond is None or transport is None or self._paused:
            return False
        frame = express.framed(data)
        if frame is None or not len(data) <= frame.ends <= _MOST_HELD_BYTES:
            return False
        self._head_arrived()
        if len(data) < frame.ends:
            self._hold(data)
            return True
        answer, closes = respond(data[frame.begins :])
        transport.write(express.rendered(answer, SERVER_HEADER, closes=closes))
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if closes:
            self.force_close()
        return True

    def _hold(self, data: bytes) -> None:
        self._held = data
        if self._rest_deadline is None:
            self._rest_deadline = self._loop.call_later(_HOLD_S, self._rest_is_late)

    def _rest_is_late(self) -> None:
        """Hand a call over whose body takes its time: its bounds are watched on aiohttp's way."""
        self._rest_deadline = None
        if self._held:
            data, self._held, self._detoured = self._held, b"", True
            super().data_received(data)

    def abort(self) -> None:
        """End the connection now, without a word."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp cannot read as HTTP; it would log a trace for each."""
        del exc, message
        outcome = Outcome.FAILED if status >= 500 else Outcome.MALFORMED  # noqa: PLR2004
        self._listener.unreadable(outcome)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        answer = refusal(outcome, "the request is no HTTP")
        response = web.Response(
            body=answer.body,
            status=outcome.http_status,
            content_type=answer.content_type,
            headers={"Server": SERVER_HEADER},
        )
        response.force_close()
        return response

    def _expect_head(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_deadline = loop.call_later(self._head_timeout_s, self._head_is_late)

    def _head_arrived(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _head_is_late(self) -> None:
        self._head_deadline = None
        if self.is_idle:
            self.abort()


def unusable(host: str, port: int, error: OSError) -> UnavailableError:
    """The error for an address that cannot be listened on."""
    return UnavailableError(
        f"address {host or '*'}:{port}",
        f"cannot listen there: {error.strerror or error}",
        fix="end the program that uses it, or choose another host or port",
    )


class Listener(web.Server):
    """Accepts connections up to a bound, and knows when the last one is gone."""

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
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._in_handshake: dict[Connection, float] = {}
        self.unreadable = unreadable
        self.respond_at_once = respond_at_once
        self.open_count = 0

    def __call__(self) -> Connection:
        """A handler for a connection that was accepted."""
        connection = Connection(
            self, loop=self._loop, head_timeout_s=self._settings.head_timeout_s, **self._kwargs
        )
        self._forget_failed_handshakes()
        self._in_handshake[connection] = self._loop.time()
        return connection

    def _forget_failed_handshakes(self) -> None:
        """Nothing tells that a handshake failed, except that its time is over."""
        over = self._loop.time() - self._settings.handshake_timeout_s
        for connection, began in tuple(self._in_handshake.items()):
            if began > over:
                return
            del self._in_handshake[connection]

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Open the port; returns its number.

        Raises:
            UnavailableError: The port cannot be had.
        """
        # A free port is one number only on one address.
        address = host or ("0.0.0.0" if port == 0 else None)
        try:
            self._server = await self._bind(address, port, tls)
        except OSError as error:
            if host or error.errno not in _NO_FAMILY:
                raise unusable(host, port, error) from error
            # Everywhere includes IPv6, which this machine does not have.
            self._server = await self._bind_ipv4(port, tls)
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def _bind_ipv4(self, port: int, tls: ssl.SSLContext | None) -> asyncio.Server:
        try:
            return await self._bind("0.0.0.0", port, tls)
        except OSError as error:
            raise unusable("0.0.0.0", port, error) from error

    async def _bind(
        self, address: str | None, port: int, tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        return await self._loop.create_server(
            self,
            address,
            port,
            ssl=tls,
            backlog=_BACKLOG,
            reuse_port=self._settings.reuse_port or None,
            ssl_handshake_timeout=None if tls is None else self._settings.handshake_timeout_s,
            ssl_shutdown_timeout=None if tls is None else _SHUTDOWN_TIMEOUT_S,
        )

    async def listen_locally(self, name: str) -> None:
        """Listen to other processes of this machine, in plain HTTP.

        Args:
            name: Of an abstract Unix socket, which needs no file.
        """
        self._server = await self._loop.create_unix_server(self, f"\0{name}", backlog=_BACKLOG)

    def opened(self, connection: Connection) -> None:
        """Count a new connection; beyond the bound the longest idle one gives way, or this one."""
        self._in_handshake.pop(connection, None)
        self.open_count += 1
        self._empty.clear()
        if self.open_count > self._settings.most_connections:
            idle = [
                other
                for other in self._connections
                if isinstance(other, Connection) and other is not connection and other.is_idle
            ]
            min(idle, key=lambda other: other.idle_since_s, default=connection).abort()

    def lost(self) -> None:
        """Count a connection that is gone."""
        self.open_count -= 1
        if self.open_count == 0:
            self._empty.set()

    def stop_listening(self) -> None:
        """Close the port; connections live on."""
        if self._server is not None:
            self._server.close()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait for the last connection to go; False if some are left after the time, in seconds.

        A connection whose handshake is under way counts: a review follows it.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
                while self._in_handshake or self.open_count:
                    await asyncio.sleep(_LOOK_S)
                    self._forget_failed_handshakes()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End all connections now."""
        self.stop_listening()
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.abort()
        await self.shutdown(timeout=1.0)
