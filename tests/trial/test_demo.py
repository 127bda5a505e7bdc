"""The demo as a person runs it: exit status, words, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SCENARIO = {
    "nodes": [{"name": "n", "gpus": "1xT4-16GB", "labels": {"gpu.sharing/managed": "true"}}],
    "objects": [
        {"apiVersion": "v1", "kind": "Namespace",
         "metadata": {"name": "lab", "labels": {"gpu.sharing/mode": "mps"}}},
        {"apiVersion": "gpu.sharing/v1alpha1", "kind": "GPULayout", "metadata": {"name": "l"},
         "spec": {"gpus": [{"gpus": "all", "mode": "mps", "sizes": {"1of4": 4}}]}},
    ],
    "pods": [
        {"about": "one share",
         "manifest": {"metadata": {"name": "a", "namespace": "lab"},
                      "spec": {"containers": [{"name": "main", "image": "registry.example/a:1",
                                               "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
         "expect": {"verdict": "patch", "phase": "Running",
                    "containers": {"main": "gpu.sharing/mps-1of4"}}},
    ],
}  # fmt: skip


def demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "demo", *map(str, arguments)],
        capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def write(folder: Path, scenario: object) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario))
    return path


def left_behind(folder: Path) -> list[str]:
    """Processes that still name the folder in their environment or command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            text = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
        except OSError:
            continue
        if bytes(folder) in text and int(each.name) != os.getpid():
            found.append(text[:80].decode("utf-8", "replace"))
    return found


def test_the_demo_runs_a_scenario_and_leaves_no_process_behind(
    tmp_path: Path, short_dir: Path
) -> None:
    kept = short_dir / "kept"

    done = demo("--scenario", write(tmp_path, SCENARIO), "--json", "--keep", kept)

    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["deviations"] == []
    (pod,) = facts["pods"]
    (container,) = pod["containers"]
    assert pod["verdict"] == "patch"
    assert container["sees"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    (gpu,) = facts["gpus"]
    assert [share["holder"] for share in gpu["shares"]].count("lab/a/main") == 1
    assert {log.name for log in (kept / "logs").iterdir()} >= {"webhook.log", "agent-n.log"}
    assert left_behind(kept) == []


def test_the_readme_shows_what_the_demo_prints() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    excerpt = readme.partition("<!-- excerpt: demo -->\n```text\n")[2].partition("```")[0]

    done = demo()

    assert done.returncode == 0, done.stdout
    printed = {line.rstrip() for line in done.stdout.splitlines()}
    assert len(excerpt.splitlines()) > 30
    assert [line for line in excerpt.splitlines() if line not in printed] == []
    assert max(map(len, printed)) <= 100


def test_what_deviates_is_told_and_the_exit_status_is_1(tmp_path: Path) -> None:
    wrong = json.loads(json.dumps(SCENARIO))
    wrong["pods"][0]["expect"] = {"verdict": "deny"}

    done = demo("--scenario", write(tmp_path, wrong))

    assert done.returncode == 1
    assert "deviates: lab/a: verdict is patch, expected deny" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("nonsense", "is no mapping"),
        ({**SCENARIO, "nodes": [{"name": "n", "gpus": "8xH10"}]}, "H10"),
        (
            {**SCENARIO, "objects": [{"apiVersion": "v1", "kind": "Secret", "metadata": {}}]},
            "'Secret'",
        ),
    ],
)
def test_a_scenario_that_cannot_be_run_is_one_sentence(
    tmp_path: Path, scenario: object, says: str
) -> None:
    done = demo("--scenario", write(tmp_path, scenario))

    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert says in last
    assert "Traceback" not in done.stderr


def test_a_folder_that_sockets_do_not_fit_in_is_refused(tmp_path: Path) -> None:
    done = demo("--keep", tmp_path / ("long" * 20))

    assert done.returncode == 2
    assert "its path is too long for unix sockets" in done.stderr
