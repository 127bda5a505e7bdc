"""Shares cut from MIG instances: asked for by name, or by what they have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.judging import (
    H100_MIB,
    container,
    inventory,
    judge,
    pod,
    profile,
    resources_of,
)

GPU = "nvidia.com/gpu"
HALF, QUARTER = "gpu.sharing/mig-3g.40gb.mps-1of2", "gpu.sharing/mig-3g.40gb.mps-1of4"
TURNS = "gpu.sharing/mig-1g.10gb.timeslice-1of2"
OF_A_GPU = "gpu.sharing/mps-1of4"
CUT = inventory((HALF, 20224, 248), (QUARTER, 10112, 124), (TURNS, 4992, 72))
"""3g.40gb is half of the memory slices, 1g.10gb an eighth of them."""
BOTH = inventory(
    (HALF, 20224, 248), (QUARTER, 10112, 124), (OF_A_GPU, H100_MIB // 4, 250), (GPU, H100_MIB, 1000)
)


def one(limits: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    keys = {f"gpu.sharing/{key}": value for key, value in annotations.items()}
    return pod(container(limits=limits) if limits else container(), annotations=keys or None)


@pytest.mark.parametrize(
    ("limits", "annotations", "mode", "given"),
    [
        ({GPU: 1}, {}, "mps", HALF),  # the default is a quarter of a GPU, which that is
        ({}, {"fraction": "1/8"}, "mps", QUARTER),
        ({}, {"fraction": "0.2"}, "mps", HALF),
        ({GPU: "100m"}, {}, "mps", QUARTER),
        ({}, {"fraction": "1/16"}, "time-slicing", TURNS),
        ({}, {"memory": "9Gi"}, "mps", QUARTER),
        ({}, {"memory": "10113Mi"}, "mps", HALF),
        ({}, {"memory": "4Gi"}, "time-slicing", TURNS),
        ({QUARTER: 1}, {}, "mps", QUARTER),
        ({QUARTER: 2}, {}, "mps", HALF),
    ],
)
def test_an_ask_becomes_the_smallest_share_that_has_enough(
    limits: dict[str, Any], annotations: dict[str, str], mode: str, given: str
) -> None:
    verdict, after = judge(one(limits, **annotations), mode, CUT)
    assert verdict.allowed, verdict.message
    assert resources_of(after) == {given: "1"}


def test_of_equal_parts_those_of_a_gpu_are_given() -> None:
    _, after = judge(one({GPU: 1}), "mps", BOTH)
    assert resources_of(after) == {OF_A_GPU: "1"}
    verdict, after = judge(one(fraction="1/10"), "mps", BOTH)
    assert resources_of(after) == {QUARTER: "1"}
    assert "rounded up to 1of4 of 3g.40gb" in verdict.grants[0].reason


def test_more_than_any_instance_has_is_refused_with_what_there_is() -> None:
    verdict, _ = judge(one(memory="20Gi"), "mps", CUT)
    assert verdict.code == 403
    assert HALF in verdict.message


def test_a_memory_ask_is_sent_to_nodes_whose_instances_have_it() -> None:
    _, after = judge(one(memory="9Gi"), "mps", CUT)
    terms = after["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"] == [
        {"key": f"{QUARTER}.memory-mib", "operator": "Gt", "values": [str(9 * 1024 - 1)]}
    ]


def test_accounting_counts_the_part_of_the_instance() -> None:
    policy = profile(mode="mps", accounting=True)
    _, after = judge(one({HALF: 1}), policy, CUT)
    assert resources_of(after) == {HALF: "1", "gpu.sharing/milli-gpu": "248"}


def test_the_grade_of_a_cut_is_that_of_its_mode() -> None:
    strict = profile(mode="mps", allowedModes=["mps", "time-slicing"], minIsolation="limits")
    _, after = judge(one(fraction="1/8"), strict, CUT)
    assert resources_of(after) == {QUARTER: "1"}
    verdict, _ = judge(one({TURNS: 1}), strict, CUT)
    assert verdict.code == 403
    assert "gives isolation 'none'" in verdict.message
    hardware = profile(mode="mig", allowedModes=["mig", "mps"], minIsolation="hardware")
    verdict, _ = judge(one({HALF: 1}), hardware, CUT)
    assert verdict.code == 403


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"migProfiles": ["1g.10gb"], "allowedModes": ["mps", "mig"]}, HALF),
        ({"allowedSizes": ["1of4"]}, HALF),
        ({"pool": "team-a"}, HALF),
    ],
)
def test_a_profile_limits_size_instance_and_pool(limits: dict[str, Any], refused: str) -> None:
    policy = profile(mode="mps", **limits)
    verdict, _ = judge(one({refused: 1}), policy, CUT)
    assert verdict.code == 403
    asked, after = judge(one(fraction="1/5"), policy, CUT)
    assert asked.code == 403 or resources_of(after) != {refused: "1"}


def test_a_cut_that_no_node_has_is_refused_by_name() -> None:
    name = "gpu.sharing/mig-2g.20gb.mps-1of2"
    verdict, _ = judge(one({name: 1}), "mps", CUT)
    assert verdict.code == 403
    assert name in verdict.message


@pytest.mark.parametrize(
    "name", ["gpu.sharing/mig-3g.40gb.mps-1of49", "gpu.sharing/mig-3g.mps-1of2"]
)
def test_a_name_that_means_nothing_is_refused(name: str) -> None:
    verdict, _ = judge(one({name: 1}), "mps", CUT)
    assert verdict.code == 422
