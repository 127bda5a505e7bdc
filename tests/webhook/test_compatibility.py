"""Requests in other systems' words: read where a profile says so, and otherwise left alone."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.apiserver.cel import evaluate
from sharing.api.choices import System
from tests.support.judging import H100S, container, judge, pod, profile, resources_of
from webhook.foreign import WORDS, vocabulary_of
from webhook.registration import configuration

GPU = "nvidia.com/gpu"
EIGHTH, QUARTER, HALF = (f"gpu.sharing/mps-1of{n}" for n in (8, 4, 2))


def moving(*systems: str, **spec: Any) -> Any:
    return profile(**{"mode": "mps", "compatibility": list(systems), **spec})


RESOURCES: list[tuple[str, dict[str, Any], str]] = [
    # HAMi: MiB, hundredths of memory, hundredths of compute, on each of N devices
    ("hami", {GPU: 1, "nvidia.com/gpumem": 3000}, EIGHTH),
    ("hami", {GPU: 1, "nvidia.com/gpumem": "3k"}, EIGHTH),
    ("hami", {GPU: 1, "nvidia.com/gpumem": "16Gi"}, QUARTER),
    ("hami", {"nvidia.com/gpumem": 20000}, QUARTER),
    ("hami", {GPU: 1, "nvidia.com/gpumem-percentage": 50}, HALF),
    ("hami", {GPU: 1, "nvidia.com/gpucores": 30}, HALF),
    ("hami", {GPU: 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 25}, QUARTER),
    ("hami", {GPU: 1, "nvidia.com/gpumem-percentage": 10, "nvidia.com/gpucores": 50}, HALF),
    ("hami", {GPU: 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 0}, EIGHTH),
    ("hami", {GPU: 1}, QUARTER),
    ("hami", {GPU: 2, "nvidia.com/gpumem": 9000}, QUARTER),
    # Volcano vGPU
    ("volcano", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 9000}, EIGHTH),
    ("volcano", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 50}, HALF),
    ("volcano", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": 20}, QUARTER),
    ("volcano", {"volcano.sh/vgpu-number": 1}, QUARTER),
    # Aliyun gpushare: GiB, or MiB as installed
    ("aliyun", {"aliyun.com/gpu-mem": 15}, QUARTER),
    ("aliyun-mib", {"aliyun.com/gpu-mem": 15}, EIGHTH),
    ("aliyun", {"aliyun.com/gpu-mem": 9, "aliyun.com/gpu-count": 1}, EIGHTH),
    # nos: whole GB in the name
    ("nos", {"nvidia.com/gpu-10gb": 1}, EIGHTH),
    ("nos", {"nvidia.com/gpu-20gb": 1}, QUARTER),
    ("nos", {"nvidia.com/gpu-10gb": 2}, QUARTER),
    # NVIDIA's device plugin with renameByDefault
    ("nvidia-shared", {"nvidia.com/gpu.shared": 1}, QUARTER),
    ("nvidia-shared", {"nvidia.com/gpu.shared": 2}, HALF),
]


@pytest.mark.parametrize(("system", "limits", "given"), RESOURCES)
def test_a_resource_of_another_system_becomes_the_smallest_share_that_has_it(
    system: str, limits: dict[str, Any], given: str
) -> None:
    both = {"cpu": "1", **limits}
    verdict, after = judge(pod(container(limits=both, requests=dict(both))), moving(system))
    resources = after["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "1", given: "1"}
    written = [name for name, amount in limits.items() if amount]
    assert all(f"{name}: {limits[name]}" in verdict.grants[0].request for name in written)


@pytest.mark.parametrize(("system", "limits", "given"), RESOURCES)
def test_without_leave_other_systems_words_are_left_alone(
    system: str, limits: dict[str, Any], given: str
) -> None:
    """Instaslice renamed nvidia.com/gpu.shared to a resource that nobody advertises."""
    named = {name: amount for name, amount in limits.items() if name != GPU}
    verdict, after = judge(pod(container(limits=named)), "mps")
    assert verdict.kind == "allow", (system, given)
    assert after == pod(container(limits=named))


def test_a_shared_mig_device_becomes_the_whole_instance() -> None:
    manifest = pod(container(limits={"nvidia.com/mig-1g.10gb.shared": 1}))
    _, after = judge(manifest, moving("nvidia-shared", mode="mig"))
    assert resources_of(after) == {"nvidia.com/mig-1g.10gb": "1"}
    broken = pod(container(limits={"nvidia.com/mig-9q.shared": 1}))
    assert judge(broken, moving("nvidia-shared", mode="mig"))[0].code == 422


KAI: list[tuple[dict[str, str], dict[str, dict[str, str]]]] = [
    ({"gpu-fraction": "0.5"}, {"a": {HALF: "1"}}),
    ({"gpu-memory": "9000"}, {"a": {EIGHTH: "1"}}),
    ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, {"a": {HALF: "1"}}),
    ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "b"}, {"b": {HALF: "1"}}),
    ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "i"}, {"i": {HALF: "1"}}),
    (
        {
            "nvidia.cdi.k8s.io/b.gpu-memory.request": "15Gi",
            "nvidia.cdi.k8s.io/b.gpu-memory.limit": "20Gi",
        },
        {"b": {QUARTER: "1"}},
    ),
]


@pytest.mark.parametrize(("annotations", "given"), KAI)
def test_annotations_of_kai_go_to_the_container_that_they_name(
    annotations: dict[str, str], given: dict[str, Any]
) -> None:
    manifest = pod(
        container("a"), container("b"), init=[container("i")], annotations=dict(annotations)
    )
    verdict, after = judge(manifest, moving("kai"))
    assert {grant.container: {grant.resource: "1"} for grant in verdict.grants} == given
    assert annotations.items() <= after["metadata"]["annotations"].items()


MALFORMED: list[tuple[str, dict[str, Any], dict[str, str], str]] = [
    ("hami", {GPU: 1, "nvidia.com/gpumem-percentage": 150}, {}, "more than 100 hundredths"),
    ("hami", {GPU: 1, "nvidia.com/gpucores": 101}, {}, "more than 100 hundredths"),
    ("hami", {GPU: 1, "nvidia.com/gpumem-percentage": "33.5"}, {}, "'33.5' is not whole"),
    ("hami", {GPU: 1, "nvidia.com/gpumem": -1}, {}, "-1 is negative"),
    ("hami", {GPU: 1, "nvidia.com/gpumem": "lots"}, {}, "does not follow the grammar"),
    ("aliyun", {GPU: 1, "aliyun.com/gpu-mem": 3}, {}, "stands beside aliyun.com/gpu-mem: 3"),
    ("nos", {"nvidia.com/gpu-5gb": 1, "nvidia.com/gpu-10gb": 1}, {}, "stands beside"),
    ("kai", {}, {"gpu-fraction": "1.5"}, "'1.5' is no fraction"),
    ("kai", {}, {"gpu-fraction": "0"}, "'0' is no fraction"),
    ("kai", {}, {"gpu-fraction": "0.0"}, "'0.0' is out of range"),
    ("kai", {}, {"gpu-memory": "2Gi"}, "'2Gi' is no count"),
    ("kai", {}, {"gpu-memory": "-5"}, "'-5' is no count"),
    ("kai", {}, {"gpu-fraction": "0.5", "gpu-memory": "2000"}, "stands beside gpu-fraction"),
    ("kai", {}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "is no count"),
    ("kai", {}, {"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}, "no container 'x'"),
    ("kai", {GPU: 1}, {"gpu-fraction": "0.5"}, "stands beside gpu-fraction: 0.5"),
    ("kai", {}, {"nvidia.cdi.k8s.io/x.gpu-memory.request": "1Gi"}, "no container 'x'"),
]


@pytest.mark.parametrize(("system", "limits", "annotations", "words"), MALFORMED)
def test_what_means_nothing_is_refused_by_field_and_never_ignored(
    system: str, limits: dict[str, Any], annotations: dict[str, str], words: str
) -> None:
    """HAMi PR#2789: an invalid percentage turned into "no GPU request"; 150 was a server error."""
    manifest = pod(container(limits=limits), annotations=annotations)
    verdict, _ = judge(manifest, moving(system))
    assert verdict.code == 422
    assert words in verdict.message
    assert "metadata.annotations[" in verdict.message or "container main: " in verdict.message


def test_zero_of_another_system_s_resource_asks_for_nothing_and_goes() -> None:
    """HAMi#2739: a resource that nobody advertises would keep the pod pending."""
    for limits in (
        {"nvidia.com/gpumem": 0},
        {"volcano.sh/vgpu-number": 0, "volcano.sh/vgpu-memory": 5},
    ):
        verdict, after = judge(pod(container(limits=limits)), moving("hami", "volcano"))
        assert verdict.grants == ()
        assert resources_of(after) == {}


def test_our_own_key_stands_over_another_system_s_words() -> None:
    manifest = pod(
        container(limits={GPU: 1, "nvidia.com/gpumem": 9000}),
        annotations={"gpu.sharing/fraction": "0.5"},
    )
    verdict, after = judge(manifest, moving("hami"))
    assert resources_of(after) == {HALF: "1"}
    assert any(
        "nvidia.com/gpumem: 9000 is not carried over: gpu.sharing/fraction: 0.5 says the" in warning
        for warning in verdict.warnings
    )


def test_the_mode_is_ours_to_ask_for() -> None:
    policy = moving("hami", modes=["mig", "mps"], mode=None)
    limits = {GPU: 1, "nvidia.com/gpumem-percentage": 20}
    _, after = judge(pod(container(limits=limits)), policy)
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}
    keys = {"gpu.sharing/mode": "mps"}
    _, after = judge(pod(container(limits=limits), annotations=keys), policy)
    assert resources_of(after) == {QUARTER: "1"}


LOST = [
    ("hami", {"nvidia.com/use-gputype": "A100"}, {}, "gpu.sharing/board"),
    ("hami", {"nvidia.com/vgpu-mode": "mig"}, {}, "gpu.sharing/mode"),
    ("hami", {"hami.io/gpu-scheduler-policy": "binpack"}, {}, "a layout decides"),
    ("volcano", {"volcano.sh/vgpu-mode": "mig"}, {}, "gpu.sharing/mode"),
    ("kai", {"mps": "true"}, {}, "gpu.sharing/mode"),
    ("kai", {}, {"kai.scheduler/queue": "team"}, "ResourceQuota"),
    ("kai", {"nvidia.cdi.k8s.io/main.gpu-memory.limit": "9Gi"}, {}, "a share has one size"),
]


@pytest.mark.parametrize(("system", "annotations", "labels", "words"), LOST)
def test_what_is_not_carried_over_is_said(
    system: str, annotations: dict[str, str], labels: dict[str, str], words: str
) -> None:
    manifest = pod(container(limits={GPU: 1}), annotations=annotations)
    manifest["metadata"]["labels"] = labels
    verdict, _ = judge(manifest, moving(system))
    key = next(iter({**annotations, **labels}))
    (warning,) = [one for one in verdict.warnings if one.startswith(f"{key} is not carried over")]
    assert words in warning


def test_a_priority_and_several_devices_are_not_carried_over() -> None:
    limits = {GPU: 2, "nvidia.com/gpumem": 9000, "nvidia.com/priority": 1}
    verdict, after = judge(pod(container(limits=limits)), moving("hami"))
    assert resources_of(after) == {QUARTER: "1"}
    assert any("nvidia.com/priority is not carried over" in warning for warning in verdict.warnings)
    assert any("a count of 2 is not carried over" in warning for warning in verdict.warnings)
    refused, _ = judge(pod(container(limits={GPU: 3, "nvidia.com/gpumem": 9000})), moving("hami"))
    assert "none 3 times as large" in refused.message


@pytest.mark.parametrize(
    ("system", "scheduler"),
    [(system.value, name) for system in System for name in WORDS[system].schedulers],
)
def test_the_other_system_s_scheduler_is_no_longer_needed(system: str, scheduler: str) -> None:
    manifest = pod(container(limits={GPU: 1}), schedulerName=scheduler)
    verdict, after = judge(manifest, moving(system))
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert any(f"{scheduler} becomes default-scheduler" in one for one in verdict.warnings)
    kept, after = judge(manifest, moving(system, schedulerName=scheduler))
    assert after["spec"]["schedulerName"] == scheduler
    assert not any("becomes" in warning for warning in kept.warnings)
    _, after = judge(manifest, "mps")
    assert after["spec"]["schedulerName"] == scheduler


def test_init_containers_and_sidecars_are_read_alike() -> None:
    sidecar = container("s", limits={"nvidia.com/gpumem": 9000}, restartPolicy="Always")
    manifest = pod(
        container("a", limits={"nvidia.com/gpumem-percentage": 25}),
        init=[sidecar, container("i", limits={GPU: 1, "nvidia.com/gpumem": 30000})],
    )
    _, after = judge(manifest, moving("hami"))
    assert resources_of(after, "a") == {QUARTER: "1"}
    assert resources_of(after, "s") == {EIGHTH: "1"}
    assert resources_of(after, "i") == {HALF: "1"}


SENT = configuration({"url": "https://x"})["webhooks"][0]["matchConditions"][1]["expression"]
ONES = [pod(container(limits=limits)) for _, limits, _ in RESOURCES]
ONES += [pod(container(), annotations=annotations) for annotations, _ in KAI]


@pytest.mark.parametrize("manifest", ONES)
def test_whatever_is_read_is_sent_to_us(manifest: dict[str, Any]) -> None:
    assert evaluate(SENT, {"object": manifest}) is True


def test_a_pod_of_no_system_is_not_sent() -> None:
    for limits in ({"aliyun.com/eni": 1}, {"volcano.sh/x": 1}, {"cpu": 1}):
        manifest = pod(container(limits=limits), annotations={"gpu": "1", "mps": "true"})
        assert evaluate(SENT, {"object": manifest}) is False


def test_every_system_has_its_words() -> None:
    assert set(WORDS) == set(System)
    everything = vocabulary_of(tuple(System))
    assert everything.reads("nvidia.com/gpu-10gb")
    assert not any(map(everything.reads, (GPU, "cpu", "nvidia.com/gpu-0gb", "nvidia.com/gpux")))


def test_workloads_are_told_what_their_pods_will_become() -> None:
    verdict, _ = judge(
        pod(container(limits={"aliyun.com/gpu-mem": 15})), moving("aliyun", enforcement="warn")
    )
    assert "would be: main: aliyun.com/gpu-mem: 15 -> gpu.sharing/mps-1of4" in verdict.warnings[0]
    assert H100S.nodes
