"""The admission server: HTTPS around ``answer``, and a shutdown that loses no call.

The order of a shutdown, each step for a reason (facts of Kubernetes: endpoints propagate late,
the API server never repeats a POST, and it drops idle connections after 90 s):

1. readiness ends; calls are answered as before until endpoints have forgotten us
2. the port closes; from now on each answer ends its connection
3. when no connection is left, or none but idle ones after a last grace, the server ends
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import Final

import structlog
from aiohttp import web

from webhook.answer import Answered, answer_body
from webhook.connection import SERVER_HEADER
from webhook.facts import facts_of
from webhook.limits import MOST_BODY_BYTES, patience_s, refuse_head, too_large
from webhook.listener import Listener
from webhook.metrics import Metrics
from webhook.outcome import Answer, Outcome, refusal
from webhook.settings import ServerSettings
from webhook.shedding import Arrival, Buffers, LoopLag
from webhook.snapshot import Source

PATH: Final = "/mutate"
_TICK_S: Final = 0.1

_log: Final = structlog.get_logger()


class AdmissionServer:
    """Serves reviews on one port.

    Args:
        source: The newest snapshot of policies and nodes; asked once a review, never awaited.
        settings: Addresses, deadlines, bounds.
        metrics: Where calls are counted.
        tls: What to serve with; None for plain HTTP behind something that ends TLS.
    """

    def __init__(
        self,
        source: Source,
        settings: ServerSettings,
        metrics: Metrics,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._source = source
        self._settings = settings
        self._metrics = metrics
        self._tls = tls
        self._listener = Listener(self._respond, settings, self._unreadable, self._respond_at_once)
        self._lag = LoopLag(settings.most_lag_s)
        self._buffers = Buffers(settings.most_buffered_bytes)
        self._ticking: asyncio.Task[None] | None = None
        self._port = 0
        self.draining = False
        self._closing = False
        metrics.watch_server(
            connections=lambda: self._listener.open_count,
            lag_s=lambda: self._lag.lag_s,
            buffered=lambda: self._buffers.total,
            handshakes=lambda: self._listener.handshakes,
            draining=lambda: self.draining,
        )
        self._listener.dropped = metrics.count_drop

    @property
    def port(self) -> int:
        """The port that is open."""
        return self._port

    async def start(self) -> None:
        """Open the port.

        Raises:
            UnavailableError: The port cannot be had.
        """
        self._port = await self._listener.listen(
            self._settings.host, self._settings.port, self._tls
        )
        self._ticking = asyncio.create_task(self._tick(), name="loop lag")

    async def drain(self, *, delay_s: float | None = None, timeout_s: float | None = None) -> None:
        """End without losing a call; see the module's text.

        Args:
            delay_s: Seconds to serve on before the port closes; the settings' if None.
            timeout_s: Seconds to wait for connections to go; the settings' if None.
        """
        settings = self._settings
        self.draining = True
        await asyncio.sleep(settings.drain_delay_s if delay_s is None else delay_s)
        self._closing = True
        self._listener.stop_listening()
        patience = settings.drain_timeout_s if timeout_s is None else timeout_s
        if not await self._listener.wait_empty(patience):
            _log.info("idle connections were dropped", count=self._listener.open_count)
        await self.close()

    async def close(self) -> None:
        """End now, whatever is under way."""
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
            self._ticking = None
        await self._listener.close()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._lag.observe(loop.time() - due)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        began = time.perf_counter()
        answered, size = await self._answer(request)
        answer = answered.answer
        response = web.Response(
            body=answer.body,
            status=answer.outcome.http_status,
            content_type=answer.content_type,
            headers={"Server": SERVER_HEADER, **answer.outcome.headers},
        )
        if self._closing or answer.outcome.closes:
            response.force_close()
        self._record(answered, time.perf_counter() - began, size)
        return response

    async def _answer(self, request: web.BaseRequest) -> tuple[Answered, int]:
        refused = self._refuse(request)
        if refused is not None:
            return Answered(answer=refused), 0
        body = await self._read(request)
        if isinstance(body, Answer):
            return Answered(answer=body), 0
        return self._decide(body), len(body)

    def _respond_at_once(self, body: bytes) -> tuple[Answer, bool]:
        """The short way (see ``express``); whether the connection ends with the answer."""
        began = time.perf_counter()
        refused = self._unable()
        answered = self._decide(body) if refused is None else Answered(answer=refused)
        self._record(answered, time.perf_counter() - began, len(body))
        return answered.answer, self._closing or answered.answer.outcome.closes

    def _decide(self, body: bytes) -> Answered:
        # Asked for as late as possible: this is what the verdict stands on.
        snapshot = self._source()
        return Answered(answer=_not_ready()) if snapshot is None else answer_body(body, snapshot)

    def _refuse(self, request: web.BaseRequest) -> Answer | None:
        if request.path != PATH:
            return refusal(Outcome.NOT_FOUND, f"there is nothing but {PATH}")
        refused = refuse_head(request.method, request.headers, request.content_length)
        return self._unable() if refused is None else refused

    def _unable(self) -> Answer | None:
        if self._source() is None:
            return _not_ready()
        if self._lag.overloaded:
            return refusal(Outcome.OVERLOADED, "too many reviews at once")
        return None

    async def _read(self, request: web.BaseRequest) -> bytes | Answer:
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        if request.content.is_eof() and request.content.total_bytes <= MOST_BODY_BYTES:
            return request.content.read_nowait()
        patience = patience_s(request.query.get("timeout"), self._settings.body_timeout_s)
        loop = asyncio.get_running_loop()
        scope = asyncio.timeout(patience)
        arrival = Arrival(loop.time(), lambda: scope.reschedule(loop.time()))
        self._buffers.begin(arrival)
        try:
            async with scope:
                return await self._gather(request, arrival, loop)
        except TimeoutError:
            if arrival.evicted:
                return refusal(Outcome.OVERLOADED, "the body gave way to others")
            return refusal(Outcome.TOO_SLOW, f"the body was not there within {patience:g} s")
        except (web.RequestPayloadError, ConnectionError) as error:
            return refusal(Outcome.MALFORMED, f"the body broke off: {type(error).__name__}")
        finally:
            self._buffers.end(arrival)

    async def _gather(
        self, request: web.BaseRequest, arrival: Arrival, loop: asyncio.AbstractEventLoop
    ) -> bytes | Answer:
        chunks: list[bytes] = []
        while chunk := await request.content.readany():
            if arrival.size + len(chunk) > MOST_BODY_BYTES:
                return too_large()
            if not self._buffers.take(arrival, len(chunk), loop.time()):
                return refusal(Outcome.OVERLOADED, "too many bytes are on their way at once")
            chunks.append(chunk)
        return b"".join(chunks)

    def _record(self, answered: Answered, duration_s: float, size: int) -> None:
        """One line and a few counts for a call."""
        outcome, verdict = answered.answer.outcome, answered.verdict
        self._metrics.count(outcome, duration_s)
        if verdict is not None:
            if outcome is Outcome.DENIED:
                self._metrics.count_denial(verdict.code)
            else:
                for grant in verdict.grants:
                    self._metrics.count_grant(grant.share_class.mode)
        facts = facts_of(answered)
        facts["duration_ms"] = round(duration_s * 1000, 3)
        facts["bytes"] = size
        if answered.fault is not None:
            _log.error("review failed", exc_info=answered.fault, **facts)
        elif answered.asked is None and verdict is None:
            # Whoever reaches the port can cause these; a metric counts them.
            _log.debug("call was refused", **facts)
        else:
            _log.info("review was answered", **facts)

    def _unreadable(self, outcome: Outcome) -> None:
        self._metrics.count(outcome, 0.0)


def _not_ready() -> Answer:
    return refusal(Outcome.NOT_READY, "policies have not been read yet")
