"""A tier that did not run says so, and a test that failed brings its cluster's logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.needs import REQUIRE, SWITCH, Tier

ROOT: Final = Path(__file__).parents[2]
ONE_TEST: Final = "tests/cluster/test_fleet.py::test_a_fleet_that_cannot_start_says_so"
SEARCHED: Final = ("GPU_SHARING_CLUSTER_BIN", "KUBEBUILDER_ASSETS", SWITCH, REQUIRE)


def _pytest(*arguments: str, **environment: str) -> tuple[int, list[str]]:
    """A run of its own: its exit code and its lines."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in SEARCHED and not key.startswith("PYTEST_")
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**kept, **environment},
        timeout=90,
    )
    return run.returncode, run.stdout.splitlines()


def test_without_the_switch_the_last_lines_say_what_did_not_run() -> None:
    code, lines = _pytest(ONE_TEST)

    assert code == 0
    assert lines[-2].startswith("1 NOT RUN: real-cluster tests are off; make test-cluster")


def test_with_the_switch_the_last_lines_say_what_is_missing(tmp_path: Path) -> None:
    places = {"GPU_SHARING_CLUSTER_CACHE": str(tmp_path), "PATH": "/nowhere"}

    code, lines = _pytest(ONE_TEST, **places, **{SWITCH: "1"})

    assert code == 0
    assert lines[-2].startswith("1 NOT RUN: no real cluster here, missing: etcd, kube-apiserver, ")
    assert "kube-scheduler (make cluster-programs); setpriv (Debian: util-linux" in lines[-2]


def test_a_required_tier_that_is_missing_fails(tmp_path: Path) -> None:
    code, lines = _pytest(
        ONE_TEST, GPU_SHARING_CLUSTER_CACHE=str(tmp_path), PATH="/nowhere", REQUIRE_CLUSTER="1"
    )

    assert code == 1
    assert any(line.startswith("no real cluster here, missing: ") for line in lines)


def test_a_machine_that_refuses_namespaces_says_so_before_anything_is_built() -> None:
    """Without the right to make namespaces, as in an ordinary container."""
    command = [sys.executable, "-m", "tests.cluster.needs"]
    bare = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]
    run = subprocess.run(
        [*bare, *command] if os.geteuid() == 0 else command,
        check=False, capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip

    assert run.returncode == 1
    said = run.stderr.strip()
    assert said.startswith("a node for tests cannot run on this machine, missing: ")
    assert "root, for namespaces" in said or "the right to make new namespaces (it says: " in said


@pytest.mark.cluster(Tier.CONTROL_PLANE)
def test_a_failure_brings_the_logs_along(tmp_path: Path) -> None:
    failing = tmp_path / "test_it.py"
    failing.write_text("def test_it(control_plane): assert control_plane is None\n")
    plugin = ("-p", "tests.cluster.conftest", "--rootdir", str(tmp_path))

    code, lines = _pytest(*plugin, str(failing), **{SWITCH: "1"})

    assert code == 1
    assert "--- kube-apiserver.log" in lines
    (kept,) = [line.rpartition(" ")[2] for line in lines if line.startswith("logs were kept in ")]
    assert (Path(kept) / "kube-apiserver.log").stat().st_size
