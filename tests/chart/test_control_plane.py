"""A real API server takes what the chart renders, and Helm installs, upgrades and removes it."""

from __future__ import annotations

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
from tests.cluster.access import Access
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpu-sharing"
STATE = "nvidia.com/mig.config.state"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize("values", rendering.SETS)
async def test_every_object_is_accepted_without_a_warning(home: Access, values: str) -> None:
    kinds = [each for each in rendering.objects(values) if installing.is_ours_to_try(each)]
    warnings: list[str] = []
    async with Client.from_kubeconfig(home.kubeconfig()) as client:
        for each in kinds:
            await _try_to_apply(client, each, warnings)

    assert warnings == []
    assert len(kinds) > 20


@pytest.mark.parametrize("values", sorted(rendering.MANIFESTS))
async def test_the_plain_manifests_are_accepted(home: Access, values: str) -> None:
    items = list(yaml.safe_load_all(rendering.MANIFESTS[values].read_text("utf-8")))
    async with Client.from_kubeconfig(home.kubeconfig()) as client:
        for each in items[1:]:
            await _try_to_apply(client, each, [])

    assert items[0]["kind"] == "Namespace"


async def _try_to_apply(client: Client, item: dict[str, Any], warnings: list[str]) -> None:
    query = {"fieldManager": "test", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
    await client.request(
        "PATCH",
        installing.path_of(item),
        body=item,
        query=query,
        content_type="application/apply-patch+yaml",
        warnings=warnings,
    )


# -- the agent's own node


@pytest.fixture
def nodes(home: Access) -> Iterator[Access]:
    """Two nodes, and everything of the default set."""
    head = {"apiVersion": "v1", "kind": "Node"}
    two = [{**head, "metadata": {"name": name}} for name in ("n1", "n2")]
    ours = [each for each in rendering.objects("default") if not installing.is_crd(each)]
    with installing.installed(home, [*ours, *two]):
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
