"""Tier a itself: what it is asked to prove of us, and that it starts, restarts and goes."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.errors import ForbiddenError, InvalidError
from sharing.cluster.kind import (
    CONFIG_MAPS,
    CRDS,
    GPU_LAYOUTS,
    MUTATING_WEBHOOKS,
    SHARING_PROFILES,
    Kind,
)
from tests.cluster.controlplane import APISERVER, ETCD, ControlPlane
from tests.cluster.waiting import eventually
from webhook.registration import client_by_url, configuration

pytestmark = pytest.mark.cluster

ROLES = Kind(kind="Role", plural="roles", group="rbac.authorization.k8s.io")
ROLE_BINDINGS = Kind(kind="RoleBinding", plural="rolebindings", group="rbac.authorization.k8s.io")


@pytest.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(control_plane.access.kubeconfig()) as client:
        yield client


@pytest.fixture
async def with_crds(admin: Client) -> Client:
    for manifest in crd_manifests():
        await admin.apply(CRDS, manifest, field_manager="tests")
    for manifest in crd_manifests():
        name = manifest["metadata"]["name"]
        await eventually(f"{name} is established", partial(_established, admin, name))
    return admin


async def _established(admin: Client, name: str) -> bool:
    found = await admin.get(CRDS, name)
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    return conditions.get("Established") == "True" and conditions.get("NamesAccepted") == "True"


async def test_the_crds_are_accepted_without_a_structural_complaint(with_crds: Client) -> None:
    for manifest in crd_manifests():
        found = await with_crds.get(CRDS, manifest["metadata"]["name"])

        assert "NonStructuralSchema" not in {c["type"] for c in found["status"]["conditions"]}


def _profile(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "SharingProfile",
        "metadata": {"generateName": "p-"},
        "spec": spec,
    }


def _layout(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "GPULayout",
        "metadata": {"generateName": "l-"},
        "spec": {"nodeSelector": {"matchLabels": {"pool": "mixed"}}, "gpus": [entry]},
    }


async def test_the_design_examples_are_accepted(with_crds: Client) -> None:
    profile = _profile(
        {
            "modes": ["mig", "mps"],
            "defaultSize": "1of4",
            "allowedModes": ["mps", "mig"],
            "allowedSizes": ["1of2", "1of4", "1of8"],
            "minIsolation": "limits",
            "wholeGPU": "convert",
            "multiGPU": "deny",
            "enforcement": "enforce",
        }
    )
    layout = _layout({"gpus": "0-1", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}})
    whole = copy.deepcopy(layout)
    whole["spec"]["gpus"] += [
        {"gpus": 2, "mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
        {"gpus": "rest", "mode": "exclusive"},
    ]

    assert await with_crds.create(SHARING_PROFILES, profile, dry_run=True)
    assert await with_crds.create(GPU_LAYOUTS, whole, dry_run=True)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "exactly one of mode and modes is needed; for example: mode: mps"),
        ({"mode": "mps", "modes": ["mig"]}, "exactly one of mode and modes is needed"),
        ({"modes": ["mps", "mps"]}, "a mode is listed twice; list each mode once"),
        ({"mode": "mps", "minIsolation": "hardware"}, "minIsolation is above what its modes give"),
        (
            {"mode": "mps", "defaultSize": "1of2", "allowedSizes": ["1of4"]},
            "defaultSize is not among allowedSizes; add it there, or choose one of them",
        ),
        (
            {"mode": "mps", "defaultSize": "1of2", "memory": {"default": "10Gi"}},
            "defaultSize and memory.default both say what a plain nvidia.com/gpu becomes",
        ),
        (
            {"mode": "mig", "migProfile": "2g.20gb", "migProfiles": ["1g.10gb"]},
            "migProfile is not among migProfiles",
        ),
        ({"mode": "mps", "migProfile": "1g.10gb"}, "migProfile can never be used"),
        (
            {"mode": "mps", "memory": {"max": "10Gi", "default": "20Gi"}},
            "default is above max; raise max or lower default",
        ),
        ({"mode": "mps", "pool": "requests"}, "can be a pool; for example: team-a"),
        (
            {"mode": "mps", "tolerations": [{"effect": "NoSchedule"}]},
            "without a key the operator has to be Exists",
        ),
        ({"mode": "mps", "nodeSelector": {"a": "x y"}}, "spec.nodeSelector"),
        ({"mode": "mps", "runtimeClassName": "NVIDIA"}, "spec.runtimeClassName"),
        ({"mode": "sometimes"}, "Unsupported value"),
    ],
)
async def test_a_bad_profile_is_refused_when_it_is_written(
    with_crds: Client, spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        await with_crds.create(SHARING_PROFILES, _profile(spec), dry_run=True)

    assert said in refused.value.message


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"gpus": "0", "mode": "exclusive", "sizes": {"1of2": 2}}, "an exclusive GPU has no sizes"),
        ({"gpus": "0", "mode": "mps"}, "mps and time-slicing need sizes that are parts of a GPU"),
        (
            {"gpus": "0", "mode": "time-slicing", "sizes": {"1g.10gb": 1}},
            "need sizes that are parts",
        ),
        ({"gpus": "0", "mode": "mig", "sizes": {"1of2": 2}}, "mig needs MIG profiles as sizes"),
        (
            {"gpus": "0", "mode": "mps", "sizes": {"1of2": 2}, "pool": "status"},
            "can be a pool; for example: team-a",
        ),
    ],
)
async def test_a_bad_layout_is_refused_when_it_is_written(
    with_crds: Client, entry: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        await with_crds.create(GPU_LAYOUTS, _layout(entry), dry_run=True)

    assert said in refused.value.message


async def test_a_misspelled_field_is_told_to_who_wrote_it(with_crds: Client) -> None:
    profile = _profile({"mode": "mps", "defaultsize": "1of4"})
    warnings: list[str] = []

    await with_crds.create(SHARING_PROFILES, profile, dry_run=True, warnings=warnings)

    assert any('unknown field "spec.defaultsize"' in warning for warning in warnings)


async def test_the_webhook_configuration_is_accepted(
    control_plane: ControlPlane, admin: Client
) -> None:
    client = client_by_url("https://127.0.0.1:9443/mutate", control_plane.access.ca.read_bytes())

    made = await admin.create(
        MUTATING_WEBHOOKS, configuration(client, hide_gpus=True), dry_run=True
    )

    assert [each["name"] for each in made["webhooks"]] == [
        "pods.gpu.sharing",
        "workloads.gpu.sharing",
        "debug.gpu.sharing",
        "hide.gpu.sharing",
    ]


async def test_a_service_account_may_do_what_its_role_says_and_no_more(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    account = control_plane.access.service_account(namespace, "reader")
    async with Client.from_kubeconfig(account) as reader:
        with pytest.raises(ForbiddenError):
            await reader.list(CONFIG_MAPS, namespace=namespace)
        await _allow(admin, namespace, "reader", ["list"])

        async def listed() -> bool:
            try:
                await reader.list(CONFIG_MAPS, namespace=namespace)
            except ForbiddenError:
                return False
            return True

        await eventually("the role is in force", listed)
        with pytest.raises(ForbiddenError):
            await reader.create(
                CONFIG_MAPS, {"metadata": {"name": "mine"}}, namespace=namespace, dry_run=True
            )


async def _allow(admin: Client, namespace: str, account: str, verbs: list[str]) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    role = {"metadata": {"name": account}, "rules": [rule]}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    binding = {
        "metadata": {"name": account},
        "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
    }
    await admin.create(ROLES, role, namespace=namespace)
    await admin.create(ROLE_BINDINGS, binding, namespace=namespace)


async def test_a_user_without_rights_is_known_by_name(control_plane: ControlPlane) -> None:
    path = control_plane.access.kubeconfig("eve", ("tenants",))
    async with Client.from_kubeconfig(path) as eve:
        with pytest.raises(ForbiddenError, match='User "eve" cannot list'):
            await eve.list(CONFIG_MAPS, namespace="default")


@pytest.mark.parametrize("program", [ETCD, APISERVER])
async def test_objects_outlive_a_killed_program(
    control_plane: ControlPlane, admin: Client, namespace: str, program: str
) -> None:
    made = await admin.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, namespace=namespace)
    before = control_plane.pids()[program]

    control_plane.restart(program)

    async with Client.from_kubeconfig(control_plane.access.kubeconfig()) as again:
        found = await again.get(CONFIG_MAPS, "kept", namespace=namespace)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert control_plane.pids()[program] != before
