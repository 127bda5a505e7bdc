"""A kubelet on a bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tests.support.kubelet_bench import Bench, bench

# grpc.aio ends its poller thread when its last object is collected, which may happen inside
# a garbage collection in the middle of a later test, and waits for that thread. Counted in
# once for the whole run, it stays; the thread is a daemon.
grpc.aio.init_grpc_aio()


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Bench]:
    async with bench(short_dir) as made:
        yield made
