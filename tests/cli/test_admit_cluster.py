"""``admit --context/--kubeconfig``: a cluster's policies, nodes and workloads, only ever read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from embedded.apiserver import ApiServer
from sharing.api.crd import crd_manifests
from sharing.api.profile import parse_profile
from sharing.cluster.client import Client
from sharing.cluster.kind import (
    CRDS,
    DEPLOYMENTS,
    GPU_NODES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SHARING_PROFILES,
    Kind,
)
from tests.support.admission import pod
from tests.support.judging import judge

RAY = Kind(kind="RayCluster", plural="rayclusters", group="ray.io")
LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": pod()["spec"]}
PROFILE = {"metadata": {"name": "inference"}, "spec": {"mode": "mps", "defaultSize": "1of4"}}


async def create(api: Client, kind: Kind, item: dict[str, Any]) -> None:
    """Create an object that says of what kind it is, as custom ones have to."""
    await api.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **item})


def share(number: int) -> dict[str, Any]:
    return {"id": f"GPU-1::{number}", "resource": "gpu.sharing/mps-1of4", "memoryMiB": 10_000}


async def fill(api: Client) -> None:
    """A cluster with a policy, a node and what makes pods, as it is after a while."""
    for definition in crd_manifests():
        await create(api, CRDS, definition)
    for name in ("team-a", "team-b", "team-c"):
        labels = {"gpu.sharing/profile": "inference"} if name != "team-c" else {}
        await create(api, NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    await create(api, SHARING_PROFILES, PROFILE)
    await create(
        api, NODES, {"metadata": {"name": "n1", "labels": {"gpu.sharing/managed": "true"}}}
    )
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await api.patch(NODES, "n1", ready, subresource="status")
    gpu = {"index": 0, "uuid": "GPU-1", "board": "A100-40GB", "product": "x", "memoryMiB": 40_000}
    await create(api, GPU_NODES, {"metadata": {"name": "n1"}, "spec": {"gpus": []}})
    status = {"status": {"gpus": [gpu | {"shares": [share(n) for n in range(4)]}]}}
    await api.patch(GPU_NODES, "n1", status, subresource="status")
    spec = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    for namespace in ("team-a", "team-b", "team-c"):
        await create(
            api, DEPLOYMENTS, {"metadata": {"name": "web", "namespace": namespace}, "spec": spec}
        )


async def follow_up(api: Client) -> None:
    """What controllers, kubelets and operators have made of it."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-1"}
    made = {"namespace": "team-a", "ownerReferences": [{**owner, "controller": True}]}
    spec = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    await create(api, REPLICA_SETS, {"metadata": {"name": "web-1", **made}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u-2"}
    made = {"namespace": "team-a", "ownerReferences": [{**owner, "controller": True}]}
    await create(api, PODS, {"metadata": {"name": "web-1-x", **made}, "spec": pod()["spec"]})
    alone = {"metadata": {"name": "alone", "namespace": "team-a"}, "spec": pod()["spec"]}
    await create(api, PODS, alone)
    await api.bind("alone", namespace="team-a", node="n1")
    foreign = {"apiVersion": "x.io/v1", "kind": "Notebook", "name": "n", "uid": "u-3"}
    made = {"namespace": "team-a", "ownerReferences": [{**foreign, "controller": True}]}
    await create(api, PODS, {"metadata": {"name": "notebook", **made}, "spec": pod()["spec"]})
    done = {"metadata": {"name": "done", "namespace": "team-a"}, "spec": pod()["spec"]}
    await create(api, PODS, done)
    phase = {"status": {"phase": "Succeeded"}}
    await api.patch(PODS, "done", phase, namespace="team-a", subresource="status")
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "over", "namespace": "team-a"}, "spec": {"template": template}}
    await create(api, JOBS, job)
    ended = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    await api.patch(JOBS, "over", ended, namespace="team-a", subresource="status")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(tls=True) as running:
        yield running


@pytest.fixture
async def kubeconfig(server: ApiServer, tmp_path: Path) -> Path:
    """Of a cluster that has been filled."""
    path: Path = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.from_kubeconfig(path) as api:
        await fill(api)
        await follow_up(api)
    return path


async def admit(*arguments: str, text: str | None = None) -> Result:
    given = ["-f", "-"] if text is not None else []
    return await asyncio.to_thread(
        CliRunner().invoke, cli, ["admit", *given, *arguments], input=text
    )


async def entries(kubeconfig: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    result = await admit("--kubeconfig", str(kubeconfig), "-o", "json", *arguments)
    assert result.exit_code in (0, 3), result.output
    listed = json.loads(result.stdout)
    found = {f"{one['kind']} {one['namespace']}/{one['name']}": one for one in listed}
    assert len(found) == len(listed)
    return found


async def test_a_clusters_workloads_are_decided_by_their_outermost_owner(kubeconfig: Path) -> None:
    found = await entries(kubeconfig)

    assert list(found) == [
        "Deployment team-a/web",
        "Pod team-a/alone",
        "Pod team-a/notebook",
        "Deployment team-b/web",
        "Deployment team-c/web",
    ]
    resources = [[grant["resource"] for grant in one["grants"]] for one in found.values()]
    assert resources == [["gpu.sharing/mps-1of4"]] * 4 + [[]]
    assert found["Deployment team-a/web"]["warnings"] == [
        "main: nvidia.com/gpu: 1 -> gpu.sharing/mps-1of4 (default 1of4 of profile inference)"
    ]
    assert "status" not in found["Pod team-a/alone"]["object"]
    assert "nodeName" not in found["Pod team-a/alone"]["object"]["spec"]


async def test_a_namespace_narrows_a_clusters_workloads(kubeconfig: Path) -> None:
    assert list(await entries(kubeconfig, "-n", "team-b")) == ["Deployment team-b/web"]


async def test_workloads_of_other_kinds_are_found_where_the_cluster_has_them(
    server: ApiServer, kubeconfig: Path
) -> None:
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "metadata": {"name": "rayclusters.ray.io"},
        "spec": {
            "group": "ray.io",
            "scope": "Namespaced",
            "names": {"plural": "rayclusters", "singular": "raycluster", "kind": "RayCluster"},
            "versions": [version | {"schema": {"openAPIV3Schema": open_schema}}],
        },
    }
    async with Client.from_kubeconfig(kubeconfig) as api:
        await create(api, CRDS, definition)
        spec = {"headGroupSpec": {"template": {"spec": pod()["spec"]}}}
        cluster = {"metadata": {"name": "ray", "namespace": "team-b"}, "spec": spec}
        await create(api, RAY, cluster)

    found = await entries(kubeconfig, "-n", "team-b")

    assert list(found) == ["Deployment team-b/web", "RayCluster team-b/ray"]
    assert found["RayCluster team-b/ray"]["grants"]


async def test_files_are_decided_under_the_clusters_policies_and_nodes(kubeconfig: Path) -> None:
    asked = pod({"gpu.sharing/memory": "30Gi"})
    asked["metadata"] |= {"namespace": "team-a"}
    there = ("--kubeconfig", str(kubeconfig), "-o", "json")

    (large,) = json.loads((await admit(*there, text=json.dumps(asked))).stdout)
    (plain,) = json.loads((await admit(*there, "-n", "team-b", text=json.dumps(pod()))).stdout)

    assert (large["verdict"], plain["verdict"]) == ("deny", "patch")
    assert "30Gi" in large["message"]


async def test_files_stand_over_what_the_cluster_holds(kubeconfig: Path) -> None:
    changed = PROFILE | {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "SharingProfile",
        "spec": {"mode": "mps", "enforcement": "audit"},
    }
    asked = pod()
    asked["metadata"] |= {"namespace": "team-a"}
    text = f"{json.dumps(changed)}\n---\n{json.dumps(asked)}"

    result = await admit("--kubeconfig", str(kubeconfig), "-o", "json", text=text)

    (entry,) = json.loads(result.stdout)
    assert entry["verdict"] == "allow"


async def test_what_would_change_in_a_cluster_is_told(kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text(
        "apiVersion: gpu.sharing/v1alpha1\nkind: SharingProfile\nmetadata: {name: inference}\n"
        "spec: {mode: mps, defaultSize: 1of2}\n"
    )

    result = await admit(
        "--kubeconfig", str(kubeconfig), "--what-if", str(tmp_path / "profile.yaml")
    )

    # No node has a half, so what is admitted now would not be.
    assert result.exit_code == 3
    assert "4 of 5 objects that make pods would change: 4 verdicts, 4 grants" in result.stdout
    assert "4 newly denied" in result.stdout
    assert "Namespaces under inference: team-a, team-b." in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


async def test_a_pod_that_was_admitted_already_is_taken_back_to_what_it_asked(
    kubeconfig: Path, tmp_path: Path
) -> None:
    """Only its record tells: nobody owns the pod, so no template does."""
    profile = parse_profile(
        {"metadata": {"name": "inference"}, "spec": {"mode": "mps", "nodeSelector": {"a": "b"}}}
    )
    text = pod({"gpu.sharing/fraction": "0.25"})
    verdict, after = judge(text, profile, None)
    assert verdict.grants[0].resource == "gpu.sharing/mps-1of4"
    after["metadata"] = {**after["metadata"], "name": "old", "namespace": "team-a"}
    async with Client.from_kubeconfig(kubeconfig) as api:
        spec = {"spec": {"mode": "mps", "nodeSelector": {"a": "b"}, "defaultSize": "1of4"}}
        await api.patch(SHARING_PROFILES, "inference", spec)
        await api.patch(NODES, "n1", {"metadata": {"labels": {"a": "b", "c": "d"}}})
        await create(api, PODS, after)
    (tmp_path / "what.yaml").write_text(
        "apiVersion: gpu.sharing/v1alpha1\nkind: SharingProfile\nmetadata: {name: inference}\n"
        "spec: {mode: exclusive, nodeSelector: {c: d}}\n"
    )
    there = ("--kubeconfig", str(kubeconfig), "-n", "team-a", "--what-if")

    table = await admit(*there, str(tmp_path / "what.yaml"))
    shown = await admit(*there, str(tmp_path / "what.yaml"), "-o", "json")

    found = json.loads(shown.stdout)
    (change,) = [one for one in found["changes"] if one["name"] == "old"]
    assert change["now"]["grants"][0]["request"] == "gpu.sharing/fraction: 0.25"
    assert change["now"]["placement"][0]["nodeSelector"] == {"a": "b"}
    assert found["unknown"] == [
        "Pod team-a/old: nodeSelector a: taken as profile inference's, not as its author's"
    ]
    assert "taken back to what their record says" in table.stdout
    assert "unknown Pod team-a/old: nodeSelector a: taken as profile" in table.stdout


async def test_the_table_of_a_cluster_leaves_out_what_asks_for_no_gpu(kubeconfig: Path) -> None:
    result = await admit("--kubeconfig", str(kubeconfig))

    assert result.exit_code == 0
    listed = [line for line in result.stdout.splitlines() if " patch " in line]
    assert len(listed) == 4
    assert "5 objects that make pods: 4 changed, 1 unchanged; 1 of them" in result.stdout
    assert "Without policy, so pods stay as they are: team-c." in result.stdout


async def test_reports_of_a_cluster_name_objects_and_no_files(kubeconfig: Path) -> None:
    sarif = await admit("--kubeconfig", str(kubeconfig), "-o", "sarif", "-n", "team-b")
    junit = await admit("--kubeconfig", str(kubeconfig), "-o", "junit", "-n", "team-b")

    (result,) = json.loads(sarif.stdout)["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "Deployment team-b/web"
    assert "physicalLocation" not in location
    assert '<testsuite name="cluster"' in junit.stdout
    assert 'name="Deployment team-b/web"' in junit.stdout


async def test_a_cluster_is_only_read(server: ApiServer, kubeconfig: Path) -> None:
    async with Client.from_kubeconfig(kubeconfig) as api:
        before = await api.request("GET", "/apis/apps/v1/deployments")
        await entries(kubeconfig)
        after = await api.request("GET", "/apis/apps/v1/deployments")

    assert before == after


async def test_a_cluster_without_our_kinds_is_previewed_before_anything_is_installed(
    server: ApiServer, tmp_path: Path
) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.from_kubeconfig(path) as api:
        await create(api, NAMESPACES, {"metadata": {"name": "team-a"}})
        spec = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
        await create(
            api, DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "team-a"}, "spec": spec}
        )

    found = await entries(path, "--profile", "mps")

    (entry,) = found.values()
    assert entry["grants"][0]["resource"] == "gpu.sharing/mps-1of4"


async def test_a_context_is_chosen_by_name(
    server: ApiServer, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    missing = await admit("--context", "prod")
    found = await admit("--context", server.kubeconfig()["current-context"], "-o", "json")

    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "prod" in missing.stderr
    assert (found.exit_code, len(json.loads(found.stdout))) == (0, 5)


async def test_a_cluster_that_does_not_answer_is_one_sentence_and_exit_1(
    server: ApiServer, tmp_path: Path
) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    await server.stop()

    result = await admit("--kubeconfig", str(path))

    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
