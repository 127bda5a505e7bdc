"""A webhook over HTTPS for each test, under one authority."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trustme

from tests.support.admission import Served, serving


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def served(authority: trustme.CA) -> AsyncIterator[Served]:
    async with serving(authority) as made:
        yield made
