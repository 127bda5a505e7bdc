"""A socket folder with a short path, and a kubelet that can live there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.plugin_kubelet import PluginKubelet


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gs-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[PluginKubelet]:
    """Not started yet."""
    one = PluginKubelet(folder / "k")
    yield one
    await one.stop()
