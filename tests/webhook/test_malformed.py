"""Malformed requests: 422, and a sentence that names pod, container, field, value and a way out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.judging import container, judge, pod

GPU = "nvidia.com/gpu"
LIMITS: list[tuple[dict[str, Any], str]] = [
    ({GPU: "-1"}, "'-1' is negative"),
    ({GPU: "abc"}, "'abc' does not follow the grammar"),
    ({GPU: "1.5"}, "'1.5' is not whole"),
    ({GPU: "1500m"}, "'1500m' is not whole"),
    ({GPU: ""}, "'' does not follow the grammar"),
    ({GPU: True}, "True is no quantity"),
    ({GPU: None}, "None is no quantity"),
    ({GPU: [1]}, "[1] is no quantity"),
    ({GPU: "1e30"}, "is out of range"),
    ({GPU: "9" * 80}, "is no quantity"),
    ({GPU: 2**70}, "is out of range"),
    ({GPU: float("inf")}, "does not follow the grammar"),
    ({"nvidia.com/mig-1g.10gb": "500m"}, "'500m' is not whole"),
    ({"nvidia.com/mig-9q": "1"}, "does not follow the grammar"),
    ({"gpu.sharing/mps-1of0": "1"}, "names no share class"),
    ({"gpu.sharing/mps-1of99": "1"}, "out of range"),
    ({"gpu.sharing/gpu": "1"}, "names no share class"),
    ({"UPPER.gpu.sharing/mps-1of4": "1"}, "is not a pool's name"),
    ({GPU: 1, "gpu.sharing/mps-1of4": 1, "gpu.sharing/mps-1of2": 1}, "stands beside"),
]


@pytest.mark.parametrize(("limits", "wrong"), LIMITS, ids=[str(case[0])[:40] for case in LIMITS])
def test_a_malformed_amount_or_name_is_refused(limits: dict[str, Any], wrong: str) -> None:
    """HAMi PR#2789: invalid must never turn into "asks for no GPU"."""
    verdict, _ = judge(pod(container(limits=limits)), "mps")
    assert verdict.code == 422, verdict.message
    assert verdict.reason == "Invalid"
    assert verdict.message.startswith("pod mps/web: container main: spec.containers[0].resources")
    assert wrong in verdict.message
    assert "for example: " in verdict.message


KEYS = [
    ("gpu.sharing/fraction", "lots", "'lots' is no fraction"),
    ("gpu.sharing/fraction", "0", "'0' is out of range"),
    ("gpu.sharing/fraction", "1.01", "'1.01' is out of range"),
    ("gpu.sharing/fraction", "150%", "'150%' is out of range"),
    ("gpu.sharing/fraction", "-0.5", "'-0.5' is no fraction"),
    ("gpu.sharing/fraction", "1/0", "divides by zero"),
    ("gpu.sharing/fraction", " 0.5", "is no fraction"),
    ("gpu.sharing/fraction", "0.5\n", "is no fraction"),
    ("gpu.sharing/fraction", "\u0660.\u0665", "is no fraction"),
    ("gpu.sharing/memory", "0", "is no amount of memory"),
    ("gpu.sharing/memory", "-1Gi", "is no amount of memory"),
    ("gpu.sharing/memory", "10 Gi", "does not follow the grammar"),
    ("gpu.sharing/memory", "10GB", "does not follow the grammar"),
    ("gpu.sharing/mode", "mts", "is no mode"),
    ("gpu.sharing/mode", "MPS", "is no mode"),
    ("gpu.sharing/mig-profile", "10gb", "does not follow the grammar"),
    ("gpu.sharing/mig-profile", "1c.3g.40gb", "splits its instance"),
    ("gpu.sharing/fracton", "0.5", "did you mean gpu.sharing/fraction?"),
    ("gpu.sharing/profile", "other", "put it on the namespace"),
    ("gpu.sharing/", "0.5", "is not known"),
    ("other.gpu.sharing/fraction", "0.5", "the pod has no container 'other'"),
    ("main.gpu.sharing/size", "0.5", "the key 'size' is not known"),
]


@pytest.mark.parametrize(("key", "value", "wrong"), KEYS)
def test_a_malformed_key_is_refused(key: str, value: str, wrong: str) -> None:
    verdict, _ = judge(pod(container(limits={GPU: 1}), annotations={key: value}), "mps")
    assert verdict.code == 422
    assert verdict.message.startswith(f"pod mps/web: metadata.annotations[{key}]: ")
    assert wrong in verdict.message
    assert repr(value) in verdict.message
    assert "for example: " in verdict.message


@pytest.mark.parametrize("value", [0.25, 1, True, None, {"a": 1}])
def test_an_annotation_that_is_no_text_is_refused_and_told_to_be_quoted(value: Any) -> None:
    manifest = pod(container(limits={GPU: 1}))
    manifest["metadata"]["annotations"] = {"gpu.sharing/fraction": value}
    verdict, _ = judge(manifest, "mps")
    assert verdict.code == 422
    assert "put it in quotes" in verdict.message


def test_two_ways_of_saying_a_size_are_refused() -> None:
    keys = {"gpu.sharing/fraction": "0.5", "gpu.sharing/memory": "10Gi"}
    verdict, _ = judge(pod(container(limits={GPU: 1}), annotations=keys), "mps")
    assert verdict.code == 422
    assert "gpu.sharing/memory: 10Gi stands beside gpu.sharing/fraction: 0.5" in verdict.message


def test_a_mode_that_contradicts_the_mig_profile_is_refused() -> None:
    keys = {"gpu.sharing/mig-profile": "1g.10gb", "gpu.sharing/mode": "mps"}
    verdict, _ = judge(pod(container(limits={GPU: 1}), annotations=keys), "mig")
    assert verdict.code == 422
    assert "contradicts gpu.sharing/mig-profile: 1g.10gb" in verdict.message


def test_limits_and_requests_that_differ_are_refused_by_field() -> None:
    """kubernetes#57170, kubernetes#110536."""
    verdict, _ = judge(pod(container(limits={GPU: 1}, requests={GPU: 2})), "mps")
    assert verdict.code == 422
    assert "spec.containers[0].resources.requests[nvidia.com/gpu]" in verdict.message
    assert "2 differs from limits, where it is 1" in verdict.message


def test_a_share_beside_another_request_is_refused_unless_they_mean_the_same() -> None:
    both = {"gpu.sharing/mps-1of4": 1, GPU: "250m"}
    verdict, after = judge(pod(container(limits=both)), "mps")
    assert verdict.allowed
    assert after["spec"]["containers"][0]["resources"]["limits"] == {"gpu.sharing/mps-1of4": 1}
    verdict, _ = judge(pod(container(limits={**both, GPU: "500m"})), "mps")
    assert verdict.code == 422
    assert "would become gpu.sharing/mps-1of2, and gpu.sharing/mps-1of4 stands beside it" in (
        verdict.message
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "annotations"), "{}"),
        (("spec", "nodeSelector"), ["a"]),
        (("spec", "affinity"), "none"),
        (("spec", "affinity", "nodeAffinity"), 7),
        (("spec", "tolerations"), {}),
        (("spec", "volumes"), "x"),
        (("spec", "containers", 0, "env"), {"A": "b"}),
        (("spec", "containers", 0, "securityContext"), []),
    ],
)
def test_a_pod_of_the_wrong_shape_is_refused_and_never_repaired(
    path: tuple[Any, ...], value: Any
) -> None:
    manifest = pod(container(limits={GPU: 1}), affinity={})
    holder: Any = manifest
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    verdict, _ = judge(manifest, "mps")
    assert verdict.code == 422
    assert str(path[-1]) in verdict.message


@pytest.mark.parametrize("names", [("main", "main"), ("", "other")])
def test_names_that_do_not_tell_containers_apart_are_refused(names: tuple[str, str]) -> None:
    containers = [container(name, limits={GPU: 1}) for name in names]
    verdict, _ = judge(pod(*containers), "mps")
    assert verdict.code == 422
    assert "name" in verdict.message


def test_hostile_text_is_shown_escaped_and_cut() -> None:
    keys = {"gpu.sharing/fraction": "\x1b[31m\n" + "9" * 5000}
    verdict, _ = judge(pod(container(limits={GPU: 1}), annotations=keys), "mps")
    assert verdict.code == 422
    assert "\x1b" not in verdict.message
    assert "\n" not in verdict.message
    assert len(verdict.message) < 600


def test_a_generated_name_is_told_by_its_stem() -> None:
    """kubernetes#76680, E2: no name at CREATE."""
    manifest = pod(container(limits={GPU: "-1"}))
    manifest["metadata"] = {"generateName": "web-7d9f-"}
    verdict, _ = judge(manifest, "mps")
    assert verdict.message.startswith("pod mps/web-7d9f-*: ")
