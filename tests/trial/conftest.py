"""One installation for all tests of this folder, on an embedded cluster and on a real node.

The tests are the same for both. The real node needs ``GPU_SHARING_CLUSTER=1``, as everything in
``tests/cluster``; what differs there is a fault of the embedded cluster.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster.box.box import Box
from tests.cluster.conftest import pytest_runtest_setup
from tests.cluster.needs import Tier
from tests.support.forms import OBJECTS
from tests.support.trials import Trial, box_trial, embedded_trial

__all__ = ["pytest_runtest_setup"]

EMBEDDED = "embedded"
BOX = "box"


@pytest_asyncio.fixture(
    scope="session",
    loop_scope="session",
    params=[EMBEDDED, pytest.param(BOX, marks=pytest.mark.cluster(Tier.NODE.value))],
)
async def trial(request: pytest.FixtureRequest) -> AsyncIterator[Trial]:
    """The product with everything that ``forms`` names on one node of eight H100."""
    async with AsyncExitStack() as stack:
        if request.param == BOX:
            box = stack.enter_context(Box())
            yield await stack.enter_async_context(box_trial(box, OBJECTS))
        else:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True)
            )
            async with asyncio.timeout(100):
                running = await stack.enter_async_context(embedded_trial(Path(folder), OBJECTS))
            yield running
