"""What counts as a deviation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.trial.deviations import deviations
from cli.trial.facts import ContainerFacts, Facts, GpuFacts, PodFacts, ShareFacts
from cli.trial.scenario import Expectation, NodeSpec, PodSpec, Scenario

CONTAINER = ContainerFacts(
    name="main", resource="gpu.sharing/mps-1of4", device_ids=("GPU-1::0",), gpus=(0,), sees={},
    device_nodes=(), mounts=(), why="",
)  # fmt: skip
POD = PodFacts(
    key="b/a", about="", asked="", verdict="patch", code=201, message="", warnings=(),
    phase="Running", node="n", containers=(CONTAINER,),
)  # fmt: skip


def found(expect: Expectation, *pods: PodFacts, gpus: tuple[GpuFacts, ...] = ()) -> list[str]:
    wanted = Scenario(
        nodes=(NodeSpec(name="n", gpus="1xT4-16GB"),),
        pods=(
            PodSpec(
                about="", manifest={"metadata": {"name": "a", "namespace": "b"}}, expect=expect
            ),
        ),
    )
    return list(deviations(wanted, Facts(pods=pods, gpus=gpus, elapsed_s={})))


def test_what_is_as_expected_is_no_deviation() -> None:
    expect = Expectation(
        verdict="patch", code=201, phase="Running", containers={"main": "gpu.sharing/mps-1of4"}
    )

    assert found(expect, POD) == []


def test_a_pod_that_was_never_created_deviates() -> None:
    assert found(Expectation()) == ["b/a: was never created"]


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        (Expectation(verdict="allow"), "verdict is patch, expected allow"),
        (Expectation(code=422), "code is 201, expected 422"),
        (Expectation(says="quarter"), "does not say 'quarter'"),
        (Expectation(phase="Pending"), "phase is Running, expected Pending"),
        (Expectation(containers={}), "has gpu.sharing/mps-1of4, expected none"),
        (Expectation(containers={}), "holds devices that it did not ask for"),
        (
            Expectation(containers={"main": "gpu.sharing/mps-1of4", "x": "nvidia.com/gpu"}),
            "has no container x",
        ),
    ],
)
def test_what_is_not_as_expected_is_told(expect: Expectation, says: str) -> None:
    assert any(says in text for text in found(expect, POD))


def test_an_unexpected_refusal_is_told_once() -> None:
    denied = replace(POD, verdict="deny", code=403, message="no", phase=None, containers=())

    assert found(Expectation(verdict="patch", phase="Running"), denied) == [
        "b/a: verdict is deny, expected patch (no)"
    ]


def test_a_running_container_without_its_device_deviates() -> None:
    empty = replace(POD, containers=(replace(CONTAINER, device_ids=()),))

    assert found(Expectation(containers={"main": "gpu.sharing/mps-1of4"}), empty) == [
        "b/a: container main holds no device"
    ]


def test_one_device_in_two_pods_deviates() -> None:
    assert found(Expectation(), POD, replace(POD, key="b/c")) == [
        "device GPU-1::0 of node n is held by b/a and b/c"
    ]


@pytest.mark.parametrize(
    ("files", "gpus", "says"),
    [
        ((("/dev/nvidia0", "/dev/nvidiactl"),), ((0,),), None),
        (((), ("/dev/nvidiactl",)), ((0,), ()), None),
        ((("/dev/nvidia0", "/dev/nvidia1"),), ((0,),), "has 1 GPUs, but sees /dev/nvidia0 /dev"),
        ((("/dev/nvidiactl",),), ((0,),), "has 1 GPUs, but sees the file of none"),
        ((("/dev/nvidia0",), ("/dev/nvidia0",)), ((0,), (1,)), "containers of different GPUs"),
        ((("/dev/nvidia0",), ("/dev/nvidia0",)), ((0,), (0,)), None),
    ],
)
def test_a_container_sees_the_files_of_its_gpus_and_no_others(
    files: tuple[tuple[str, ...], ...], gpus: tuple[tuple[int, ...], ...], says: str | None
) -> None:
    pods = [
        replace(
            POD,
            key=f"b/{'ac'[n]}",
            containers=(replace(CONTAINER, device_ids=(str(n),), device_nodes=nodes, gpus=ours),),
        )
        for n, (nodes, ours) in enumerate(zip(files, gpus, strict=True))
    ]

    told = found(Expectation(), *pods)

    assert len(told) == (says is not None), told
    assert says is None or says in told[0]


def test_a_device_that_is_offered_twice_deviates() -> None:
    share = ShareFacts(device_id="GPU-1::0", resource="r", memory_mib=1, holder=None)
    gpu = GpuFacts(
        node="n", index=0, uuid="GPU-1", board="T4-16GB", layout="", observed="",
        shares=(share, share),
    )  # fmt: skip

    assert found(Expectation(), POD, gpus=(gpu,)) == ["GPU 0 of node n offers GPU-1::0 twice"]
