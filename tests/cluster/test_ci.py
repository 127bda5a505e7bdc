"""What CI runs on a machine that lacks something ends with a sentence that says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[2] / ".ci" / "run"
BASICS: Final = ("bash", "cut", "dirname", "getent", "grep", "head")
"""What any Linux has."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder of programs, all that there is on a machine, without a compiler."""
    for name in BASICS:
        found = shutil.which(name)
        assert found is not None, name
        (tmp_path / name).symlink_to(found)
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def run(
    path: Path, script: Path = SCRIPT, *, require: str | None = "1"
) -> subprocess.CompletedProcess[str]:
    """CI with a PATH of its own and no HOME; it ends before it touches anything."""
    wish = {} if require is None else {"REQUIRE_CLUSTER": require}
    bash = str(path / "bash")
    return subprocess.run(
        [bash, str(script)], check=False, capture_output=True, text=True, timeout=60,
        env={"PATH": str(path), **wish}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_without_the_right_to_install_the_packages_are_named(path: Path) -> None:
    program(path, "id", "echo 1000")

    done = run(path)

    assert done.returncode == 2
    assert "ci: not root and without: " in done.stderr
    assert "gcc libc6-dev pkg-config" in done.stderr
    assert "; say: sudo apt-get install " in done.stderr


def test_without_a_package_manager_that_we_know_they_are_named_too(path: Path) -> None:
    program(path, "id", "echo 0")

    done = run(path)

    assert done.returncode == 2
    assert "ci: no apt-get here, and without: " in done.stderr


def test_packages_are_brought_and_a_python_is_missed(path: Path, tmp_path: Path) -> None:
    program(path, "id", "echo 0")
    program(path, "apt-get", f'echo "$@" >> {tmp_path}/asked')

    done = run(path)

    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "-q update"
    assert asked[1].startswith("-q install --yes --no-install-recommends ")
    assert asked[1].endswith(("gcc libc6-dev pkg-config", "libseccomp-dev", "make"))
    assert done.returncode == 2
    assert "ci: packages of the system " in done.stdout
    assert "no Python 3.11 to 3.13 with venv on PATH" in done.stderr


@pytest.fixture
def machine(path: Path, tmp_path: Path) -> Path:
    """A copy of the script on a machine that has all; what make is asked for goes into a file."""
    for name in ("apt-get", "cat", "python3.11"):
        program(path, name, "exit 0")
    program(path, "id", "echo 0")
    program(path, "make", f'echo "$1:$REQUIRE_CLUSTER" >> {tmp_path}/made')
    (tmp_path / "copy" / ".venv" / "bin").mkdir(parents=True)
    program(tmp_path / "copy" / ".venv" / "bin", "python", "exit 0")
    (tmp_path / "copy" / ".ci").mkdir()
    return Path(shutil.copy(SCRIPT, tmp_path / "copy" / ".ci"))


@pytest.mark.parametrize("require", ["1", None])
def test_the_tests_hear_of_the_cluster_once_its_programs_are_there(
    path: Path, machine: Path, tmp_path: Path, require: str | None
) -> None:
    done = run(path, machine, require=require)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made").read_text().split() == [
        "setup:", "lint:", "cluster-programs:", "test:1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("failed", "again", "code"), [(1, 0, 0), (3, 0, 0), (2, 1, 2), (4, 0, 1), (0, 0, 1)]
)
def test_a_few_tests_that_failed_run_once_more_and_that_is_said(
    path: Path, machine: Path, tmp_path: Path, failed: int, again: int, code: int
) -> None:
    """(failed, exit of the second run, exit of all); make says 2 where a recipe fails."""
    tests = "".join(f'  "tests/test_{number}.py::test": true\n' for number in range(failed))
    program(
        path, "make",
        f'echo "$1" >> {tmp_path}/made\n'
        f'[ "$1" != test-again ] || exit {2 * again}\n'
        f'[ "$1" = test ] || exit 0\n'
        f"mkdir -p .pytest_cache/v/cache\n"
        f"printf '{{\n{tests}}}' > .pytest_cache/v/cache/lastfailed\nexit 2",
    )  # fmt: skip
    (path / "mkdir").symlink_to(shutil.which("mkdir") or "")

    done = run(path, machine, require="0")

    assert done.returncode == code, done.stdout
    second = (tmp_path / "made").read_text().split()[-1] == "test-again"
    assert second is (0 < failed < 4)
    assert (f"ci: {failed} OF THE TESTS ABOVE FAILED" in done.stdout) is second


def test_a_cluster_may_be_left_out_and_that_is_said(
    path: Path, machine: Path, tmp_path: Path
) -> None:
    done = run(path, machine, require="0")

    assert done.returncode == 0
    assert (tmp_path / "made").read_text().split() == ["setup:", "lint:", "test:"]
    assert "THE TESTS ON A REAL CLUSTER DO NOT RUN HERE (REQUIRE_CLUSTER=0)" in done.stdout


def test_a_machine_without_the_rights_runs_the_rest_and_says_so(
    path: Path, machine: Path, tmp_path: Path
) -> None:
    program(machine.parents[1] / ".venv" / "bin", "python", "exit 1")

    done = run(path, machine, require=None)
    demanded = run(path, machine, require="1")

    assert done.returncode == 0
    assert (tmp_path / "made").read_text().split() == ["setup:", "lint:", "test:", "setup:"]
    assert "DO NOT RUN HERE (failed: rights on the machine, see above)" in done.stdout
    assert demanded.returncode == 1


def test_the_script_may_be_executed() -> None:
    assert os.access(SCRIPT, os.X_OK)
