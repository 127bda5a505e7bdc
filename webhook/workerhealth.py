"""Probes and metrics of several workers, as one program shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from webhook.connection import SERVER_HEADER
from webhook.listener import Listener
from webhook.settings import ServerSettings

_PATIENCE_S: Final = 2.0
"""How long a worker may take to answer; a probe's own patience is longer."""
_PREFIX: Final = "gpu_sharing_webhook"


@dataclass(slots=True, kw_only=True)
class Roster:
    """The workers and how they are."""

    names: tuple[str, ...]
    """Where each answers for its health."""
    ready: set[int] = field(default_factory=set)
    """Those that listen."""
    restarts: dict[int, int] = field(init=False)
    is_ending: bool = False

    def __post_init__(self) -> None:
        self.restarts = dict.fromkeys(range(len(self.names)), 0)


class WorkersHealth:
    """Serves ``/livez``, ``/readyz`` and ``/metrics`` for all workers.

    The program is alive where every worker that listens answers, since the kernel hands
    connections to those that do not answer as well. It is ready where at least one listens and all
    that listen are ready. Each worker's metrics carry its number.
    """

    def __init__(self, settings: ServerSettings, roster: Roster) -> None:
        self._settings = settings
        self._roster = roster
        self._listener = Listener(self._respond, settings, lambda _: None)
        self._port = 0

    @property
    def port(self) -> int:
        """The port that is open."""
        return self._port

    async def start(self) -> None:
        """Open the port.

        Raises:
            UnavailableError: The port cannot be had.
        """
        port = self._settings.health_port or 0
        self._port = await self._listener.listen(self._settings.health_host, port, None)

    async def close(self) -> None:
        """End now."""
        await self._listener.close()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        status, body = await self._page(request.path)
        return web.Response(
            body=body, status=status, content_type="text/plain", headers={"Server": SERVER_HEADER}
        )

    async def _page(self, path: str) -> tuple[int, bytes]:
        if path not in ("/livez", "/readyz", "/metrics"):
            return 404, b"there are /livez, /readyz and /metrics\n"
        asked = sorted(self._roster.ready)
        answers = await asyncio.gather(*(self._ask(index, path) for index in asked))
        if path == "/metrics":
            texts = {index: text for index, (_, text) in zip(asked, answers, strict=True)}
            return 200, generate_latest(_Gathered(self._roster, texts))
        reasons = [
            f"worker {index}: {line}"
            for index, (status, text) in zip(asked, answers, strict=True)
            if status != 200  # noqa: PLR2004 - HTTP's own
            for line in text.splitlines()
        ]
        if path == "/readyz" and self._roster.is_ending:
            reasons.insert(0, "server: it is draining")
        if path == "/readyz" and not asked:
            reasons.append("workers: none of them is ready yet")
        return 503 if reasons else 200, ("\n".join(reasons or ("ok",)) + "\n").encode()

    async def _ask(self, index: int, path: str) -> tuple[int, str]:
        """Status and text of a worker's page; status 0 and a reason where there is no answer."""
        connector = aiohttp.UnixConnector(path=f"\0{self._roster.names[index]}")
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(f"http://worker{path}") as response,
            ):
                return response.status, await response.text()
        except TimeoutError:
            return 0, f"it did not answer within {_PATIENCE_S:g} s"
        except aiohttp.ClientError as error:
            return 0, f"it did not answer: {type(error).__name__}"


class _Gathered(Collector):
    """The metrics of all workers, each with its worker's number."""

    def __init__(self, roster: Roster, texts: dict[int, str]) -> None:
        self._roster = roster
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        """All families, each once."""
        yield from self._own()
        merged: dict[str, Metric] = {}
        for index, text in self._texts.items():
            for family in _families(text):
                known = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "worker": str(index)}
                    known.add_sample(sample.name, labels, sample.value)
        yield from merged.values()

    def _own(self) -> Iterator[Metric]:
        workers = GaugeMetricFamily(
            f"{_PREFIX}_workers", "Workers by whether they listen.", labels=["state"]
        )
        ready = len(self._roster.ready)
        workers.add_metric(["ready"], ready)
        workers.add_metric(["absent"], len(self._roster.names) - ready)
        yield workers
        restarts = CounterMetricFamily(
            f"{_PREFIX}_worker_restarts",
            "How often a worker had to start again.",
            labels=["worker"],
        )
        for index, count in self._roster.restarts.items():
            restarts.add_metric([str(index)], count)
        yield restarts


def _families(text: str) -> Iterable[Metric]:
    families: Iterable[Metric] = text_string_to_metric_families(text)
    return families
