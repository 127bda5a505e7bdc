"""One API server for a test, embedded or real, for whoever the test wants to be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import pytest

from embedded.apiserver import ApiServer, User
from tests.cluster.controlplane import ControlPlane
from tests.cluster.needs import Tier

EMBEDDED: Final = "embedded"
REAL: Final = "real"
EITHER: Final = [
    EMBEDDED,
    pytest.param(REAL, marks=pytest.mark.cluster(Tier.CONTROL_PLANE.value)),
]
"""Parameters of a fixture that gives one or the other."""


class Server(Protocol):
    """An API server that knows people by certificate or token."""

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] | None = None) -> Path:
        """A way in; ``admin`` may do everything."""
        ...


class _Embedded:
    def __init__(self, running: ApiServer, folder: Path) -> None:
        self._running = running
        self._folder = folder

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] | None = None) -> Path:
        path = self._folder / user.replace(":", "-")
        if groups is None:
            return self._running.write_kubeconfig(path)
        return self._running.write_kubeconfig(path, User(name=user, groups=tuple(groups)))


@asynccontextmanager
async def either_server(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Server]:
    """The server that the fixture's parameter asks for."""
    if request.param == REAL:
        plane: ControlPlane = request.getfixturevalue("control_plane")
        yield plane.access
        return
    async with ApiServer(tls=True) as running:
        yield _Embedded(running, folder)
