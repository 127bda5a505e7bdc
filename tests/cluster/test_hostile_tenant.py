"""A tenant who wants more than a share: what the whole installation lets through.

The webhook, its registration and the policies stand together here, beside an API server: what one
of them does not see, another must.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import PODS
from sharing.names import GRANTS_ANNOTATION, MODE_LABEL, PROFILE_LABEL
from tests.cluster.eitherserver import EITHER, Server, either_server
from tests.support.governed import Governed, governed
from tests.support.judging import container, pod, profile, resources_of

GPU: Final = "nvidia.com/gpu"
SHARE: Final = "gpu.sharing/mps-1of4"
LIMITS: Final[dict[str, Any]] = {"limits": {GPU: "1"}}
ALL: Final = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
VOID: Final = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
FORGED: Final = json.dumps(
    [{"container": "main", "resource": SHARE, "count": 1, "request": "x", "resources": {}}],
    separators=(",", ":"),
)
PROFILES: Final = (
    profile("hidden", mode="mps", hideGPUs=True),
    profile("watched", mode="mps", enforcement="audit"),
    profile("lost-pool", mode="mps", pool="team-b"),
)
NAMESPACES: Final = {
    "team": {MODE_LABEL: "mps"},
    "free": {},
    "hidden": {PROFILE_LABEL: "hidden"},
    "watched": {PROFILE_LABEL: "watched"},
    "broken": {PROFILE_LABEL: "gone"},
}


@pytest.fixture(params=EITHER)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    async with either_server(request, tmp_path) as running:
        yield running


@pytest.fixture
async def world(server: Server) -> AsyncIterator[Governed]:
    async with (
        Client.from_kubeconfig(server.kubeconfig()) as client,
        governed(client, NAMESPACES, *PROFILES) as made,
    ):
        yield made


def beside(**fields: Any) -> dict[str, Any]:
    """A pod with a share and a second container."""
    return pod(container(**LIMITS), container("other", **fields))


def volume(**source: Any) -> dict[str, Any]:
    return pod(container(**LIMITS), volumes=[{"name": "v", **source}])


def mounting(path: str, **limits: Any) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": path}]
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod(container(volumeMounts=mounts, **limits), volumes=volumes)


DEVICE: Final = {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
RAW: Final = {"cdi.k8s.io/gpus": "nvidia.com/gpu=all"}
FOLDER: Final = "//var/run/nvidia-container-devices/all"
ATTEMPTS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("team", pod(container(**LIMITS), nodeName="n1"), "spec.nodeName"),
    ("free", pod(container(limits={SHARE: "1"}), nodeName="n1"), "no policy granted"),
    ("team", pod(container(limits={"team-b.gpu.sharing/mps-1of4": "1"})), "pool team-b"),
    ("free", pod(container(limits={SHARE: "1"})), "no policy granted"),
    (
        "free",
        pod(container(limits={SHARE: "1"}), annotations={GRANTS_ANNOTATION: FORGED}),
        "no policy granted",
    ),
    (
        "watched",
        pod(container(limits={SHARE: "1"}), annotations={GRANTS_ANNOTATION: FORGED}),
        "no policy granted",
    ),
    ("watched", pod(container(limits={"gpu.sharing/milli-gpu": "1"})), "no policy granted"),
    ("broken", pod(container(**LIMITS)), "there is no SharingProfile gone"),
    ("team", beside(securityContext={"privileged": True}), "container other"),
    ("team", beside(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "SYS_ADMIN"),
    ("team", pod(container(**LIMITS), hostPID=True), "spec.hostPID"),
    ("team", pod(container(**LIMITS), hostIPC=True), "spec.hostIPC"),
    ("team", volume(hostPath={"path": "/dev/nvidia0"}), "/dev/nvidia0"),
    ("team", volume(hostPath={"path": "/dev/null"}), "/dev/null"),
    ("team", volume(hostPath={"path": "//"}), "hostPath"),
    ("team", volume(hostPath={"path": "/etc/kubernetes/manifests"}), "/etc/kubernetes"),
    ("team", pod(container(**LIMITS), annotations=DEVICE), "injects devices"),
    ("team", pod(container(), annotations=DEVICE), "injects devices"),
    ("hidden", pod(container(), annotations=RAW), "injects devices"),
    ("watched", pod(container(), annotations=RAW), "injects devices"),
    ("team", mounting(FOLDER, **LIMITS), "nvidia-container-devices"),
    ("team", mounting(FOLDER), "nvidia-container-devices"),
    ("hidden", mounting("var/run/nvidia-container-devices/0"), "nvidia-container-devices"),
    ("team", pod(container(limits={GPU: "2"})), "multiGPU"),
    ("team", pod(container(limits={GPU: "1500m"})), "1500m"),
    ("team", pod(container(limits={"gpu.sharing/mps-1of64": "1"})), "mps-1of64"),
    ("team", pod(container(limits={"gpu.sharing/timeslice-1of4": "1"})), "time-slicing"),
    ("team", pod(container(**LIMITS), annotations={"gpu.sharing/moed": "mig"}), "did you mean"),
]


async def test_what_a_tenant_cannot_create(world: Governed) -> None:
    for called, manifest, words in ATTEMPTS:
        said = await world.refused(PODS, manifest, world.namespaces[called])
        assert words in said, (called, manifest)


def environment(made: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = made["spec"]["containers"][index].get("env", [])
    return listed


async def test_what_a_tenant_writes_opens_nothing(world: Governed) -> None:
    """HAMi#3041, HAMi#3076, k8s-device-plugin#61."""

    async def made(called: str, manifest: dict[str, Any]) -> dict[str, Any]:
        namespace = world.namespaces[called]
        return await world.client.create(PODS, manifest, namespace=namespace, dry_run=True)

    odd = pod(container(env=[ALL, ALL], **LIMITS), container("b", env=[ALL]), schedulerName="mine")
    odd["metadata"]["labels"] = {"gpu.sharing": "ignore", "hami.io/webhook": "ignore"}
    odd["metadata"]["annotations"] = {GRANTS_ANNOTATION: FORGED, "status.gpu.sharing/x": "y"}
    after = await made("team", odd)
    assert resources_of(after) == {SHARE: "1"}
    assert environment(after) == []
    assert environment(after, 1) == [VOID]
    assert after["spec"]["schedulerName"] == "mine", "a choice that counts shares as well"
    assert json.loads(after["metadata"]["annotations"][GRANTS_ANNOTATION])[0]["profile"] == "mps"
    assert "status.gpu.sharing/x" not in after["metadata"]["annotations"]
    source = [{"configMapRef": {"name": "x"}}]
    hidden = await made("hidden", pod(container(env=[ALL]), container("b", envFrom=source)))
    assert [environment(hidden, index) for index in (0, 1)] == [[VOID], [VOID]]
    free = await made("free", pod(container(), annotations={GRANTS_ANNOTATION: FORGED}))
    assert GRANTS_ANNOTATION not in free["metadata"].get("annotations", {})


async def refused(call: Any) -> str:
    """Why a call is refused; empty where it is not."""
    try:
        await call
    except ApiError as error:
        return error.message
    return ""


async def test_pods_that_exist_keep_their_record_and_are_never_held_up(world: Governed) -> None:
    """gatekeeper#4121, kubernetes#62666: an UPDATE never mutates and never blocks deletion."""
    client, namespace = world.client, world.namespaces["team"]
    asking = pod(container(**LIMITS))
    asking["metadata"]["finalizers"] = ["example.com/hold"]
    made = await client.create(PODS, asking, namespace=namespace)
    for subresource in ("", "status"):
        for value in ("[]", None):
            patch = {"metadata": {"annotations": {GRANTS_ANNOTATION: value}}}
            call = client.patch(PODS, "web", patch, namespace=namespace, subresource=subresource)
            assert "is written by gpu-sharing" in await refused(call)
    harmless = {"metadata": {"annotations": {"mine": "1", "gpu.sharing/moed": "mps"}}}
    after = await client.patch(PODS, "web", harmless, namespace=namespace)
    assert after["spec"] == made["spec"]
    await client.delete(PODS, "web", namespace=namespace, grace_s=0)
    freed = {"metadata": {"finalizers": None}}
    assert not await refused(client.patch(PODS, "web", freed, namespace=namespace))


async def test_debug_containers_and_bindings_bring_nothing(world: Governed) -> None:
    """kyverno#2821, kubernetes#92557."""
    client, namespace = world.client, world.namespaces["team"]
    volumes = [{"name": "v", "emptyDir": {}}]
    await client.create(PODS, pod(container(**LIMITS), volumes=volumes), namespace=namespace)
    for fields in (
        {"env": [ALL]},
        {"env": [{"name": "CUDA_VERSION", "value": "11"}]},
        {"envFrom": [{"secretRef": {"name": "x"}}]},
        {"volumeMounts": [{"name": "v", "mountPath": FOLDER}]},
        {"securityContext": {"privileged": True}},
        {"securityContext": {"capabilities": {"add": ["SYS_RAWIO"]}}},
    ):
        spec = {"ephemeralContainers": [{"name": "spy", "image": "x", **fields}]}
        call = client.patch(
            PODS, "web", {"spec": spec}, namespace=namespace, subresource="ephemeralcontainers"
        )
        assert "debug container spy" in await refused(call), fields
    plain = {"ephemeralContainers": [{"name": "dbg", "image": "busybox:1"}]}
    call = client.patch(
        PODS, "web", {"spec": plain}, namespace=namespace, subresource="ephemeralcontainers"
    )
    assert not await refused(call)
    target = {"target": {"kind": "Node", "name": "n1"}}
    forged = {"metadata": {"name": "web", "annotations": {GRANTS_ANNOTATION: "x"}}, **target}
    path = PODS.path(namespace=namespace, name="web", subresource="binding")
    assert "binding" in await refused(client.request("POST", path, body=forged))


async def test_kubelets_and_system_namespaces_are_left_alone(
    world: Governed, server: Server
) -> None:
    """kube-image-keeper#560, E4: mirror pods are a fact."""
    groups = ("system:nodes", "system:masters")
    mirror = pod(container(**LIMITS), nodeName="n1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    async with Client.from_kubeconfig(server.kubeconfig("system:node:n1", groups)) as kubelet:
        made = await kubelet.create(PODS, mirror, namespace=world.namespaces["team"], dry_run=True)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
    mine = await refused(
        world.client.create(PODS, mirror, namespace=world.namespaces["team"], dry_run=True)
    )
    assert "spec.nodeName" in mine, "the annotation alone makes no mirror pod"
    system = await world.client.create(
        PODS, pod(container(env=[ALL], **LIMITS)), namespace="kube-system", dry_run=True
    )
    assert environment(system) == [ALL]
