"""A real API server answers odd requests as it did when its answers were recorded.

The embedded one is held against the same record in ``tests/embedded/apiserver``. After a change
of stories: ``pytest tests/cluster/test_same_answers.py --update-golden``, and read the diff.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sharing.api.crd import crd_manifests
from tests.cluster.access import RefusedError
from tests.cluster.controlplane import ControlPlane
from tests.cluster.waiting import until
from tests.support.odd_requests import stories
from tests.support.replay import Server, Story, record, recorded

ANSWERS = Path(__file__).parents[1] / "embedded" / "apiserver" / "answers"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def server(control_plane: ControlPlane) -> AsyncIterator[Server]:
    access = control_plane.access
    for manifest in crd_manifests():
        try:
            access.call("POST", CRDS, manifest)
        except RefusedError as error:
            assert error.code == 409  # noqa: PT017 - another test made it
        plural = manifest["spec"]["names"]["plural"]
        until(
            f"{plural} are served",
            lambda plural=plural: is_served(control_plane, plural),  # type: ignore[misc]
            timeout_s=20,
        )
    user = json.loads(access.kubeconfig().read_text())["users"][0]["user"]
    tls = ssl.create_default_context(cafile=str(access.ca))
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        yield Server(access.server, session)


def is_served(plane: ControlPlane, plural: str) -> bool:
    """Whether a custom resource can be listed, a little after its definition is established."""
    try:
        plane.access.call("GET", f"/apis/gpu.sharing/v1alpha1/{plural}")
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize("story", [pytest.param(each, id=each.name) for each in stories()])
async def test_odd_requests_are_answered_as_recorded(
    server: Server, story: Story, update_golden: bool
) -> None:
    told = await server.tell(story)

    if update_golden:
        record(ANSWERS, story, told)
    for said, right in zip(told, recorded(ANSWERS, story), strict=True):
        assert said == right
