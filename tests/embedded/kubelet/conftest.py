"""A kubelet on a bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.kubelet_bench import Bench, bench


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Bench]:
    async with bench(short_dir) as made:
        yield made
