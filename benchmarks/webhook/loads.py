"""What is asked of the load generator: CPU time in a closed loop, latency in an open one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.webhook.behaviour import ask, behaviour_of, check_same
from benchmarks.webhook.credentials import SERVER_NAME, Credentials
from benchmarks.webhook.processes import Load, Webhook
from benchmarks.webhook.reviews import UID, ReviewInput

CONNECTIONS: Final = 16
"""Of the closed loop; an API server keeps up to 25."""
_CALIBRATION: Final = 4 * CONNECTIONS
"""Also what warms up at the least: a handshake costs ten reviews, so all are to be over before."""
_FEWEST: Final = 100
"""Of one measurement, so that what a server does now and then does not count too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Times from the planned start of a request to its answer, in milliseconds."""

    rate: float
    """Requests a second."""
    p50_ms: float
    p99_ms: float
    p999_ms: float
    failed: int
    """Requests without an answer, or not sent since too many were on their way."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """Servers that answer alike, and the client that asks them."""

    load: Load
    credentials: Credentials
    servers: Mapping[str, Webhook]
    folder: Path
    sample_s: float
    """How long one measurement in the closed loop takes."""
    _statuses: dict[tuple[str, str], int] = field(default_factory=dict)
    _counts: dict[tuple[str, str, bool], int] = field(default_factory=dict)

    def check(self, asked: ReviewInput) -> None:
        """Let all servers answer a review, once.

        Raises:
            DisagreementError: They make different things of it.
        """
        context = self.credentials.trusting()
        behaviours = {}
        for name, server in self.servers.items():
            status, answer = ask(server.address, context, asked.body)
            self._statuses[name, asked.name] = status
            behaviours[name] = behaviour_of(asked, status, answer)
        check_same(asked, behaviours)
        self._body(asked).write_bytes(asked.body)

    def cpu_us(self, name: str, asked: ReviewInput, *, fresh: bool = False) -> float:
        """A server's CPU time for a review in microseconds, in a closed loop.

        Args:
            name: The server.
            asked: The review; it has been checked.
            fresh: Whether each request takes a new connection.
        """
        known = (name, asked.name, fresh)
        if known not in self._counts:
            first = self._closed(name, asked, fresh=fresh, requests=_CALIBRATION)
            count = int(self.sample_s * 1e6 / max(first["wall_us"], 1.0))
            self._counts[known] = max(count, _FEWEST)
        found = self._closed(name, asked, fresh=fresh, requests=self._counts[known])
        return float(found["cpu_us"])

    def latency(self, name: str, asked: ReviewInput, rate: float, duration_s: float) -> Latency:
        """A server's latency at a fixed rate."""
        found = self.load.do(
            "open",
            **self._call(name, asked),
            connections=4,
            warm_up=50,
            rate=rate,
            duration_s=duration_s,
        )
        return Latency(
            rate=rate,
            p50_ms=found["p50_ms"],
            p99_ms=found["p99_ms"],
            p999_ms=found["p999_ms"],
            failed=found["failed"] + found["unsent"],
        )

    def _closed(
        self, name: str, asked: ReviewInput, *, fresh: bool, requests: int
    ) -> dict[str, Any]:
        return self.load.do(
            "closed",
            **self._call(name, asked),
            connections=CONNECTIONS,
            warm_up=max(_CALIBRATION, requests // 10),
            requests=requests,
            fresh=fresh,
        )

    def _call(self, name: str, asked: ReviewInput) -> dict[str, Any]:
        server = self.servers[name]
        return call_options(self.credentials, self._body(asked), asked) | {
            "url": server.url,
            "pid": server.pid,
            "status": self._statuses[name, asked.name],
        }

    def _body(self, asked: ReviewInput) -> Path:
        return self.folder / f"{asked.name}.review.json"


def call_options(credentials: Credentials, body: Path, asked: ReviewInput) -> dict[str, Any]:
    """What every call needs; a body that is no review has no uid to look for."""
    return {
        "authorities": str(credentials.authorities),
        "server_name": SERVER_NAME,
        "body": str(body),
        "uid": UID if asked.pod is not None else "",
        "marks": asked.marks,
    }
