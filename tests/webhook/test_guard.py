"""What a pod may not have beside a share, and what its containers may not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.judging import H100S, container, judge, pod, policies, profile
from webhook.admission import admit
from webhook.review import Review

LIMITS = {"nvidia.com/gpu": 1}


def beside(**fields: Any) -> dict[str, Any]:
    return pod(container(limits=LIMITS), container("other", **fields))


CONTAINERS = [
    ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
    ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "'SYS_ADMIN'"),
    ({"securityContext": {"capabilities": {"add": ["CAP_SYS_MODULE"]}}}, "'CAP_SYS_MODULE'"),
    ({"securityContext": {"capabilities": {"add": ["ALL"]}}}, "'ALL'"),
    ({"securityContext": {"capabilities": {"add": ["sys_admin"]}}}, "'sys_admin'"),
    ({"securityContext": {"capabilities": {"add": ["cap_Sys_RawIO"]}}}, "'cap_Sys_RawIO'"),
    ({"securityContext": {"capabilities": {"add": ["DAC_READ_SEARCH"]}}}, "'DAC_READ_SEARCH'"),
]
PODS = [
    ({"hostPID": True}, "spec.hostPID"),
    ({"hostIPC": True}, "spec.hostIPC"),
    *[
        ({"volumes": [{"name": "v", "hostPath": {"path": path}}]}, f"'{path}' opens all GPUs")
        for path in (
            "/",
            "/dev",
            "/dev/nvidia0",
            "/proc/1",
            "/run/containerd",
            "/var",
            "/var/run",
            "//dev//",
            "/dev/shm/../nvidia0",
            "/var/lib/kubelet/device-plugins",
            "/sys/fs/cgroup",
            "/sys",
            "/etc/nvidia-container-runtime",
            "/var/lib/gpu-sharing/gpus",
            "/etc/kubernetes/manifests",
            "/var/lib/docker",
        )
    ],
    (
        {"volumes": [{"name": "v", "hostPath": {"path": "/x", "type": "CharDevice"}}]},
        "'/x' opens all GPUs",
    ),
]


@pytest.mark.parametrize(("fields", "words"), CONTAINERS)
def test_a_privileged_container_beside_a_share_is_refused_by_name(
    fields: dict[str, Any], words: str
) -> None:
    """HAMi#2138: logged as denied, admitted."""
    for manifest in (
        beside(**fields),
        pod(container(limits=LIMITS), init=[container("other", **fields)]),
    ):
        verdict, _ = judge(manifest, "mps")
        assert verdict.code == 403
        assert "container other" in verdict.message
        assert words in verdict.message
        assert judge(manifest, profile(mode="mps", privileged="allow"))[0].allowed


@pytest.mark.parametrize(("fields", "words"), PODS)
def test_the_host_s_devices_beside_a_share_are_refused(fields: dict[str, Any], words: str) -> None:
    verdict, _ = judge(pod(container(limits=LIMITS), **fields), "mps")
    assert verdict.code == 403
    assert words in verdict.message
    assert judge(pod(container(), **fields), "mps")[0].allowed, "without a share it is not ours"


def test_a_host_folder_behind_other_volumes_is_found() -> None:
    odd: list[Any] = [{"name": "e", "emptyDir": {}}, {"hostPath": {}}, {"hostPath": 7}, None, "x"]
    volumes = [*odd, {"name": "v", "hostPath": {"path": "/dev"}}]
    verdict, _ = judge(pod(container(limits=LIMITS), volumes=volumes), "mps")
    assert "spec.volumes[5].hostPath.path" in verdict.message
    assert judge(pod(container(limits=LIMITS), volumes=odd), "mps")[0].allowed


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/infiniband", "/data", "/variety", "/developer"])
def test_other_host_folders_are_not_ours_to_refuse(path: str) -> None:
    volumes = [{"name": "v", "hostPath": {"path": path}}, {"name": "e", "emptyDir": {}}]
    assert judge(pod(container(limits=LIMITS), volumes=volumes), "mps")[0].allowed


def test_harmless_privileges_pass() -> None:
    """And kubectl debug --copy-to: a copy with a container that may trace its fellows."""
    security = {
        "capabilities": {"add": ["IPC_LOCK", "NET_ADMIN", "SYS_PTRACE"]},
        "privileged": False,
    }
    assert judge(pod(container(limits=LIMITS, securityContext=security)), "mps")[0].allowed


def test_a_node_name_bypasses_the_scheduler_and_is_refused() -> None:
    """HAMi#488, F5."""
    verdict, _ = judge(pod(container(limits=LIMITS), nodeName="n1"), "mps")
    assert verdict.code == 403
    assert "kubernetes.io/hostname" in verdict.message
    assert judge(pod(container(), nodeName="n1"), "mps")[0].allowed


def test_pods_of_a_daemon_set_pass() -> None:
    """HAMi#960: they are bound by affinity, not by nodeName."""
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert judge(pod(container(limits=LIMITS), affinity=affinity), "mps")[0].allowed


@pytest.mark.parametrize("hidden", [False, True])
def test_devices_past_the_device_plugin_are_refused(hidden: bool) -> None:
    limits: dict[str, Any] = {} if hidden else {"limits": LIMITS}
    policy = profile(mode="mps", hideGPUs=hidden, privileged="allow")
    mounts = [{"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"}]
    for manifest in (
        pod(container(**limits), annotations={"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}),
        pod(container(**limits), container("other", volumeMounts=mounts)),
    ):
        verdict, _ = judge(manifest, policy)
        assert verdict.code == 403
        assert "past the device plugin" in verdict.message


@pytest.mark.parametrize(
    "key",
    [
        "cdi.k8s.io/gpu",
        "nvidia.cdi.k8s.io/container.main",
        "nvidia.cdi.k8s.io/main.gpu-memory",
        "nvidia.cdi.k8s.io/main.gpu-memory.request",
        "cdi-devices.noderesource.dev/container.main",
        "cdi-devices.nri.io/pod",
        "devices.noderesource.dev",
        "devices.nri.io/container.main",
        "devices.gke.io/container.main",
        "mounts.nri.io/container.main",
        "io.kubernetes.cri-o.Devices",
    ],
)
def test_no_annotation_that_makes_a_runtime_add_devices_stands_beside_a_share(key: str) -> None:
    """NVIDIA's NRI plugin gives all GPUs for one annotation, whatever its configuration."""
    annotations = {key: "management.nvidia.com/gpu=all"}
    for policy in (profile(mode="mps", privileged="allow"), profile(mode="mps", hideGPUs=True)):
        limits: dict[str, Any] = {} if policy.spec.hide_gpus else {"limits": LIMITS}
        verdict, _ = judge(pod(container(**limits), annotations=annotations), policy)
        assert verdict.code == 403
        assert f"metadata.annotations[{key}]" in verdict.message


def test_an_amount_excuses_no_key_but_that_of_an_amount() -> None:
    annotations = {"nvidia.cdi.k8s.io/container.main": "10Gi"}
    verdict, _ = judge(pod(container(limits=LIMITS), annotations=annotations), "mps")
    assert verdict.code == 403


@pytest.mark.parametrize(
    "annotations",
    [
        {"nvidia.cdi.k8s.io/main.gpu-memory.request": "10Gi"},
        {"nvidia.cdi.k8s.io/main.gpu-memory.limit": "10Gi"},
        {"example.com/cdi.k8s.io": "nvidia.com/gpu=all"},
        {"devices.example.com/container.main": "x"},
    ],
)
def test_annotations_that_only_look_so_pass(annotations: dict[str, str]) -> None:
    """KAI#1505: KAI Scheduler asks for memory below NVIDIA's domain."""
    policy = profile(mode="mps", privileged="allow")
    assert judge(pod(container(limits=LIMITS), annotations=annotations), policy)[0].allowed


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/nvidia-container-devices",
        "/run/nvidia-container-devices/all",
        "//var/run/nvidia-container-devices/0",
        "///run//nvidia-container-devices/0",
        "var/run/nvidia-container-devices/0",
        "/var/run/x/../nvidia-container-devices/cdi/nvidia.com/gpu/all",
        "./run/./nvidia-container-devices/all/",
    ],
)
def test_a_driver_mount_has_many_spellings(path: str) -> None:
    """The kubelet makes relative paths absolute, and the kernel counts slashes once."""
    mounts = [{"name": "v", "mountPath": path}]
    manifest = pod(container(limits=LIMITS), init=[container("other", volumeMounts=mounts)])
    verdict, _ = judge(manifest, profile(mode="mps", privileged="allow"))
    assert verdict.code == 403
    assert "spec.initContainers[0].volumeMounts[0].mountPath" in verdict.message


@pytest.mark.parametrize("path", ["/data/nvidia-container-devices", "/var/run/nvidia-container"])
def test_other_mounts_pass(path: str) -> None:
    mounts = [{"name": "v", "mountPath": path}, {"name": "w"}]
    assert judge(pod(container(limits=LIMITS, volumeMounts=mounts)), "mps")[0].allowed


def environment(manifest: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = manifest["spec"]["containers"][index].get("env", [])
    return listed


ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
MINE = {"name": "MINE", "value": "1"}


def test_a_container_with_a_share_does_not_choose_its_devices() -> None:
    """k8s-device-plugin#61: the kubelet puts the pod's own variables last, so they win."""
    source = {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}
    listed = [
        ALL,
        MINE,
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source},
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=80G"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0"},
    ]
    verdict, after = judge(pod(container(limits=LIMITS, env=listed)), "mps")
    assert environment(after) == [MINE, listed[4]]
    assert any("NVIDIA_VISIBLE_DEVICES removed" in warning for warning in verdict.warnings)


def test_a_container_without_a_share_beside_one_with_cannot_ask_for_all() -> None:
    """nvidia-container-toolkit#1165, F8: replaced in place, no duplicates."""
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    listed = [MINE, {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source}, MINE, ALL]
    manifest = pod(container(limits=LIMITS), container("other", env=listed))
    _, after = judge(manifest, "mps")
    assert environment(after, 1) == [MINE, VOID, MINE]


def test_what_envfrom_may_bring_is_outspoken_beside_a_share() -> None:
    """KAI#1671: an explicit value beats what envFrom brings; nobody can see what that is."""
    source = [{"configMapRef": {"name": "x"}}]
    manifest = pod(container(limits=LIMITS), container("other", envFrom=source), container("c"))
    _, after = judge(manifest, "mps")
    assert environment(after, 1) == [VOID]
    assert environment(after, 2) == []
    assert judge(pod(container("other", envFrom=source)), "mps")[0].kind == "allow"


def test_an_environment_that_speaks_as_old_cuda_images_do_sees_no_gpu() -> None:
    """NVIDIA's runtime: CUDA_VERSION without NVIDIA_VISIBLE_DEVICES means all GPUs."""
    legacy = [{"name": "CUDA_VERSION", "value": "11.0"}]
    modern = [{"name": "APP", "value": "1"}, MINE]
    manifest = pod(
        container(limits=LIMITS, env=legacy),
        container("other", env=legacy),
        container("modern", env=modern),
    )
    verdict, after = judge(manifest, "mps")
    assert environment(after, 0) == legacy, "a share brings its own variable"
    assert environment(after, 1) == [*legacy, VOID]
    assert environment(after, 2) == modern
    assert not any("modern: " in one for one in verdict.warnings)
    assert any("other: NVIDIA_VISIBLE_DEVICES set to void" in one for one in verdict.warnings)


def test_hidden_gpus_are_hidden_in_every_container_without_a_share() -> None:
    """k8s-device-plugin#195, gpu-operator#421, KAI#1671, F7."""
    policy = profile(mode="mps", hideGPUs=True)
    manifest = pod(
        container(limits={"nvidia.com/gpu": "0"}),
        container("b", env=[MINE]),
        container("c", env=[ALL, MINE, ALL]),
        container("d", env=[VOID]),
        container("f", env=[ALL, MINE, VOID]),
        container("g", env=[VOID, MINE, ALL]),
        container("h", env=[ALL, ALL, MINE, ALL, ALL]),
        container("i", env=[{**VOID, "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, MINE]),
        init=[container("e")],
    )
    verdict, after = judge(manifest, policy)
    assert environment(after, 0) == [VOID]
    assert environment(after, 1) == [MINE, VOID]
    assert environment(after, 2) == [VOID, MINE]
    assert environment(after, 3) == [VOID]
    assert all(environment(after, index) == [VOID, MINE] for index in (4, 5, 6, 7))
    assert after["spec"]["initContainers"][0]["env"] == [VOID]
    assert not any(
        operation.path.startswith("/spec/containers/3") for operation in verdict.operations
    )


def test_hiding_leaves_containers_with_a_share_alone() -> None:
    policy = profile(mode="mps", hideGPUs=True)
    _, after = judge(pod(container(limits=LIMITS), container("b")), policy)
    assert environment(after, 0) == []
    assert environment(after, 1) == [VOID]


def test_fifteen_hundred_variables_are_patched_by_few_operations() -> None:
    """istio#34799, B7: 15 s for one pod."""
    listed = [{"name": f"V{number}", "value": "x"} for number in range(1500)]
    verdict, _ = judge(pod(container(limits=LIMITS, env=[*listed, ALL])), "mps")
    assert len(verdict.operations) <= 6


def debug(new: dict[str, Any], old: list[dict[str, Any]] | None = None) -> Review:
    shared = pod(container(limits={"gpu.sharing/mps-1of4": "1"}))
    shared["metadata"]["annotations"] = {"status.gpu.sharing/grants": "[]"}
    before = {**shared, "spec": {**shared["spec"], "ephemeralContainers": old or []}}
    after = {**shared, "spec": {**shared["spec"], "ephemeralContainers": [*(old or []), new]}}
    return Review(
        uid="u",
        operation="UPDATE",
        kind="Pod",
        resource="pods",
        subresource="ephemeralcontainers",
        namespace="mps",
        object=after,
        old_object=before,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"env": [ALL]},
        {"env": [MINE, {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}]},
        {"env": [{"name": "CUDA_VERSION", "value": "11.0"}]},
        {"envFrom": [{"configMapRef": {"name": "x"}}]},
        {"volumeMounts": [{"name": "v", "mountPath": "//run/nvidia-container-devices/all"}]},
        {"securityContext": {"privileged": True}},
    ],
)
def test_a_debug_container_cannot_open_gpus(fields: dict[str, Any]) -> None:
    """kyverno#2821, kubernetes#92557."""
    verdict = admit(debug({"name": "dbg", "image": "x", **fields}), policies(), H100S)
    assert verdict.code == 403
    assert "debug container dbg: spec.ephemeralContainers[0]" in verdict.message


def test_plain_debug_containers_and_old_ones_pass() -> None:
    plain = {"name": "dbg", "image": "x", "env": [MINE]}
    assert admit(debug(plain), policies(), H100S).kind == "allow"
    # What kubectl debug sends where nobody says more: its profile "general".
    tracing = {**plain, "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}
    assert admit(debug(tracing), policies(), H100S).kind == "allow"
    old = [{"name": "old", "image": "x", "env": [ALL]}]
    assert admit(debug(plain, old), policies(), H100S).kind == "allow"
    spy = {"name": "spy", "image": "x", "env": [ALL]}
    verdict = admit(debug(spy, old), policies(), H100S)
    assert "debug container spy: spec.ephemeralContainers[1].env[0]" in verdict.message


def test_a_profile_that_allows_privileges_allows_them_for_debugging() -> None:
    known = policies(profile(mode="mps", privileged="allow"))
    spy = {"name": "spy", "image": "x", "securityContext": {"privileged": True}}
    review = replace(debug(spy), namespace="policy")
    assert admit(review, known, H100S).kind == "allow"
    assert (
        admit(replace(debug({**spy, "env": [ALL]}), namespace="policy"), known, H100S).code == 403
    )
