"""One HTTP connection with the bounds that aiohttp leaves to its user.

aiohttp alone waits for ever for a request's head. Its low-level server is used, without router
and middlewares, since an API server calls one path; see ``listener`` for who accepts connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from webhook import express
from webhook.outcome import Drop, Outcome, refusal

if TYPE_CHECKING:
    from webhook.listener import Listener

_MOST_HELD_BYTES: Final = 256 * 1024
_HOLD_S: Final = 0.05
"""How much of a call is kept, and how long, until it takes aiohttp's way after all."""
SERVER_HEADER: Final = "gpu-sharing"


class Connection(web.RequestHandler):
    """One connection: a request's head has to be complete within a deadline."""

    __slots__ = (
        "_detoured",
        "_head_deadline",
        "_head_timeout_s",
        "_held",
        "_is_unused",
        "_listener",
        "_missing",
        "_rest_deadline",
        "_unused_timeout_s",
    )

    def __init__(
        self, listener: Listener, *, head_timeout_s: float, unused_timeout_s: float, **options: Any
    ) -> None:
        super().__init__(listener, **options)
        self._unused_timeout_s = unused_timeout_s
        self._is_unused = True
        self._listener = listener
        self._head_timeout_s = head_timeout_s
        self._head_deadline: asyncio.TimerHandle | None = None
        self._detoured = False
        self._held: list[bytes] = []
        self._missing = 0
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
        """The TLS session stands: a request may follow, now or when its caller needs it."""
        super().connection_made(transport)
        self._listener.opened(self)
        self._expect_head(self._unused_timeout_s)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._head_arrived()
        self._held = []
        super().connection_lost(exc)
        self._listener.lost()

    def data_received(self, data: bytes) -> None:
        """Bytes of a head or a body."""
        if self._is_unused:
            self._is_unused = False
            self._head_arrived()
        if not self._detoured:
            if self._held:
                self._held.append(data)
                self._missing -= len(data)
                if self._missing > 0:
                    return
                data = self._unheld()
            if self._answer_at_once(data):
                return
            self._detoured = True
        super().data_received(data)
        if not self.is_idle:
            self._head_arrived()
        elif self._head_deadline is None:
            self._expect_head(self._head_timeout_s)

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
            self._held, self._missing = [data], frame.ends - len(data)
            if self._rest_deadline is None:
                self._rest_deadline = self._loop.call_later(_HOLD_S, self._rest_is_late)
            return True
        answer, closes = respond(data[frame.begins :])
        transport.write(express.rendered(answer, SERVER_HEADER, closes=closes))
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if closes:
            self.force_close()
        return True

    def _unheld(self) -> bytes:
        data = b"".join(self._held)
        self._held = []
        return data

    def _rest_is_late(self) -> None:
        """Hand a call over whose body takes its time: its bounds are watched on aiohttp's way."""
        self._rest_deadline = None
        if self._held:
            self._detoured = True
            super().data_received(self._unheld())

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

    def _expect_head(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._head_deadline = loop.call_later(timeout_s, self._head_is_late)

    def _head_arrived(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _head_is_late(self) -> None:
        self._head_deadline = None
        if self.is_idle:
            self._listener.dropped(Drop.LATE_HEAD)
            self.abort()
