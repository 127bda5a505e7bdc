"""The benchmark of serving on small numbers: what it says was measured was measured."""

from __future__ import annotations

import pytest

from benchmarks.serving.__main__ import MEANINGS
from benchmarks.serving.client import percentile
from benchmarks.serving.measuring import Effort, measure


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 99) == 7


@pytest.mark.timeout(240)
async def test_all_figures_are_measured_on_two_gpus() -> None:
    told: list[str] = []
    effort = Effort(calls=20, faults=1, starts=1, idle_s=0.2, gpus=2)
    figures = await measure(effort, told=told.append)

    assert told == ["allocation", "rest", "starts", "health"]
    wanted = {key for key in MEANINGS if key != "load_average"}
    assert wanted <= figures.keys()
    numbers = [figures[key] for key in wanted]
    assert all(isinstance(one, int | float) and one >= 0 for one in numbers)
    assert figures["allocate_ms_n"] == 20
