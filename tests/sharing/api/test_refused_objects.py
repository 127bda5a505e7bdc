"""What the docs say is refused, is, in the words that they promise: by the embedded API server.

A real one is asked the same in ``tests/cluster``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from embedded.apiserver import ApiServer
from sharing.api.crd import crd_manifests
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS
from tests.support.refusals import broken_promises, refusals


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ApiServer() as server, Client(credentials.at(server.url)) as opened:
        for manifest in crd_manifests():
            await opened.create(CRDS, manifest)
        yield opened


async def test_each_bad_object_is_refused_in_the_words_of_the_docs(client: Client) -> None:
    """One test for all of them: each is one request."""
    assert await broken_promises(client) == {}


def test_every_rule_of_the_definitions_has_an_object_that_breaks_it() -> None:
    promised = {bad.says for bad in refusals()}

    assert _messages(crd_manifests()) <= promised


def _messages(schema: object) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_messages, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = {rule["message"] for rule in schema.get("x-kubernetes-validations") or ()}
    return own.union(*map(_messages, schema.values()))
