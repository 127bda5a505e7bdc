"""What the API server sends us: the conditions, evaluated as an API server does."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.apiserver.cel import evaluate
from tests.support.judging import H100S, apply, container, pod, policies
from webhook.admission import admit_workload
from webhook.registration import (
    SYSTEM_NAMESPACES,
    TEMPLATE_SYSTEMS,
    client_by_url,
    configuration,
    template_rules,
)
from webhook.workload import TEMPLATE_PATHS, templates_of

CONFIGURATION = configuration(client_by_url("https://127.0.0.1:1/mutate", b"ca"), hide_gpus=True)
ENTRIES = {entry["name"].partition(".")[0]: entry for entry in CONFIGURATION["webhooks"]}
GPU = "nvidia.com/gpu"


def is_sent(manifest: dict[str, Any] | None, entry: str = "pods", *groups: str) -> bool:
    request = {"userInfo": {"groups": list(groups)}} if groups else {"userInfo": {}}
    return all(
        evaluate(condition["expression"], {"object": manifest, "request": request})
        for condition in ENTRIES[entry]["matchConditions"]
    )


SENT = [
    pod(container(limits={GPU: "1"})),
    pod(container(requests={GPU: "1"})),
    pod(container(), init=[container("i", limits={GPU: "250m"})]),
    pod(container(), init=[container("s", limits={GPU: "1"}, restartPolicy="Always")]),
    pod(container(limits={"nvidia.com/mig-1g.10gb": "1"})),
    pod(container(limits={"gpu.sharing/mps-1of4": "1"})),
    pod(container(limits={"team-a.gpu.sharing/mps-1of4": "1"})),
    pod(container(limits={"nvidia.com/gpu.shared": "1"})),
    pod(container(limits={"aliyun.com/gpu-mem": "1"})),
    pod(container(limits={"volcano.sh/vgpu-number": "1"})),
    pod(container(), annotations={"gpu.sharing/fraction": "0.25"}),
    pod(container(), annotations={"main.gpu.sharing/fraction": "0.25"}),
    pod(container(), annotations={"status.gpu.sharing/grants": "[]"}),
    pod(container(), annotations={"gpu-fraction": "0.5"}),
    pod(container(), annotations={"GPU.sharing/fraction": "0.25"}),
    pod(container(), annotations={"gpu-sharing/fraction": "0.25"}),
    pod(container(), annotations={"main.gpu-share/memory": "1Gi"}),
    {**pod(container()), "metadata": {"labels": {"gpu.sharing/fraction": "0.5"}}},
    pod(container(limits={"nvidia.com/GPU": "1"})),
    pod(container(limits={"nvidia/gpu": "1"})),
    pod(container(limits={"nvidia.com/MIG-1g.10gb": "1"})),
    pod(container(limits={"gpu-sharing/mps-1of4": "1"})),
]
KEPT: list[dict[str, Any] | None] = [
    None,
    {},
    {"metadata": {}},
    {"metadata": {"annotations": {}}, "spec": {}},
    pod(),
    pod(container(), annotations={"example.com/x": "1", "fraction": "1"}),
    pod(container(limits={"cpu": "1", "memory": "1Gi"})),
    pod(container(limits={"amd.com/gpu": "1"})),
    pod(container(limits={"nvidia.com/vgpu": "1"})),
    pod(container(limits={"notgpu.sharing/x": "1"})),
    pod(container(limits={"gpu.sharing.example.com/x": "1"})),
    pod(container(), annotations={"notgpu.sharing/x": "1"}),
    pod(container(), annotations={"gpu.sharing.example.com/x": "1"}),
    pod(container(), annotations={"gpu-sharing.example.com/x": "1"}),
    {"metadata": {}, "spec": {"containers": [{"name": "main"}], "resources": {"limits": {}}}},
]


@pytest.mark.parametrize("manifest", SENT)
def test_pods_that_name_a_gpu_or_a_key_are_sent(manifest: dict[str, Any]) -> None:
    assert is_sent(manifest)
    assert not is_sent(manifest, "pods", "system:nodes"), "what kubelets make is a fact"
    assert not is_sent(manifest, "hide")
    template = {"metadata": manifest["metadata"], "spec": manifest["spec"]}
    assert is_sent({"spec": {"template": template}}, "workloads")
    assert is_sent({"spec": {"jobTemplate": {"spec": {"template": template}}}}, "workloads")
    assert is_sent({"template": template}, "workloads"), "a PodTemplate"


def test_workloads_with_a_key_above_their_template_are_sent() -> None:
    plain = {"template": {"spec": pod(container())["spec"]}}
    astray = {"annotations": {"gpu.sharing/fraction": "0.5"}}
    assert is_sent({"metadata": astray, "spec": plain}, "workloads")
    assert is_sent({"spec": {"jobTemplate": {"metadata": astray, "spec": plain}}}, "workloads")
    assert not is_sent({"metadata": {"annotations": {"team": "a"}}, "spec": plain}, "workloads")


@pytest.mark.parametrize("manifest", KEPT)
def test_pods_that_name_none_wait_for_nobody(manifest: dict[str, Any] | None) -> None:
    """topolvm#57, kubernetes#90217: our absence must make nothing else wait."""
    assert not is_sent(manifest)
    assert is_sent(manifest, "hide")
    assert not is_sent(manifest, "workloads")
    if manifest is not None:
        assert not is_sent({"spec": {"template": manifest}}, "workloads")


def test_a_hostile_pod_is_sent_whole() -> None:
    keys = {f"key-{number}": "x" for number in range(5_000)}
    assert not is_sent(pod(container(), annotations=keys))
    assert is_sent(pod(*[container(f"c{n}") for n in range(500)], container(limits={GPU: "1"})))


def test_system_namespaces_are_left_out_by_name_alone() -> None:
    """gatekeeper, capsule#617: an opt-out label on a namespace is a tenant's to set."""
    for entry in ENTRIES.values():
        first, *others = entry["namespaceSelector"]["matchExpressions"]
        assert first == {
            "key": "kubernetes.io/metadata.name", "operator": "NotIn",
            "values": list(SYSTEM_NAMESPACES),
        }  # fmt: skip
        assert "objectSelector" not in entry
        assert [one["operator"] for one in others] == (
            ["Exists"] if entry["name"].startswith("hide") else []
        )


def test_kinds_of_other_projects_are_sent_where_an_operator_lists_them() -> None:
    assert "templates" not in ENTRIES
    rules = template_rules(["kubeflow", "ray"], [("batch.volcano.sh", "jobs"), ("ray.io", "x")])
    client = client_by_url("https://127.0.0.1:1/mutate", b"ca")
    entry = configuration(client, templates=rules)["webhooks"][-1]
    assert entry["name"] == "templates.gpu.sharing"
    assert entry["failurePolicy"] == "Ignore", "their pods are reviewed in any case"
    assert [condition["name"] for condition in entry["matchConditions"]] == ["not-a-kubelet"]
    assert [(rule["apiGroups"], rule["apiVersions"]) for rule in entry["rules"]] == [
        (["batch.volcano.sh"], ["*"]), (["kubeflow.org"], ["*"]), (["ray.io"], ["*"]),
    ]  # fmt: skip
    assert entry["rules"][2]["resources"] == ["rayclusters", "rayjobs", "rayservices", "x"]


def test_each_kind_that_has_rules_has_a_known_place_for_its_templates() -> None:
    listed = {
        resource
        for groups in TEMPLATE_SYSTEMS.values()
        for resources in groups.values()
        for resource in resources
    }
    own = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"}
    known = {f"{kind.lower()}s" for kind in TEMPLATE_PATHS}
    assert listed <= known
    assert known - listed == {f"{kind.lower()}s" for kind in own} | {
        "replicationcontrollers", "podtemplates",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind in TEMPLATE_PATHS for path in TEMPLATE_PATHS[kind]]
)
def test_a_fraction_becomes_legal_at_every_place_that_is_known(
    kind: str, path: tuple[str, ...]
) -> None:
    template: Any = {"spec": pod(container(limits={GPU: "250m"}))["spec"]}
    for holder in (["x"], {"Worker": "x"}):
        body: Any = template
        for key in reversed(path):
            if key == "*":
                body = [body] if isinstance(holder, list) else {"Worker": body}
            else:
                body = {key: body}
        manifest = {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "x"}, **body}
        after = apply(admit_workload(manifest, "mps", policies(), H100S), manifest)
        (made,) = templates_of(after)
        assert made.raw["metadata"]["annotations"] == {"main.gpu.sharing/fraction": "0.25"}
        assert made.raw["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
        assert admit_workload(after, "mps", policies(), H100S).operations == ()
