"""``gpu-sharing doctor`` beside a running agent, and where nothing runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result

from cli.main import cli
from sharing.nvml import simulator
from tests.support.agent_bench import NodeBench, node_bench


def run(folder: Path, *more: str) -> Result:
    places = ["--kubelet-dir", "k", "--cdi-dir", "cdi", "--state-dir", "s", "--mps-dir", "m"]
    paths = [one if one.startswith("--") else str(folder / one) for one in places]
    state = ["--simulate-state", str(folder / "gpus.json")]
    return CliRunner().invoke(cli, ["doctor", *state, *paths, *more])


async def outcomes(node: NodeBench) -> tuple[int, dict[str, str]]:
    kubeconfig = ["--node-name", "n1", "--kubeconfig", str(node.folder / "kubeconfig")]
    result = await asyncio.to_thread(run, node.folder, "--json", *kubeconfig)
    return result.exit_code, {one["name"]: one["outcome"] for one in json.loads(result.stdout)}


async def test_beside_a_running_agent_nothing_is_in_the_way() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent()

        code, found = await outcomes(node)
        names = ("driver", "GPU 0", "kubelet", "pod resources", "state folder", "node label")
        assert {name: found[name] for name in names} == dict.fromkeys(names, "ok")
        failed = {name for name, outcome in found.items() if outcome == "fail"}
        assert failed <= {"container runtime", "kubelet version"}  # the embedded node's own words
        assert code == (1 if failed else 0)


def test_where_no_kubelet_runs_it_says_so_and_fails(short_dir: Path) -> None:
    simulator.create(short_dir / "gpus.json", "1xH100-80GB")
    result = run(short_dir)

    assert result.exit_code == 1
    assert "fail  kubelet" in result.stdout
    assert "→ start the kubelet" in result.stdout
    assert "Nothing was changed." in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    assert not (short_dir / "s").exists()


def test_a_machine_without_a_driver_gets_a_sentence_and_no_traceback(short_dir: Path) -> None:
    result = CliRunner().invoke(
        cli, ["doctor", "--simulate-state", str(short_dir / "none.json"), "--json"]
    )

    assert result.exit_code == 1
    first = json.loads(result.stdout)[0]
    assert (first["name"], first["outcome"]) == ("driver", "fail")
    assert first["remedy"]


def test_a_cluster_that_does_not_answer_is_a_check_that_failed(short_dir: Path) -> None:
    simulator.create(short_dir / "gpus.json", "1xH100-80GB")
    missing = ["--node-name", "n1", "--kubeconfig", str(short_dir / "nowhere")]

    result = run(short_dir, "--json", *missing)
    assert result.exit_code == 1
    assert {"cluster"} <= {
        one["name"] for one in json.loads(result.stdout) if one["outcome"] == "fail"
    }
