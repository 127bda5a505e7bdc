"""Whatever starts again, and when: no share twice, no pod lost, right counts soon (embedded).

The whole matrix is played with ``GPU_SHARING_PATIENT=1`` and timed with
``GPU_SHARING_FIGURES=FILE``; without patience, the cells that touch most. The real node's part is
``tests/cluster/test_restart_matrix.py``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.restarts import Act, Cell, Moment, Program, Scene, cells, play
from tests.support.trials import Trial

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("trial", ["embedded"], indirect=True, scope="session"),
]

PATIENT = os.environ.get("GPU_SHARING_PATIENT") == "1"
LIMIT_S = 5.0 if PATIENT else 30.0
"""For right counts; generous where the machine does other work beside."""
PROGRAMS = (Program.AGENT, Program.KUBELET, Program.MPS, Program.DRIVER)
CHOSEN = (
    Cell(program=Program.AGENT, moment=Moment.DURING, act=Act.LAYOUT, place=2),
    Cell(program=Program.KUBELET, moment=Moment.DURING, act=Act.REGISTER, place=0),
    Cell(program=Program.DRIVER, moment=Moment.DURING, act=Act.ALLOCATE, place=1),
)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def scene(trial: Trial) -> AsyncIterator[Scene]:
    one = Scene(trial)
    await trial.counts_agree(lambda offered: len(offered) == 7)
    await one.settle()
    yield one
    await one.leave()


@pytest.mark.parametrize("cell", cells(PROGRAMS) if PATIENT else CHOSEN, ids=str)
async def test_nothing_is_lost_or_doubled_when_programs_start_again(
    cell: Cell, scene: Scene
) -> None:
    assert await play(cell, scene) < LIMIT_S
