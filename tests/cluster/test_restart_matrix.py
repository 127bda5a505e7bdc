"""Whatever starts again on a real node, and when: no share twice, no pod lost, right counts soon.

The whole matrix, container runtime included, is played with ``GPU_SHARING_PATIENT=1`` in half an
hour and timed with ``GPU_SHARING_FIGURES=FILE``; without patience, one cell of each program. The
source is that of the embedded cluster.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.box.box import Box
from tests.support.forms import OBJECTS
from tests.support.restarts import Act, Cell, Moment, Program, Scene, cells, play
from tests.support.trials import box_trial

pytestmark = [pytest.mark.cluster("node"), pytest.mark.asyncio(loop_scope="module")]

PATIENT = os.environ.get("GPU_SHARING_PATIENT") == "1"
LIMIT_S = 5.0 if PATIENT else 20.0
"""For right counts; generous where the machine does other work beside."""
CHOSEN = (
    Cell(program=Program.AGENT, moment=Moment.DURING, act=Act.REGISTER, place=2),
    Cell(program=Program.KUBELET, moment=Moment.DURING, act=Act.LAYOUT, place=0),
    Cell(program=Program.RUNTIME, moment=Moment.DURING, act=Act.ALLOCATE, place=1),
    Cell(program=Program.MPS, moment=Moment.AFTER, act=Act.LIST, place=2),
    Cell(program=Program.DRIVER, moment=Moment.BEFORE, act=Act.LAYOUT, place=1),
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene() -> AsyncIterator[Scene]:
    """A node of its own: other tests must not meet a kubelet that is away."""
    with Box() as box:
        async with box_trial(box, OBJECTS) as trial:
            one = Scene(trial, restart_runtime=lambda: box.restart("containerd"))
            await trial.counts_agree(lambda offered: len(offered) == 7)
            await one.settle()
            yield one
            await one.leave()


@pytest.mark.parametrize("cell", cells(tuple(Program)) if PATIENT else CHOSEN, ids=str)
async def test_nothing_is_lost_or_doubled_when_programs_start_again(
    cell: Cell, scene: Scene
) -> None:
    assert await play(cell, scene) < LIMIT_S
