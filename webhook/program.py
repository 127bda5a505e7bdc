"""The webhook as a program: a source, a certificate, the servers, and how they end.

SIGTERM drains (see ``server``); SIGINT does so without waiting for anybody to forget us; a second
signal of either kind ends at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from certs.context import HotContext
from sharing.cluster.client import Client
from sharing.errors import UnavailableError
from webhook.credential import Credential, CredentialSource
from webhook.health import HealthServer
from webhook.live import LiveSource
from webhook.metrics import Metrics
from webhook.selfprobe import SelfProbe
from webhook.server import PATH, AdmissionServer
from webhook.settings import ServerSettings
from webhook.snapshot import Source
from webhook.static import StaticSource
from webhook.tls import expiry
from webhook.workload import TemplatePath

_INTERRUPT_TIMEOUT_S: Final = 2.0
_FIRST_LOOK_S: Final = 3.0
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})

_log: Final = structlog.get_logger()

Announce = Callable[[str], None]
Signals = asyncio.Queue[signal.Signals]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What both kinds of source are served with."""

    settings: ServerSettings
    context: HotContext
    """What handshakes are served with."""
    credential: CredentialSource
    """Makes what keeps the context's certificate good."""
    announce: Announce
    """Tells a person one line."""
    template_paths: Mapping[str, tuple[TemplatePath, ...]]
    """Where kinds keep their pod templates."""
    local_name: str = ""
    """For one of several workers: the abstract socket on which it answers for its health."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """One run of the program."""

    metrics: Metrics
    serving: Serving
    signals: Signals


async def serve_static(source: StaticSource, serving: Serving) -> None:
    """Serve what a folder holds until a signal ends it.

    Raises:
        UnavailableError: A port cannot be had.
    """

    async def at_once() -> None:
        return

    metrics = Metrics()
    with ending_signals() as signals:
        async with _in_background(source.run(metrics), "folder"):
            about = _About(metrics=metrics, serving=serving, signals=signals)
            await _serve(source, lambda: "", at_once, about)


async def serve_live(client: Client, serving: Serving) -> None:
    """Serve what watches say until a signal ends it.

    Raises:
        InputError: The kubeconfig cannot be used.
        UnavailableError: A port cannot be had.
    """
    # From here on a signal ends the program in order, however far it has come.
    with ending_signals() as signals:
        async with client:
            if await _first_of(signals, partial(_check_credentials, client)) is None:
                about = _About(metrics=Metrics(), serving=serving, signals=signals)
                await _serve_watches(client, about)


async def _check_credentials(client: Client) -> None:
    """Let a malformed kubeconfig end the program; a server that is away is waited for later."""
    with suppress(UnavailableError, TimeoutError):
        async with asyncio.timeout(_FIRST_LOOK_S):
            await client.request("GET", "/version")


async def _serve_watches(client: Client, about: _About) -> None:
    paths = about.serving.template_paths
    async with LiveSource(client, about.metrics, template_paths=paths) as source:
        await _serve(source, lambda: source.waiting_for, source.wait_ready, about)


async def _serve(
    source: Source,
    waiting_for: Callable[[], str],
    wait_ready: Callable[[], Awaitable[None]],
    about: _About,
) -> None:
    serving, signals = about.serving, about.signals
    settings, context = serving.settings, serving.context
    server = AdmissionServer(source, settings, about.metrics, context.outer)
    async with AsyncExitStack() as stack:
        credential = serving.credential(about.metrics)
        own_port = SelfProbe(credential.callers, context)
        await stack.enter_async_context(_certificate(credential, context, about.metrics))
        checks = {
            "policies": waiting_for,
            "certificate": credential.unready_reason,
            "handshake": own_port.unready_reason,
            "server": lambda: "it is draining" if server.draining else "",
        }
        await _start_health(stack, HealthServer(settings, about.metrics, checks), serving)
        stack.push_async_callback(server.close)
        if serving.local_name:
            stack.callback(_watch_parent(signals))
            # A worker that knows nothing yet leaves connections to the others.
            first = await _first_of(signals, wait_ready)
            if first is not None:
                return
        await server.start()
        # In the same turn of the loop, so no handshake finds nothing to be served with.
        credential.start()
        await own_port.look(settings.host, server.port)
        address = f"https://{shown_host(settings.host)}:{server.port}{PATH}"
        await stack.enter_async_context(
            _in_background(_announce(wait_ready, serving.announce, address), "announcement")
        )
        async with _in_background(own_port.run(settings.host, server.port), "own port"):
            first = await signals.get()
        _log.info("ending began", signal=first.name)
        await _end(server, signals, first)


async def _start_health(stack: AsyncExitStack, health: HealthServer, serving: Serving) -> None:
    settings = serving.settings
    if serving.local_name:
        await health.start_locally(serving.local_name)
    elif settings.health_port is not None:
        await health.start()
        address = f"http://{shown_host(settings.health_host)}:{health.port}/readyz"
        serving.announce(f"health: {address}")
    stack.push_async_callback(health.close)


def _watch_parent(signals: Signals) -> Callable[[], object]:
    """Let the end of standard input end the program: whoever started it is gone.

    Returns:
        What ends the watching.
    """
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def look() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            signals.put_nowait(signal.SIGTERM)

    loop.add_reader(stdin, look)
    return lambda: loop.remove_reader(stdin)


async def _first_of(
    signals: Signals, wait_ready: Callable[[], Awaitable[None]]
) -> signal.Signals | None:
    """The signal that came before we were ready; None if none did."""
    ended = asyncio.ensure_future(signals.get())
    ready = asyncio.ensure_future(wait_ready())
    try:
        await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return ended.result()
        await ready
        return None
    finally:
        ended.cancel()
        ready.cancel()


async def _announce(
    wait_ready: Callable[[], Awaitable[None]], announce: Announce, address: str
) -> None:
    await wait_ready()
    # What is there now stays: the collector need not look at it with each of its passes.
    gc.collect()
    gc.freeze()
    announce(f"ready: {address}")


async def _end(server: AdmissionServer, signals: Signals, first: signal.Signals) -> None:
    quick = first is signal.SIGINT
    draining = asyncio.create_task(
        server.drain(
            delay_s=0.0 if quick else None, timeout_s=_INTERRUPT_TIMEOUT_S if quick else None
        ),
        name="drain",
    )
    async with _in_background(_second(signals, draining), "second signal"):
        with suppress(asyncio.CancelledError):
            await draining


async def _second(signals: Signals, draining: asyncio.Task[None]) -> None:
    await signals.get()
    draining.cancel()


@contextmanager
def ending_signals() -> Iterator[Signals]:
    """A queue of the signals that end the program."""
    loop = asyncio.get_running_loop()
    queue: Signals = asyncio.Queue()
    ends = (signal.SIGTERM, signal.SIGINT)
    for end in ends:
        loop.add_signal_handler(end, queue.put_nowait, end)
    try:
        yield queue
    finally:
        for end in ends:
            loop.remove_signal_handler(end)


@asynccontextmanager
async def _certificate(
    credential: Credential, context: HotContext, metrics: Metrics
) -> AsyncIterator[None]:
    def not_after_s() -> float:
        end = expiry(context)
        return 0.0 if end is None else end.timestamp()

    metrics.watch_certificate(not_after_s)
    async with _in_background(credential.run(), "certificate"):
        yield


@asynccontextmanager
async def _in_background(work: Awaitable[None], name: str) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    if isinstance(task, asyncio.Task):
        task.set_name(name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def shown_host(host: str) -> str:
    """A host as it stands in an address."""
    if host in _ANY_HOST:
        return "localhost"
    return f"[{host}]" if ":" in host else host


def raise_file_limit() -> None:
    """Take as many file descriptors as the system allows; each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
