"""What the docs say is refused, is, in the words that they promise: by a real API server.

The embedded one is asked the same in ``tests/sharing/api``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.errors import AlreadyExistsError, NotFoundError
from sharing.cluster.kind import CRDS, Kind
from tests.cluster.controlplane import ControlPlane
from tests.cluster.waiting import eventually
from tests.support.refusals import broken_promises, refusals


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(control_plane.access.kubeconfig()) as opened:
        for manifest in crd_manifests():
            try:
                await opened.create(CRDS, manifest)
            except AlreadyExistsError:
                continue
        yield opened


async def test_each_bad_object_is_refused_in_the_words_of_the_docs(client: Client) -> None:
    """One test for all of them: each is one request."""
    for kind in dict.fromkeys(bad.kind for bad in refusals()):
        await eventually(f"{kind} is served", partial(is_served, client, kind))

    assert await broken_promises(client) == {}


async def is_served(client: Client, kind: Kind) -> bool:
    try:
        await client.list(kind)
    except NotFoundError:
        return False
    return True
