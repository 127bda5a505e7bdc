"""A folder with a short path, daemons that are quick to retry, and faults on request."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sharing.mps.daemons import MpsDaemons
from tests.support.plugin_mps import Faults, daemons_at


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gs-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def faults(folder: Path) -> Faults:
    return Faults(folder / "faults")


@pytest.fixture
async def make(folder: Path, faults: Faults) -> AsyncIterator[Callable[..., MpsDaemons]]:
    """Makes the daemons of one agent's life; all of them end with the test."""
    made: list[MpsDaemons] = []

    def one(**settings: object) -> MpsDaemons:
        made.append(daemons_at(folder / "mps", faults, **settings))
        return made[-1]

    yield one
    faults.clear()
    for each in made:
        await each.stop(leave_running=False)
    await daemons_at(folder / "mps", faults).apply([])
