"""One share class at the kubelet, for as long as the class exists: register, watch, again.

The kubelet never reconnects a broken stream, so the loop here does nothing but keep one alive:
a fresh server, a registration, a stream that must open soon and stay open. Whatever breaks it
(kubelet gone, back, or forgetful) leads to the loop's top, after a pause if it broke early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any, Final

import structlog

from sharing.plugin.errors import PluginError
from sharing.plugin.offer import Offer
from sharing.plugin.registration import RetryPause, register
from sharing.plugin.server import PluginServer
from sharing.plugin.servicer import Answers
from sharing.plugin.settings import Patience
from sharing.plugin.watch import KubeletWatch, SocketIdentity

_SETTLED_S: Final = 10.0
"""A stream that lived so long was a good one; its end is followed by no growing pause."""

_log = structlog.get_logger()


class ClassState(StrEnum):
    """Where a share class stands with the kubelet."""

    WAITING = "waiting"
    """No kubelet socket, or the last try failed; see the reason."""
    REGISTERING = "registering"
    SERVING = "serving"
    """Registered and the kubelet listens."""


class ClassSession:
    """Keeps one class registered.

    Args:
        offer: What the class offers.
        watch: The kubelet's socket folder.
        answers: How to answer.
        patience: Deadlines and pauses.
    """

    def __init__(
        self, offer: Offer, watch: KubeletWatch, answers: Answers, patience: Patience
    ) -> None:
        self.offer = offer
        self.state = ClassState.WAITING
        self.reason = "not started"
        self.registrations = 0
        self._watch = watch
        self._answers = answers
        self._patience = patience
        self._server: PluginServer | None = None
        self._pause = RetryPause(patience.first_retry_s, patience.longest_retry_s)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep the class registered."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"serve {self.offer.resource}")

    async def stop(self) -> None:
        """Close the server; the kubelet sees the stream end after all that it was owed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_serving(self) -> None:
        """Wait until the kubelet listens."""
        await self.offer.until(lambda: self.state is ClassState.SERVING)

    async def delivered(self, version: int) -> bool:
        """Whether a list leaves for the kubelet soon; False where no kubelet listens."""
        server = self._server
        if server is None or not server.servicer.streams_open:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.delivery_s):
                await self.offer.until(
                    lambda: server.servicer.has_sent(version) or not server.servicer.streams_open
                )
        return server.servicer.has_sent(version)

    async def _run(self) -> None:
        said = ""
        while True:
            self._say(ClassState.WAITING, f"no kubelet at {self._watch.socket}")
            await self._watch.until(lambda: self._watch.identity is not None)
            kubelet = self._watch.identity
            began = monotonic()
            try:
                why = await self._serve_once(kubelet)
            except (PluginError, OSError) as error:
                why = str(error)
            if monotonic() - began > _SETTLED_S:
                self._pause.reset()
            pause_s = self._pause.next_s()
            if why != said:  # once for each trouble, however long it lasts
                _log.warning("kubelet does not listen", resource=self.offer.resource, reason=why)
                said = why
            self._say(ClassState.WAITING, why)
            # A kubelet that came back is worth an early try.
            await _within(pause_s, self._another_kubelet(kubelet))

    async def _another_kubelet(self, known: SocketIdentity | None) -> None:
        await self._watch.until(lambda: self._watch.identity != known)

    async def _serve_once(self, kubelet: SocketIdentity | None) -> str:
        """Register on a fresh socket and stay until it is lost; the reason why it was."""
        self._say(ClassState.REGISTERING, "being registered")
        server = PluginServer(self._watch.socket.parent, self.offer, self._answers)
        self._server = server
        try:
            await server.start(check_s=self._patience.serve_check_s)
            self._watch.guard(server.path)
            return await self._keep(server, lambda: self._why_lost(server.path, kubelet))
        finally:
            self._watch.release(server.path)
            await asyncio.shield(server.stop())
            self._server = None

    async def _keep(self, server: PluginServer, why_lost: Callable[[], str | None]) -> str:
        streams = server.servicer
        call = register(
            self._watch.socket,
            self.offer,
            server.path.name,
            timeout_s=self._patience.register_s,
        )
        lost = await self._unless_lost(call, why_lost)
        if lost:
            return lost
        self.registrations += 1
        opened = self.offer.until(lambda: streams.streams_seen > 0)
        lost = await self._unless_lost(_within(self._patience.stream_opens_s, opened), why_lost)
        if lost or not streams.streams_seen:
            return lost or "registered, but the kubelet opened no stream"
        self._say(ClassState.SERVING, "")
        _log.info(
            "share class was registered", resource=self.offer.resource, socket=server.path.name
        )
        ended = self.offer.until(lambda: not streams.streams_open)
        lost = await self._unless_lost(ended, why_lost)
        return lost or "the kubelet's stream ended"

    async def _unless_lost(
        self, work: Coroutine[Any, Any, object], why_lost: Callable[[], str | None]
    ) -> str | None:
        """Do work, but leave it when the kubelet or our socket is gone; why, if so.

        Raises:
            PluginError: The work failed.
        """
        doing = asyncio.create_task(work)
        losing = asyncio.create_task(self._watch.until(lambda: why_lost() is not None))
        try:
            await asyncio.wait((doing, losing), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return None
            return why_lost()
        finally:
            doing.cancel()
            losing.cancel()
            await asyncio.gather(doing, losing, return_exceptions=True)

    def _why_lost(self, path: Path, kubelet: SocketIdentity | None) -> str | None:
        if self._watch.identity != kubelet:
            return "the kubelet restarted" if self._watch.identity else "the kubelet is gone"
        if not self._watch.present(path):
            return f"our socket {path.name} was deleted"
        return None

    def _say(self, state: ClassState, reason: str) -> None:
        self.state, self.reason = state, reason
        self.offer.wake()


async def _within(timeout_s: float, work: Coroutine[Any, Any, None]) -> None:
    """Wait for work, but no longer than this."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await work
