"""``gpu-sharing gpu`` as a person types it, on a state file that a driver uses meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.main import run
from sharing.nvml.driver import Driver

Type = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "gpus.json"


@pytest.fixture
def typed(state: Path, capsys: pytest.CaptureFixture[str]) -> Type:
    """Runs a command; returns exit status, output and errors."""

    def run_it(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["gpu", "--state", str(state), *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


@pytest.fixture
def node(state: Path, typed: Type) -> Path:
    assert typed("create", "2xH100-80GB", "L4-24GB", "--seed", "n1")[0] == 0
    return state


@pytest.mark.usefixtures("node")
def test_a_list_shows_instances_and_processes(typed: Type) -> None:
    assert typed("mig", "0", "on") == (0, "GPU 0: MIG mode is on\n", "")
    code, out, _ = typed("foreign", "create", "0", "2g.20gb", "--start", "0")
    assert (code, out) == (0, "GPU 0: instance 3 is 2g.20gb at 0\n")
    typed("process", "start", "0", "--instance", "3", "--memory-mib", "99")
    typed("process", "start", "1", "--pid", "12", "--kind", "mps")
    code, out, _ = typed("list")
    lines = [line.split("  ") for line in out.splitlines()]
    assert code == 0
    assert out.startswith("driver 580.95.05, CUDA 13.0\n")
    assert [line.strip() for line in out.splitlines() if "pid" in line] == [
        "pid 4001, compute, 99 MiB",
        "pid 12, mps, 512 MiB",
    ]
    assert "2g.20gb at 0, id 3  MIG-" in out
    assert [line[-1] for line in lines if "GPU-" in "".join(line)] == [
        "MIG on",
        "MIG off",
        "no MIG",
    ]
    facts = json.loads(typed("list", "-o", "json")[1])
    assert [gpu["board"] for gpu in facts] == ["H100-80GB", "H100-80GB", "L4-24GB"]
    assert facts[0]["instances"][0]["gi_id"] == 3
    assert facts[1]["processes"][0]["pid"] == 12


def test_a_running_driver_sees_what_is_done_to_it(node: Path, typed: Type) -> None:
    with Driver(node) as driver, driver.watch() as watch:
        assert typed("lose", "1")[0] == 0
        event = watch.wait(10)
        assert event is not None
        assert event.data == 79
        assert [gpu.lost for gpu in driver.observe().gpus] == [False, True, False]
        assert "no answer: GPU_IS_LOST" in typed("list")[1]
        typed("reset", "1")
        assert all(gpu.readable for gpu in driver.observe().gpus)
        typed("xid", "0", "31")
        typed("xid", "0", "95")
        assert "wants gpu reset" in typed("list")[1]


def test_a_reboot_forgets_and_may_shuffle(node: Path, typed: Type) -> None:
    with Driver(node) as driver:
        before = [gpu.uuid for gpu in driver.observe().gpus]
    typed("mig", "0", "on")
    assert typed("reboot", "--order", "2,0,1") == (0, "booted, 2 boots in all\n", "")
    with Driver(node) as driver:
        after = driver.observe().gpus
    assert [gpu.uuid for gpu in after] == [before[2], before[0], before[1]]
    assert not any(gpu.mig_mode for gpu in after)


@pytest.mark.usefixtures("node")
def test_half_made_and_foreign_instances_come_and_go(typed: Type) -> None:
    typed("mig", "1", "on")
    typed("foreign", "create", "1", "1g.10gb", "--half-made")
    assert "1g.10gb at 6, id 7  half made" in typed("list")[1]
    assert typed("foreign", "destroy", "1", "7")[0] == 0
    assert "1g.10gb" not in typed("list")[1]


@pytest.mark.usefixtures("node")
def test_calls_fail_on_request(typed: Type) -> None:
    words = ("fail", "nvmlDeviceGetMigMode", "--gpu", "0", "--code", "UNKNOWN")
    assert typed(*words)[0] == 0
    assert "no answer: UNKNOWN" in typed("list")[1]
    assert "no answer" not in typed("list")[1]


def test_a_swapped_gpu_has_another_uuid(node: Path, typed: Type) -> None:
    with Driver(node) as driver:
        before = driver.observe().gpus[2].uuid
    assert typed("swap", "2", "T4-16GB")[0] == 0
    with Driver(node) as driver:
        gpu = driver.observe().gpus[2]
    assert gpu.uuid != before
    assert gpu.board.name == "T4-16GB"


@pytest.mark.usefixtures("node")
def test_slow_calls_are_set_and_shown(typed: Type) -> None:
    code, out, _ = typed("delay", "--create-s", "0.2", "--mode-s", "1")
    assert code == 0
    assert out == "create_s 0.2, destroy_s 0, list_s 0, mode_s 1, open_s 0, pace 1, walk_s 0\n"


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mig", "7", "on"), "GPU: '7' is not in this machine"),
        (("mig", "2", "on"), "has no MIG"),
        (("process", "stop", "1"), "process 1: does not run"),
        (("foreign", "create", "0", "1g.10gb"), "switch MIG mode on first"),
        (("foreign", "create", "0", "nonsense"), "does not follow the grammar"),
        (("foreign", "destroy", "0", "3"), "has no GPU instance 3"),
        (("reboot", "--order", "0,0,1"), "no permutation"),
        (("reboot", "--order", "x"), "no list of indices"),
        (("swap", "0", "H900"), "not in the catalogue"),
        (("fail", "nvmlInit", "--code", "NONE"), "no return code"),
        (("create", "many"), "not in the catalogue"),
    ],
)
def test_a_mistake_ends_in_one_sentence(typed: Type, words: tuple[str, ...], told: str) -> None:
    code, _, err = typed(*words)
    assert code == 2
    assert told in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_is_not_there_is_told_with_a_way_out(typed: Type) -> None:
    code, _, err = typed("list")
    assert code == 1
    assert "create 8xH100-80GB" in err
