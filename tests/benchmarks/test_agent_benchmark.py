"""The agent's benchmark on small numbers: what it kills, it kills, and what it says is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agent.deadly import PHASES, DeadlyJournal
from benchmarks.agent.kills import campaign
from sharing.node.journal import Journal
from sharing.node.step import SetMigMode


@pytest.mark.timeout(240)
async def test_killed_agents_are_followed_by_ones_that_finish_and_the_pod_keeps_its_instance() -> (
    None
):
    result = await campaign(kills=2, seed=2)

    assert (result.kills, result.converged, result.failures) == (2, 2, [])
    assert set(result.by_phase) <= {*PHASES, "random"}
    assert result.by_phase["random"] >= 1


def test_the_deadly_journal_is_the_agents_own_until_it_is_armed(tmp_path: Path) -> None:
    journal = DeadlyJournal(tmp_path / "journal.json", tmp_path / "arm")
    journal.begin([SetMigMode(gpu="GPU-a", enabled=True)])
    journal.starting(0)

    found = Journal(tmp_path / "journal.json").recover()
    assert found is not None
    assert found.at == 0
    journal.finish()
    assert Journal(tmp_path / "journal.json").recover() is None
