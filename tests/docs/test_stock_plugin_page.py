"""Each complaint of the page has its number and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations" / "why-not-the-stock-plugin.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]


def test_all_twenty_complaints_are_there() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 21)]
    assert all("#" in row[2] for row in ROWS), "each names public reports"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_tests_of_a_complaint_exist(row: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[4])
    assert len(named) >= 2
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = {
            node.name for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }  # fmt: skip
        assert name in found, f"{file} has no {name}"
