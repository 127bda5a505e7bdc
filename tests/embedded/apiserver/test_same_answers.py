"""The embedded API server answers odd requests as a real one did.

What the real one said is in ``answers``, recorded and compared by ``tests/cluster``.
"""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from embedded.apiserver import ApiServer
from sharing.api.crd import crd_manifests
from tests.support.odd_requests import stories
from tests.support.replay import Server, Story, recorded

ANSWERS = Path(__file__).parent / "answers"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize("story", [pytest.param(each, id=each.name) for each in stories()])
async def test_odd_requests_are_answered_as_by_a_real_server(
    server: ApiServer, session: aiohttp.ClientSession, story: Story
) -> None:
    for manifest in crd_manifests():
        async with session.post(server.url + CRDS, json=manifest) as made:
            assert made.status == 201

    told = await Server(server.url, session).tell(story)

    wanted = recorded(ANSWERS, story)
    for said, right in zip(told, wanted, strict=True):
        assert said == right


def test_there_is_an_answer_to_each_story_and_no_other() -> None:
    assert {path.stem for path in ANSWERS.iterdir()} == {story.name for story in stories()}
