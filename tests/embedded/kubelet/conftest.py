"""A kubelet on a bench."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.kubelet_bench import Bench, bench


@pytest.fixture(autouse=True, scope="module")
def _nothing_left_behind() -> Iterator[None]:
    """A channel or call that never settles keeps gRPC's poller, and so the process, alive.

    Collecting what a module left behind ends the poller at once, so that the module that is
    to blame hangs and not a later one.
    """
    yield
    gc.collect()


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Bench]:
    async with bench(short_dir) as made:
        yield made
