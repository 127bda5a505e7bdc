"""The demo as a person runs it: exit status, words, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.main import run

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


def test_the_demo_tells_facts_and_deviations_and_leaves_no_process_behind(
    tmp_path: Path, short_dir: Path
) -> None:
    """One share as wanted, and one pod of which something else was wanted."""
    kept = short_dir / "kept"
    scenario = json.loads(json.dumps(SCENARIO))
    second = json.loads(json.dumps(SCENARIO["pods"][0]))
    second["manifest"]["metadata"]["name"] = "b"
    scenario["pods"].append({**second, "expect": {"verdict": "deny"}})

    done = demo("--scenario", write(tmp_path, scenario), "--json", "--keep", kept)

    assert done.returncode == 1, done.stderr
    facts = json.loads(done.stdout)
    assert facts["deviations"] == ["lab/b: verdict is patch, expected deny (no message)"]
    (pod, _) = facts["pods"]
    (container,) = pod["containers"]
    assert pod["verdict"] == "patch"
    assert container["sees"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert container["mounts"] == [
        container["sees"]["GPU_SHARING_FILES"], container["sees"]["CUDA_MPS_PIPE_DIRECTORY"],
    ]  # fmt: skip
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scenario: object, says: str
) -> None:
    code = run(["demo", "--scenario", str(write(tmp_path, scenario))])

    assert code == 2
    assert says in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--image", "busybox:1"], "options of a real cluster need --cluster real"),
        (["--cluster", "real"], "names 0 nodes, but the scenario has 1"),
        (["--cluster", "real", "--node", "N=k"], "expected NAME=KUBELET_DIR,CDI_DIR"),
        (
            ["--cluster", "real", "--node", "n=k,c", "--webhook-listen", "9443"],
            "expected HOST:PORT",
        ),
        (
            ["--cluster", "real", "--node", "n=k,c", "--identity", "kubelet=f"],
            "one of webhook, controller, agent",
        ),
        (["--cluster", "real", "--node", "n=k,c", "--context", "c"], "needs --kubeconfig FILE"),
        (["--kubeconfig", "nowhere", "--node", "n=k,c"], "nowhere"),
        (["--same-as", "/dev/null"], "facts /dev/null: cannot be read"),
    ],
)
def test_a_real_cluster_that_is_described_badly_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    code = run(["demo", "--scenario", str(write(tmp_path, SCENARIO)), *options])

    assert code == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_folder_that_sockets_do_not_fit_in_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--keep", str(tmp_path / ("long" * 20))]) == 2
    assert "its path is too long for unix sockets" in capsys.readouterr().err
