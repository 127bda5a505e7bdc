"""A crowd of pods on one node of eight GPUs and four modes: the books are right after each step.

Sixty pods always; a thousand with ``GPU_SHARING_PATIENT=1``, on the real node too.
"""

from __future__ import annotations

import os

import pytest

from tests.support.crowd import come_and_go
from tests.support.trials import Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 1000 if os.environ.get("GPU_SHARING_PATIENT") == "1" else 60


@pytest.mark.timeout(60 + 3 * PODS)
async def test_a_crowd_of_pods_leaves_the_books_right_after_every_step(trial: Trial) -> None:
    await trial.counts_agree(lambda offered: len(offered) == 7)

    crowd = await come_and_go(trial, PODS, seed=7)

    assert crowd.created == PODS
    assert crowd.failed == {}, "UnexpectedAdmissionError is a failure of ours here"
    assert crowd.ran + crowd.waited == PODS
    assert crowd.ran > PODS / 2
    assert await trial.held() == {}
