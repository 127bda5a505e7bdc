"""A campaign against the real server: reviews by grammar and spoilt bytes, over HTTPS.

    python -m tests.fuzz.campaign --seconds 600

Kept out of the suite for its length. What it finds becomes a test of the suite; Hypothesis keeps
the example in ``.hypothesis`` and tries it first next time.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import threading
import time
from collections import Counter
from typing import Self

import structlog
import trustme
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.grammar import BODIES
from tests.fuzz.world import SNAPSHOTS, check
from tests.support.admission import JSON, Served, serving

_SLOWEST_S = 2.0
"""Of processor time: a busy machine is nobody's fault."""
_PATIENCE_S = 60.0


class Target:
    """A server in a loop of its own, asked from this thread."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._served: Served | None = None
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    async def _run(self) -> None:
        async with serving(
            trustme.CA(), SNAPSHOTS[0], head_timeout_s=_PATIENCE_S, body_timeout_s=_PATIENCE_S
        ) as served:
            self._served = served
            self._ready.set()
            await self._stop.wait()

    def ask(self, body: bytes, choice: int) -> None:
        """Send one body while the server knows one of the snapshots; check the answer."""
        snapshot = SNAPSHOTS[choice]
        began = time.process_time()
        status, raw = asyncio.run_coroutine_threadsafe(self._post(body, choice), self._loop).result(
            _PATIENCE_S
        )
        assert time.process_time() - began < _SLOWEST_S
        self.seen[status] += 1
        check(body, snapshot, (status, raw))

    async def _post(self, body: bytes, choice: int) -> tuple[int, bytes]:
        assert self._served is not None
        self._served.current[0] = SNAPSHOTS[choice]
        async with self._served.session.post(
            self._served.url, data=io.BytesIO(body), headers=JSON
        ) as response:
            return response.status, await response.read()


def main() -> None:
    """Run for as long as was asked for; the first broken promise ends it with its example."""
    parser = argparse.ArgumentParser(description="Fuzz the admission server.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--batch", type=int, default=1000, help="examples between looks at the clock"
    )
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    ends = time.monotonic() + chosen.seconds
    with Target() as target:

        @settings(
            max_examples=chosen.batch, deadline=None, suppress_health_check=list(HealthCheck),
            phases=[Phase.reuse, Phase.generate, Phase.shrink],
        )  # fmt: skip
        @given(BODIES, st.integers(0, len(SNAPSHOTS) - 1))
        def ask(body: bytes, choice: int) -> None:
            target.ask(body, choice)

        while time.monotonic() < ends:
            ask()
        print(f"{sum(target.seen.values())} reviews answered: {dict(target.seen)}")  # noqa: T201


if __name__ == "__main__":
    main()
