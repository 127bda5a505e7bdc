"""A real API server takes what the chart renders, and Helm installs, upgrades and removes it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import ForbiddenError
from sharing.cluster.kind import GPU_NODES, NODES
from tests.chart import installing, rendering
from tests.chart.tool import HELM
from tests.cluster.access import Access
from tests.cluster.controlplane import ControlPlane
from tests.cluster.waiting import eventually, until

pytestmark = pytest.mark.cluster

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpu-sharing"
STATE = "nvidia.com/mig.config.state"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def home(plane: ControlPlane) -> Access:
    """A control plane with our namespace and the priority classes that a cluster has."""
    installing.create(plane.access, [installing.namespace()])
    return plane.access


@pytest.mark.parametrize("values", rendering.SETS)
async def test_every_object_is_accepted_without_a_warning(home: Access, values: str) -> None:
    kinds = [each for each in rendering.objects(values) if installing.is_ours_to_try(each)]
    warnings: list[str] = []
    async with Client.from_kubeconfig(home.kubeconfig()) as client:
        for each in kinds:
            await client.request(
                "POST",
                installing.path_of(each, collection=True),
                body=each,
                query={"dryRun": "All", "fieldValidation": "Strict"},
                warnings=warnings,
            )

    assert warnings == []
    assert len(kinds) > 20


@pytest.mark.parametrize("values", sorted(rendering.MANIFESTS))
async def test_the_plain_manifests_are_accepted(home: Access, values: str) -> None:
    items = list(yaml.safe_load_all(rendering.MANIFESTS[values].read_text("utf-8")))
    async with Client.from_kubeconfig(home.kubeconfig()) as client:
        for each in items[1:]:
            await client.request(
                "POST",
                installing.path_of(each, collection=True),
                body=each,
                query={"dryRun": "All", "fieldValidation": "Strict"},
            )

    assert items[0]["kind"] == "Namespace"


# -- Helm


@pytest.fixture
def release(home: Access, with_helm: None) -> Iterator[Access]:
    """The chart with its default values, installed by Helm, taken away again."""
    everything = rendering.objects("hardened")
    try:
        helm(home, "install", "default")
        yield home
    finally:
        HELM.run("uninstall", "gpu-sharing", *where(home))  # unless the test did
        installing.remove(home, everything)


def where(access: Access) -> tuple[str, ...]:
    return ("--namespace", rendering.NAMESPACE, "--kubeconfig", str(access.kubeconfig()))


def helm(access: Access, verb: str, values: str = "") -> str:
    words = [verb, "gpu-sharing"]
    if values:
        words += [str(rendering.CHART), "--values", str(rendering.CHART / "ci" / f"{values}.yaml")]
    done = HELM.run(*words, *where(access))
    assert done.returncode == 0, done.stderr
    return done.stdout


def crds(access: Access) -> dict[str, set[str]]:
    """The conditions that hold, of each of our CRDs."""
    return {
        each["metadata"]["name"]: {
            one["type"]
            for one in each.get("status", {}).get("conditions", ())
            if one["status"] == "True"
        }
        for each in access.call("GET", CRDS)["items"]
        if each["spec"]["group"] == "gpu.sharing"
    }


def left(access: Access) -> list[str]:
    """Objects of the release that are still there, CRDs left out."""
    paths = [
        installing.path_of(each)
        for each in rendering.objects("default")
        if each["kind"] != "CustomResourceDefinition"
    ]
    return [path for path in paths if installing.is_there(access, path)]


def test_helm_installs_upgrades_and_removes_all_but_what_people_wrote(release: Access) -> None:
    until(
        "CRDs are established",
        lambda: all("Established" in each for each in crds(release).values()) and crds(release),
        timeout_s=30,
    )
    profile = {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "SharingProfile",
        "metadata": {"name": "kept"},
        "spec": {"mode": "mps", "defaultSize": "1of4"},
    }
    installing.create(release, [profile])
    assert len(left(release)) == len(
        [e for e in rendering.objects("default") if e["kind"] != "CustomResourceDefinition"]
    )

    helm(release, "upgrade", "hardened")
    entries = release.call("GET", CONFIGURATION)["webhooks"]
    assert [each["name"] for each in entries][-1] == "hide.gpu.sharing"

    helm(release, "uninstall")
    assert left(release) == []
    assert len(crds(release)) == 3
    assert release.call("GET", installing.path_of(profile))["spec"]["mode"] == "mps"


async def test_an_upgrade_leaves_the_bundle_that_a_rotation_put_there(release: Access) -> None:
    bundle = release.ca.read_bytes()
    async with Client.from_kubeconfig(release.kubeconfig()) as client:
        found = await client.request("GET", CONFIGURATION)
        patch = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": _b64(bundle)}
            for at in range(len(found["webhooks"]))
        ]
        await client.request(
            "PATCH", CONFIGURATION, body=patch, content_type="application/json-patch+json"
        )

    helm(release, "upgrade", "hardened")

    upgraded = release.call("GET", CONFIGURATION)["webhooks"]
    bundles = {each["name"]: each["clientConfig"].get("caBundle") for each in upgraded}
    assert bundles.pop("hide.gpu.sharing") is None, "its replicas add it"
    assert set(bundles.values()) == {_b64(bundle)}
    helm(release, "uninstall")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- the agent's own node


@pytest.fixture
def nodes(home: Access) -> Iterator[Access]:
    """Two nodes, and everything of the default set."""
    head = {"apiVersion": "v1", "kind": "Node"}
    two = [{**head, "metadata": {"name": name}} for name in ("n1", "n2")]
    with installing.installed(home, [*rendering.objects("default"), *two]):
        until(
            "CRDs are established",
            lambda: all("Established" in each for each in crds(home).values()) and crds(home),
            timeout_s=30,
        )
        yield home


async def test_an_agent_writes_its_own_node_and_no_other(nodes: Access) -> None:
    mine = installing.bound_account(nodes, "gpu-sharing-agent", "n1")
    async with Client.from_kubeconfig(mine) as agent:
        await eventually("the policy is in force", partial(_is_refused, agent, "n2"))

        await agent.patch(NODES, "n1", {"metadata": {"labels": {"gpu.sharing/modes": "mps"}}})
        await agent.create(GPU_NODES, _gpu_node("n1"))
        with pytest.raises(ForbiddenError, match="an agent writes its own node only"):
            await agent.create(GPU_NODES, _gpu_node("n2"))
        with pytest.raises(ForbiddenError, match="the agent on node n1 may not write n2"):
            await agent.patch(
                NODES, "n2", {"status": {"capacity": {"gpu.sharing/milli-gpu": "1"}}},
                subresource="status",
            )  # fmt: skip
        await agent.patch(
            NODES, "n1", {"status": {"capacity": {"gpu.sharing/milli-gpu": "1000"}}},
            subresource="status",
        )  # fmt: skip


NOT_ITS_OWN: tuple[tuple[dict[str, Any], str], ...] = (
    ({"metadata": {"labels": {"gpu.sharing/managed": "true"}}}, "label gpu.sharing/managed of its"),
    ({"metadata": {"labels": {"pool": "team-a"}}}, "change the label pool of its Node"),
    ({"metadata": {"labels": {STATE: "success"}}}, f"change the label {STATE} of its Node"),
    ({"metadata": {"annotations": {"a": "b"}}}, "not its spec, taints or annotations"),
    ({"spec": {"unschedulable": True}}, "not its spec, taints or annotations"),
    ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "not its spec, taints"),
)


async def test_an_agent_changes_nothing_else_of_its_node(nodes: Access) -> None:
    mine = installing.bound_account(nodes, "gpu-sharing-agent", "n1")
    async with Client.from_kubeconfig(mine) as agent:
        await eventually("the policy is in force", partial(_is_refused, agent, "n2"))
        for change, says in NOT_ITS_OWN:
            with pytest.raises(ForbiddenError, match=re.escape(says)):
                await agent.patch(NODES, "n1", change)
            if "spec" not in change:  # an update of the status leaves the spec as it is
                with pytest.raises(ForbiddenError, match=re.escape(says)):
                    await agent.patch(NODES, "n1", change, subresource="status")


async def test_an_agent_that_stands_in_for_the_mig_manager_may_write_its_state(
    nodes: Access,
) -> None:
    mine = installing.bound_account(nodes, "gpu-sharing-agent", "n1")
    async with Client.from_kubeconfig(mine) as agent:
        await eventually("a policy is in force", partial(_is_refused, agent, "n2"))
        assert not await _may_write_state(agent)
        await _replace_policy(nodes, "extended")
        await eventually("the other policy is in force", partial(_may_write_state, agent))
        with pytest.raises(ForbiddenError, match=r"label nvidia\.com/mig\.config of"):
            await agent.patch(NODES, "n1", {"metadata": {"labels": {"nvidia.com/mig.config": "x"}}})


async def _replace_policy(access: Access, values: str) -> None:
    """Have a value set's policy over the agents in force instead of what is."""
    wanted = rendering.the(values, "ValidatingAdmissionPolicy", "gpu-sharing-agent-own-node")
    async with Client.from_kubeconfig(access.kubeconfig()) as admin:
        path = installing.path_of(wanted)
        await admin.request(
            "PATCH", path, body={"spec": wanted["spec"]}, content_type=PatchType.MERGE
        )


async def _may_write_state(client: Client) -> bool:
    try:
        await client.patch(NODES, "n1", {"metadata": {"labels": {STATE: "success"}}})
    except ForbiddenError:
        return False
    return True


async def test_a_stolen_account_without_a_node_writes_none(nodes: Access) -> None:
    path = nodes.service_account(rendering.NAMESPACE, "gpu-sharing-agent")
    async with Client.from_kubeconfig(path) as thief:
        await eventually("the policy is in force", partial(_is_refused, thief, "n1"))


async def _is_refused(client: Client, node: str) -> bool:
    try:
        await client.patch(NODES, node, {"metadata": {"labels": {"gpu.sharing/modes": "x"}}})
    except ForbiddenError as error:
        return "an agent writes its own node only" in error.message
    return False


def _gpu_node(name: str) -> dict[str, Any]:
    head = {"apiVersion": "gpu.sharing/v1alpha1", "kind": "GPUNode"}
    return {**head, "metadata": {"name": name}, "spec": {}}
