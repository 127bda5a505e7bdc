"""The API server's own guard: which requests the shipped policies refuse, asked of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from embedded.apiserver import ApiServer, User, service_account
from tests.support.apiserver import PODS, Client, Reply
from tests.support.judging import H100S, apply, container, pod, policies
from webhook.admission import admit_pod
from webhook.guardpolicies import CONTROLLER, files, guard_policies
from webhook.verdict import Verdict

FOLDER = Path(__file__).parents[2] / "deploy" / "policies"
GROUP = "/apis/admissionregistration.k8s.io/v1"
GRANTS = "status.gpu.sharing/grants"
OURS = {"limits": {"gpu.sharing/mps-1of4": "1"}}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        client = Client(server.url, session)
        for manifest in guard_policies():
            plural = (
                manifest["kind"]
                .lower()
                .replace("policy", "policies")
                .replace("policiesbinding", "policybindings")
            )
            await client.made(f"{GROUP}/{plural}", manifest)
        yield client


def granted(name: str = "web", **more: Any) -> dict[str, Any]:
    """A pod with a share as the webhook leaves it."""
    manifest = pod(container(limits={"nvidia.com/gpu": "1"}), container("side"), **more)
    manifest["metadata"]["name"] = name
    verdict: Verdict = admit_pod(manifest, "mps", policies(), H100S)
    made = apply(verdict, manifest)
    made["metadata"]["annotations"]["mine"] = "1"
    return made


def refused(reply: Reply, *words: str) -> bool:
    said = str(reply.body.get("message"))
    return (reply.code, reply.body.get("reason")) == (403, "Forbidden") and all(
        word in said for word in ("ValidatingAdmissionPolicy 'gpu-sharing-", *words)
    )


def test_the_shipped_files_say_what_the_code_says(update_golden: bool) -> None:
    if update_golden:
        for name, text in files().items():
            (FOLDER / name).write_text(text, "utf-8")
    assert {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.yaml")} == files()


def test_every_policy_is_bound_and_denies() -> None:
    manifests = guard_policies(exempt=["mine"], writers=["me"])
    made = {one["metadata"]["name"] for one in manifests if one["kind"].endswith("Policy")}
    bound = {
        one["spec"]["policyName"]: one["spec"]["validationActions"]
        for one in manifests
        if one["kind"].endswith("Binding")
    }
    assert bound == {name: ["Deny"] for name in made}
    assert "'mine'" in str(manifests)
    assert '["me"]' in str(manifests)


async def test_our_status_keys_are_ours_on_pods_that_exist(api: Client, server: ApiServer) -> None:
    """HAMi#3041: allocation records written by the tenant."""
    await api.made(PODS, granted())
    for path in (f"{PODS}/web", f"{PODS}/web/status"):
        for change in ({GRANTS: "x"}, {GRANTS: None}, {"status.gpu.sharing/new": "x"}):
            reply = await api.patch(path, {"metadata": {"annotations": change}})
            assert refused(reply, f"annotation {next(iter(change))} is written by gpu-sharing")
        reply = await api.patch(path, {"metadata": {"annotations": None}})
        assert refused(reply, GRANTS)
    same = {GRANTS: granted()["metadata"]["annotations"][GRANTS]}
    for harmless in ({"mine": "2"}, same, {"gpu.sharing.example/x": "1"}):
        reply = await api.patch(f"{PODS}/web", {"metadata": {"annotations": harmless}})
        assert reply.code == 200
    running: Any = {"status": {"phase": "Running"}}
    assert (await api.patch(f"{PODS}/web/status", running)).code == 200
    _, _, namespace, name = CONTROLLER.split(":")
    token = server.token_for(service_account(namespace, name))
    async with aiohttp.ClientSession() as session:
        ours = Client(server.url, session, token)
        edit = {"metadata": {"annotations": {GRANTS: "[]"}}}
        assert (await ours.patch(f"{PODS}/web", edit)).code == 200
    assert (await api.delete(f"{PODS}/web")).code == 200


async def test_finalizers_and_deletion_are_never_blocked(api: Client) -> None:
    """gatekeeper#4121, KAI: rules on UPDATE that look at the whole pod."""
    odd = granted()
    odd["metadata"]["finalizers"] = ["example.com/hold"]
    await api.made(PODS, odd)
    assert (await api.delete(f"{PODS}/web")).code == 200
    reply = await api.patch(f"{PODS}/web", {"metadata": {"finalizers": None}})
    assert reply.code == 200


def debug(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", **fields}


VISIBLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
PIPE = {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}
SOURCE = [{"configMapRef": {"name": "x"}}]


async def test_debug_containers_open_no_gpu_beside_a_share(api: Client) -> None:
    """kyverno#2821, kubernetes#92557."""
    await api.made(PODS, granted())
    path = f"{PODS}/web/ephemeralcontainers"
    mount = {"name": "v", "mountPath": "/run/x/../nvidia-container-devices/all"}
    bad = ({"env": [VISIBLE]}, {"env": [PIPE]}, {"envFrom": SOURCE}, {"volumeMounts": [mount]})
    for fields in bad:
        listed = {"spec": {"ephemeralContainers": [debug("spy", **fields)]}}
        assert refused(await api.patch(path, listed), "debug container spy")
    plain = debug("dbg", env=[{"name": "MINE", "value": "1"}])
    assert (await api.patch(path, {"spec": {"ephemeralContainers": [plain]}})).code == 200


async def test_debug_containers_elsewhere_are_not_ours_to_judge(api: Client) -> None:
    await api.made(PODS, pod(container()))
    fields = {"env": [VISIBLE], "envFrom": SOURCE}
    listed = {"spec": {"ephemeralContainers": [debug("free", **fields)]}}
    assert (await api.patch(f"{PODS}/web/ephemeralcontainers", listed)).code == 200


async def test_debug_containers_of_a_governed_namespace_open_no_gpu(api: Client) -> None:
    labels = {"gpu.sharing/mode": "mps"}
    await api.made("/api/v1/namespaces", {"metadata": {"name": "team", "labels": labels}})
    pods = "/api/v1/namespaces/team/pods"
    await api.made(pods, pod(container()))
    path = f"{pods}/web/ephemeralcontainers"
    harmless, spy = debug("a", envFrom=SOURCE), debug("spy", env=[VISIBLE])
    reply = await api.patch(path, {"spec": {"ephemeralContainers": [harmless]}})
    assert reply.code == 200
    reply = await api.patch(path, {"spec": {"ephemeralContainers": [harmless, spy]}})
    assert refused(reply, "debug container spy")


async def test_a_binding_brings_no_record(api: Client) -> None:
    await api.made(PODS, pod(container()))
    target = {"target": {"kind": "Node", "name": "n1"}}
    forged = {"metadata": {"name": "web", "annotations": {GRANTS: "x"}}, **target}
    assert refused(await api.create(f"{PODS}/web/binding", forged), "a binding")
    assert refused(await api.create("/api/v1/namespaces/default/bindings", forged), "a binding")
    plain = {"metadata": {"name": "web", "annotations": {"mine": "x"}}, **target}
    assert (await api.create(f"{PODS}/web/binding", plain)).code == 201


def naming(name: str, resource: str, **spec: Any) -> dict[str, Any]:
    manifest = pod(container(limits={resource: "1"}), **spec)
    manifest["metadata"]["name"] = name
    return manifest


@pytest.mark.parametrize(
    "resource",
    ["gpu.sharing/mps-1of4", "team-a.gpu.sharing/timeslice-1of2", "gpu.sharing/milli-gpu"],
)
async def test_a_share_without_a_grant_is_refused_everywhere(api: Client, resource: str) -> None:
    reply = await api.create(PODS, naming("direct", resource))
    assert refused(reply, "container main names a share of gpu.sharing that no policy granted")
    init = pod(container("app"), init=[container("warm", limits={resource: "1"})])
    assert refused(await api.create(PODS, init), "container warm")
    reply = await api.create("/api/v1/namespaces/kube-system/pods", naming("direct", resource))
    assert reply.code == 201


async def test_a_share_that_another_webhook_added_after_ours_is_refused(api: Client) -> None:
    """kubernetes: a webhook that was skipped in the first pass is not called in the second."""
    late = granted("late")
    late["spec"]["containers"][1]["resources"] = dict(OURS)
    assert refused(await api.create(PODS, late), "container side")
    other = granted("other")
    other["spec"]["containers"][0]["resources"] = {"limits": {"gpu.sharing/mps-1of2": "1"}}
    assert refused(await api.create(PODS, other), "container main")
    assert (await api.create(PODS, granted("right"))).code == 201


async def test_none_of_a_share_needs_no_grant(api: Client) -> None:
    """HAMi#2739: charts write 0 where nothing is asked for."""
    for name, resource in {"own": "gpu.sharing/mps-1of4", "pool": "a.gpu.sharing/gpu"}.items():
        manifest = pod(container(limits={resource: "0"}, requests={resource: "0"}))
        manifest["metadata"]["name"] = name
        assert (await api.create(PODS, manifest)).code == 201
    beside = granted("beside")
    beside["spec"]["containers"][1]["resources"] = {"limits": {"gpu.sharing/mps-1of2": "0"}}
    assert (await api.create(PODS, beside)).code == 201


async def test_pods_of_a_governed_namespace_open_nothing_past_the_device_plugin(
    api: Client, server: ApiServer
) -> None:
    """Most such pods name no GPU, so that no webhook is asked."""
    mounts = [{"name": "v", "mountPath": "//var/run/nvidia-container-devices/all"}]
    volumes = [{"name": "v", "emptyDir": {}}]
    mounting = pod(container(), container("other", volumeMounts=mounts), volumes=volumes)
    device = {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
    hidden = {"nvidia.cdi.k8s.io/main.gpu-memory.request": "nvidia.com/gpu=all"}
    amount = {"nvidia.cdi.k8s.io/main.gpu-memory.request": "10Gi"}
    for team, labels in {
        "a": {"gpu.sharing/mode": "mps"},
        "b": {"gpu.sharing/profile": "x"},
    }.items():
        await api.made("/api/v1/namespaces", {"metadata": {"name": team, "labels": labels}})
        pods = f"/api/v1/namespaces/{team}/pods"
        assert refused(await api.create(pods, mounting), "container other mounts")
        for keys in (device, hidden):
            reply = await api.create(pods, pod(container(), annotations=keys))
            assert refused(reply, f"annotation {next(iter(keys))} injects devices")
        assert (await api.create(pods, pod(container(), annotations=amount))).code == 201
    for manifest in (mounting, pod(container(), annotations=device)):
        reply = await api.create("/api/v1/namespaces/kube-system/pods", manifest)
        assert reply.code == 201
        assert (await api.delete("/api/v1/namespaces/kube-system/pods/web")).code == 200
        assert (await api.create(PODS, manifest)).code == 201, "a free namespace is not ours"
        assert (await api.delete(f"{PODS}/web")).code == 200


async def test_other_vendors_and_whole_gpus_need_no_grant(api: Client) -> None:
    for name, resource in {
        "whole": "nvidia.com/gpu", "mig": "nvidia.com/mig-1g.10gb",
        "near": "notgpu.sharing/x", "example": "gpu.sharing.example.com/x",
    }.items():  # fmt: skip
        assert (await api.create(PODS, naming(name, resource))).code == 201


async def test_a_node_name_beside_a_share_is_refused_except_from_kubelets(
    api: Client, server: ApiServer
) -> None:
    """HAMi#488, HAMi#960, E4: mirror pods are a fact."""
    reply = await api.create(
        PODS, granted("bound") | {"spec": granted()["spec"] | {"nodeName": "n"}}
    )
    assert refused(reply, "bypasses the scheduler", "{kubernetes.io/hostname: n}")
    kubelet = User(name="system:node:n", groups=("system:nodes", "system:authenticated"))
    async with aiohttp.ClientSession() as session:
        mine = Client(server.url, session, server.token_for(kubelet))
        made = await mine.create(PODS, naming("mirror", "gpu.sharing/mps-1of4", nodeName="n"))
    assert made.code == 201
    whole = naming("whole", "nvidia.com/gpu", nodeName="n")
    assert (await api.create(PODS, whole)).code == 201


def test_the_files_are_plain_yaml() -> None:
    for text in files().values():
        assert [one["kind"] for one in yaml.safe_load_all(text)] == [
            "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
        ]  # fmt: skip
