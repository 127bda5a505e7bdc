"""Nothing of a cluster outlives the tests, however they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import leftovers
from tests.cluster.box import cgroups
from tests.cluster.box.box import Box, BoxError
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identity import identity_of, is_alive
from tests.cluster.needs import SWITCH, Tier
from tests.cluster.ports import free_ports
from tests.cluster.waiting import until

ROOT: Final = Path(__file__).parents[2]
GONE_S: Final = 20.0

A_RUN: Final[dict[Tier, str]] = {
    Tier.CONTROL_PLANE: """
import json, pathlib, sys
from tests.cluster import leftovers
from tests.cluster.controlplane import ControlPlane
with ControlPlane(pathlib.Path(sys.argv[1])) as running:
    pids = list(running.pids().values())
    print(json.dumps({"pids": pids, "folder": sys.argv[1]}), flush=True)
    sys.stdin.read()
""",
    Tier.NODE: """
import json, sys
from tests.cluster.box.box import Box, BoxError
with Box() as running:
    pids = [running.pid, running.keeper_pid]
    print(json.dumps({"pids": pids, "folder": str(running.spec.folder)}), flush=True)
    sys.stdin.read()
""",
}
"""What a test run does, for one that is to be killed."""


def _mount_namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/mnt").readlink())


def _processes_in(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _mount_namespace(int(entry.name)) == namespace:
                    found.append(int(entry.name))
    return found


def _cgroups_of(keeper: str) -> list[Path]:
    name = f"{cgroups.PREFIX}{keeper}"
    return [parent / name for parent in cgroups.here().values() if (parent / name).exists()]


@contextlib.contextmanager
def _run(tier: Tier, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A test run of its own, with what it said about its cluster."""
    child = subprocess.Popen(
        [sys.executable, "-c", A_RUN[tier], *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            yield child, json.loads(child.stdout.readline())
        finally:
            child.kill()


@pytest.mark.cluster(Tier.NODE)
def test_a_box_that_is_stopped_leaves_nothing() -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    with Box() as box:
        box.exec("true")
        namespace = _mount_namespace(box.pid)
        keeper = identity_of(box.keeper_pid)
        assert _processes_in(namespace)
        assert _cgroups_of(keeper)

    assert _processes_in(namespace) == []
    assert _cgroups_of(keeper) == []
    assert not box.spec.folder.exists()
    assert Path("/proc/self/mountinfo").read_text() == mounts


@pytest.mark.cluster(Tier.NODE)
def test_a_box_that_ends_by_itself_is_told() -> None:
    box = Box()
    box.start()
    os.kill(box.pid, signal.SIGKILL)
    until("its keeper is done", lambda: not _is_at_work(box.keeper_pid), timeout_s=GONE_S)

    with pytest.raises(BoxError, match="the box ended by itself with "):
        box.stop()
    assert not box.spec.folder.exists()


def _is_at_work(pid: int) -> bool:
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]


@pytest.mark.cluster(Tier.NODE)
def test_a_box_goes_with_a_test_run_that_is_killed() -> None:
    with _run(Tier.NODE) as (child, said):
        first, keeper = said["pids"]
        namespace, identity = _mount_namespace(first), identity_of(keeper)

        os.kill(child.pid, signal.SIGKILL)

        until("all processes are gone", lambda: not _processes_in(namespace), timeout_s=GONE_S)
        until("its keeper is gone", lambda: not is_alive(identity), timeout_s=GONE_S)
    assert _cgroups_of(identity) == []
    assert not Path(said["folder"]).exists()


@pytest.mark.cluster(Tier.NODE)
def test_a_box_goes_with_its_keeper_and_the_next_one_sweeps_up() -> None:
    with _run(Tier.NODE) as (_, said):
        first, keeper = said["pids"]
        namespace, identity = _mount_namespace(first), identity_of(keeper)

        os.kill(keeper, signal.SIGKILL)

        until("all processes are gone", lambda: not _processes_in(namespace), timeout_s=GONE_S)
    assert _cgroups_of(identity)
    until("its cgroups are swept", lambda: _swept(identity), timeout_s=GONE_S)
    leftovers.sweep()
    assert not Path(said["folder"]).exists()


def _swept(identity: str) -> bool:
    cgroups.sweep()
    return not _cgroups_of(identity)


@pytest.mark.cluster(Tier.CONTROL_PLANE)
def test_a_control_plane_goes_with_a_test_run_that_is_killed() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="gs-plane-") as folder,
        _run(Tier.CONTROL_PLANE, folder) as (child, said),
    ):
        alive = [identity_of(pid) for pid in said["pids"]]
        assert len(alive) == 2

        os.kill(child.pid, signal.SIGKILL)

        until(
            "both programs are gone",
            lambda: not any(is_alive(each) for each in alive),
            timeout_s=GONE_S,
        )


A_TEST: Final = """
import json, pathlib, sys, threading
def test_it(node_box, control_plane):
    outside = node_box.start_outside("outside", ["sleep", "1000"])
    said = {
        "pids": [node_box.pid, node_box.keeper_pid, outside.pid, *control_plane.pids().values()],
        "folders": [str(node_box.spec.folder), str(control_plane.logs.parent)],
    }
    pathlib.Path(__file__).with_name("said.json").write_text(json.dumps(said))
    threading.Event().wait()
"""
"""A test that never ends, with both kinds of clusters."""


@pytest.mark.timeout(240)
@pytest.mark.cluster(Tier.NODE)
def test_nothing_of_a_test_run_that_is_killed_is_left_after_the_next_one(tmp_path: Path) -> None:
    """kill -9 of pytest itself: processes and mounts go at once, cgroups with the box, and what
    lies in files when the next run starts."""
    (tmp_path / "test_it.py").write_text(A_TEST)
    words = ["-p", "tests.cluster.conftest", "--rootdir", str(tmp_path), str(tmp_path)]
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--timeout=0", *words],
        cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, SWITCH: "1"},
    )  # fmt: skip
    with run:
        try:
            file = tmp_path / "said.json"
            until("the test runs", lambda: file.exists() and file.read_text(), timeout_s=100)
            said = json.loads(file.read_text())
            alive = [identity_of(pid) for pid in said["pids"]]
            namespace, keeper = _mount_namespace(said["pids"][0]), alive[1]
            assert _cgroups_of(keeper)
            assert all(is_alive(each) for each in alive)
        finally:
            run.kill()
    until(
        "all processes are gone",
        lambda: not _processes_in(namespace) and not any(is_alive(each) for each in alive),
        timeout_s=GONE_S,
    )
    assert _cgroups_of(keeper) == []
    leftovers.sweep()
    assert [folder for folder in said["folders"] if Path(folder).exists()] == []


@pytest.mark.cluster(Tier.CONTROL_PLANE)
def test_a_control_plane_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as plane:
        alive = [identity_of(pid) for pid in plane.pids().values()]

    assert [each for each in alive if is_alive(each)] == []


@pytest.mark.cluster(Tier.CONTROL_PLANE)
@pytest.mark.parametrize("taken", [0, 2], ids=["etcd", "API server"])
def test_a_port_that_somebody_took_is_given_up_for_another(tmp_path: Path, taken: int) -> None:
    """Between the look for a free port and the program that listens there is a moment."""
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        rows = iter([[*free_ports(4)], [*free_ports(4)]])

        def choose(count: int) -> list[int]:
            row = next(rows)[:count]
            if not chosen:
                row[taken] = somebody.getsockname()[1]
            chosen.append(row)
            return row

        chosen: list[list[int]] = []
        with ControlPlane(tmp_path, choose=choose) as plane:
            assert plane.access.is_ready()
        assert len(chosen) == 2
