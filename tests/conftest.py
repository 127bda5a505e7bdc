"""Options and fixtures for the whole suite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files shall be rewritten."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets, which take 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def _logs_of_a_command_end_with_it() -> Iterator[None]:
    """A command that ran inside a test leaves no logger that writes to the test's closed stream."""
    yield
    structlog.reset_defaults()
