"""The folder that ``admit`` is timed over is what a team's repository may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.admit.__main__ import measure, run_once
from benchmarks.admit.manifests import write_manifests
from sharing.errors import UnavailableError


def test_a_run_tells_its_figures_by_their_number_of_manifests() -> None:
    figures = measure(1, count=20)

    assert float(figures["admit_20_s"]) > 0
    assert float(figures["admit_20_cpu_s"]) > 0
    assert figures["admit_20_s_n"] == 2


def test_all_kinds_of_workloads_and_asks_are_there(tmp_path: Path) -> None:
    manifests, _ = write_manifests(tmp_path / "x", 20)
    texts = [path.read_text() for path in sorted(manifests.rglob("workload-*.yaml"))]

    assert len(texts) == 20
    for found in ("kind: Pod", "kind: Deployment", "kind: Job", "kind: CronJob"):
        assert any(found in text for text in texts)
    for ask in ("gpu.sharing/fraction", "gpu.sharing/memory", "nvidia.com/gpu: 500m"):
        assert any(ask in text for text in texts)


def test_a_run_that_fails_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="gpu-sharing admit"):
        run_once(tmp_path / "missing", tmp_path / "missing", "table")
