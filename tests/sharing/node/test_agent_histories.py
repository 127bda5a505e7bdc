"""Whole nodes live by chance; see ``nodelife``.

``AGENT_HISTORIES=100`` lets as many live as a campaign wants, ten to twenty seconds each.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support.agent_bench import node_bench
from tests.support.nodelife import NodeLife

LIVES = int(os.environ.get("AGENT_HISTORIES", "1"))
STEPS = 40 if LIVES > 2 else 15
NODES = [["H100-80GB", "A100-40GB"], ["2xH100-80GB"], ["H100-80GB"], ["2xA100-40GB"]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(LIVES))
async def test_a_node_survives_whatever_happens_to_it(seed: int) -> None:
    draw = random.Random(seed)
    async with node_bench(draw.choice(NODES)) as node:
        life = NodeLife(node, draw)
        try:
            await life.live(STEPS)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error)[:300], *life.told])) from error
