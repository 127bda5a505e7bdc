"""A real API server to keep certificates in, and replicas that serve TLS with them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embedded.apiserver.server import ApiServer
from sharing.cluster.client import Client
from tests.certs.bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with ApiServer(tls=True) as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(path) as client:
            made = Bench(server=server, client=client, kubeconfig=path, chance=random.Random(1))
            await made.install()
            async with made:
                yield made
