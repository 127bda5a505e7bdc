"""Keys that nobody reads and that were meant for us: told, never touched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.judging import (
    H100S,
    container,
    judge,
    pod,
    policies,
    profile,
    resources_of,
)
from webhook.admission import admit_workload

GPU = "nvidia.com/gpu"


def warned(manifest: dict[str, Any], governed_by: Any = "mps") -> list[str]:
    """What is said of near misses; the pod keeps them as they are."""
    verdict, after = judge(manifest, governed_by)
    assert verdict.allowed
    for holder in ("annotations", "labels"):
        own = manifest["metadata"].get(holder, {})
        assert own.items() <= after["metadata"].get(holder, {}).items()
    marks = ("is not read", "less than 1Mi")
    return [warning for warning in verdict.warnings if any(mark in warning for mark in marks)]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("GPU.sharing/fraction", "gpu.sharing/fraction"),
        ("Gpu.Sharing/Fraction", "gpu.sharing/fraction"),
        ("gpu-sharing/fraction", "gpu.sharing/fraction"),
        ("gpusharing/memory", "gpu.sharing/memory"),
        ("gpu.share/mode", "gpu.sharing/mode"),
        ("gpus.sharing/moed", "gpu.sharing/mode"),
        ("gpu.shraing/fraction", "gpu.sharing/fraction"),
        ("gup.sharing/mig-profile", "gpu.sharing/mig-profile"),
        ("gpu-sharing/mig_profile", "gpu.sharing/mig-profile"),
        ("main.gpu-sharing/fraction", "main.gpu.sharing/fraction"),
        ("main.gpu.shareing/fraction", "main.gpu.sharing/fraction"),
        ("main.gpu.shraing/memory", "main.gpu.sharing/memory"),
    ],
)
def test_a_key_that_misses_our_prefix_by_a_little_is_told(key: str, meant: str) -> None:
    manifest = pod(container(limits={GPU: "1"}), annotations={key: "0.25"})
    assert warned(manifest) == [f"{key} is not read: did you mean {meant}?"]
    assert resources_of(judge(manifest, "mps")[1]) == {"gpu.sharing/mps-1of4": "1"}
    alone = pod(container(), annotations={key: "0.25"})
    assert warned(alone) == [f"{key} is not read: did you mean {meant}?"]


@pytest.mark.parametrize(
    "key",
    [
        "notgpu.sharing/x",
        "notgpu.sharing/fraction",
        "gpu.sharing.example.com/fraction",
        "gpu-sharing.example.com/fraction",
        "example.com/fraction",
        "sharing.example.com/mode",
        "gpu-sharing/restarted-at",
        "other.gpu-sharing/fraction",
        "a.gpu-sharing/fraction",
        "status.gpu-sharing/fraction",
        "fraction",
        "/fraction",
        "gpu-sharing/",
        "gpu-sharing/" + "fraction" * 60,
    ],
)
def test_what_is_somebody_else_s_is_not_spoken_of(key: str) -> None:
    verdict, _ = judge(pod(container(limits={GPU: "1"}), annotations={key: "1"}), "mps")
    assert len(verdict.warnings) == 1
    assert judge(pod(container(), annotations={key: "1"}), "mps")[0].warnings == ()


def test_a_key_under_our_own_prefix_is_refused_and_not_only_told() -> None:
    for key in ("gpu.sharing/moed", "gpu.sharing/Mode", "main.gpu.sharing/modes"):
        verdict, _ = judge(pod(container(limits={GPU: "1"}), annotations={key: "mps"}), "mps")
        assert verdict.code == 422
        assert "did you mean gpu.sharing/mode?" in verdict.message


@pytest.mark.parametrize(
    ("resource", "instead"),
    [
        ("nvidia.com/GPU", "did you mean nvidia.com/gpu?"),
        ("nvidia.com/Gpu", "did you mean nvidia.com/gpu?"),
        ("nvidia.com/gpus", "did you mean nvidia.com/gpu?"),
        ("nvidia/gpu", "did you mean nvidia.com/gpu?"),
        ("nvidia.com/MIG-1g.10gb", "did you mean nvidia.com/mig-1g.10gb?"),
        ("nvidia.com/mig_3g.40gb", "did you mean nvidia.com/mig-3g.40gb?"),
        ("gpu-sharing/mps-1of4", "did you mean gpu.sharing/mps-1of4?"),
        ("GPU.sharing/mps-1of4", "did you mean gpu.sharing/mps-1of4?"),
        ("team-a.gpu.share/mps-1of4", "did you mean team-a.gpu.sharing/mps-1of4?"),
        ("nvidia.com/gpu.shared", "add nvidia-shared to the profile's compatibility"),
        ("nvidia.com/gpumem", "add hami to the profile's compatibility"),
        ("nvidia.com/gpu-10gb", "add nos to the profile's compatibility"),
        ("aliyun.com/gpu-mem", "add aliyun or aliyun-mib to the profile's compatibility"),
        ("volcano.sh/vgpu-number", "add volcano to the profile's compatibility"),
    ],
)
def test_a_resource_that_nobody_reads_is_told(resource: str, instead: str) -> None:
    """HAMi#2739: a resource that nobody advertises keeps the pod pending."""
    manifest = pod(container(), container("b", limits={resource: "1"}, requests={resource: "1"}))
    verdict, after = judge(manifest, "mps")
    assert verdict.warnings == (f"{resource} is not read: {instead}",)
    assert after == manifest


@pytest.mark.parametrize(
    "resource", ["amd.com/gpu", "nvidia.com/pgpu", "nvidia.com/GA102GL_A10", "nvidia.com/vgpu", "x"]
)
def test_other_resources_are_not_spoken_of(resource: str) -> None:
    assert judge(pod(container(limits={resource: "1"})), "mps")[0].warnings == ()


def test_what_a_profile_reads_is_no_near_miss() -> None:
    policy = profile(mode="mps", compatibility=["hami", "kai", "aliyun"])
    asks = pod(container(limits={GPU: "1", "nvidia.com/gpumem": "3000"}))
    assert warned(asks, policy) == []
    assert warned(pod(container(), annotations={"gpu-fraction": "0.5"}), policy) == []
    assert warned(pod(container(), annotations={"gpu-fraction": "0.5"})) == [
        "gpu-fraction is not read: add kai to the profile's compatibility"
    ]


def test_a_label_in_place_of_an_annotation_is_told() -> None:
    manifest = pod(container(limits={GPU: "1"}))
    manifest["metadata"]["labels"] = {
        "gpu.sharing/fraction": "0.5", "main.gpu.sharing/mode": "mps", "app.gpu.sharing": "x",
        "notgpu.sharing/mode": "mps",
    }  # fmt: skip
    assert warned(manifest) == [
        "label gpu.sharing/fraction is not read: write it as an annotation",
        "label main.gpu.sharing/mode is not read: write it as an annotation",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10240", "is 10240 bytes, less than 1Mi: did you mean 10240Mi?"),
        ("8", "is 8 bytes, less than 1Mi: did you mean 8Mi?"),
        ("10k", "is 10000 bytes, less than 1Mi: did you mean 10Gi?"),
        ("500m", "is 1 bytes, less than 1Mi: did you mean 10Gi?"),
    ],
)
def test_memory_in_bytes_that_was_meant_in_mib_is_told(text: str, words: str) -> None:
    """HAMi#2718: elsewhere a bare number counts MiB."""
    for key in ("gpu.sharing/memory", "main.gpu.sharing/memory"):
        manifest = pod(container(limits={GPU: "1"}), annotations={key: text})
        assert warned(manifest) == [f"{key}: {text} {words}"]
    assert warned(pod(container(limits={GPU: 1}), annotations={"gpu.sharing/memory": "1Mi"})) == []


def test_a_thousand_keys_are_no_slip_of_a_person() -> None:
    annotations = {f"gpu-sharing/fraction{number}": "1" for number in range(1000)}
    assert warned(pod(container(limits={GPU: "1"}), annotations=annotations)) == []


def test_a_key_on_the_workload_instead_of_its_pods_is_told() -> None:
    """The pods get the default size; nobody would notice."""
    template = {"spec": pod(container(limits={GPU: "1"}))["spec"]}
    manifest = {
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "annotations": {"gpu.sharing/fraction": "0.5", "status.gpu.sharing/x": "", "a": "b"},
        },
        "spec": {"template": template},
    }
    for enforcement in ("enforce", "warn"):
        known = policies(profile(mode="mps", enforcement=enforcement))
        verdict = admit_workload(manifest, "policy", known, H100S)
        assert verdict.warnings[0] == (
            "gpu.sharing/fraction is not read here: write it below the pod template's metadata"
        )
        assert verdict.grants[0].resource == "gpu.sharing/mps-1of4"
    both = {"metadata": {"annotations": {"gpu.sharing/fraction": "0.5"}}, **template}
    right = {**manifest, "spec": {"template": both}}
    verdict = admit_workload(right, "mps", policies(), H100S)
    assert not any("is not read" in warning for warning in verdict.warnings)


def test_no_container_can_have_what_only_we_write() -> None:
    """A key of a container that is called status would be one of ours."""
    asks = pod(container("status"), annotations={"status.gpu-sharing/fraction": "1"})
    assert judge(asks, "mps")[0].warnings == ()


def test_a_label_of_a_domain_that_only_ends_like_ours_is_not_spoken_of() -> None:
    asks = pod(container(limits={GPU: "1"}))
    asks["metadata"]["labels"] = {"anotgpu.sharing/fraction": "1"}
    assert len(judge(asks, "mps")[0].warnings) == 1


@pytest.mark.parametrize("memory", ["1Mi", "2Mi", "10Gi"])
def test_an_amount_from_a_mebibyte_on_is_meant(memory: str) -> None:
    asks = pod(container(limits={GPU: "1"}), annotations={"gpu.sharing/memory": memory})
    assert not any("did you mean" in one for one in judge(asks, "mps")[0].warnings)
