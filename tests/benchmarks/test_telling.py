"""Every benchmark tells its figures alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.telling import Meaning, spread, tell

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.parent.name for path in ROOT.glob("benchmarks/*/__main__.py"))


def test_a_spread_stands_beside_its_figure() -> None:
    assert spread("x_s", [3.0, 1.0, 2.0]) == {
        "x_s_median": 2.0, "x_s_min": 1.0, "x_s_max": 3.0, "x_s_n": 3,
    }  # fmt: skip


def test_the_table_says_what_was_missed_and_the_file_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meanings = {"a": Meaning(text="first", most=1), "b": Meaning(text="second", most=2)}

    tell({"a": 1.5, "b": 2, "c": "d"}, meanings, tmp_path / "figures.json")

    assert json.loads((tmp_path / "figures.json").read_text()) == {"a": 1.5, "b": 2, "c": "d"}
    shown = capsys.readouterr().out
    assert "≤ 1: NO" in shown
    assert "≤ 2: yes" in shown


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_takes_the_same_options(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert "--quick" in done.stdout
    assert "--json" in done.stdout
