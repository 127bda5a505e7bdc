"""One installation a module: an embedded cluster with the product's programs on it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from cli.trial.installation import Installation
from cli.trial.scenario import NodeSpec
from tests.support.forms import OBJECTS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed() -> AsyncIterator[Installation]:
    nodes = (
        NodeSpec(
            name="n1", gpus="8xH100-80GB", labels={"gpu.sharing/managed": "true", "pool": "all"}
        ),
    )
    with tempfile.TemporaryDirectory(
        prefix="gs-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        async with (
            asyncio.timeout(100),
            Installation(Path(folder), nodes, objects=OBJECTS) as installation,
        ):
            yield installation
