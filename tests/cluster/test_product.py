"""The programs as an operator runs them, beside a real node: from a pod to its container."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import GPU_NODES, MUTATING_WEBHOOKS, NODES, PODS
from sharing.names import GRANTS_ANNOTATION, MODE_LABEL
from sharing.quantity import parse_quantity
from tests.cluster.box.box import Box
from tests.cluster.daemons import check_runs
from tests.cluster.plainhttp import body_of
from tests.cluster.ports import free_ports
from tests.cluster.rights import chart_identities
from tests.cluster.waiting import eventually, until
from tests.cluster.workload import pod, reaches
from webhook.registration import client_by_url, configuration

pytestmark = pytest.mark.cluster

SHARE: Final = "gpu.sharing/mps-1of4"
LAYOUT: Final = "- {gpus: '0', mode: mps, sizes: {1of4: 4}}\n- {gpus: rest, mode: exclusive}\n"
COMMAND: Final = (sys.executable, "-m", "cli.main")
START_S: Final = 30.0


@pytest.fixture(scope="module")
def with_crds(node_box: Box) -> Box:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for manifest in crd_manifests():
        node_box.access.call("POST", path, manifest)
        name = manifest["metadata"]["name"]
        until(
            f"{name} is served",
            partial(_is_established, node_box, f"{path}/{name}"),
            timeout_s=START_S,
        )
    return node_box


@pytest.fixture(scope="module")
def identities(with_crds: Box) -> dict[str, Path]:
    """Kubeconfigs of the chart's accounts, with the chart's rights."""
    return chart_identities(with_crds.access)


def _is_established(box: Box, path: str) -> bool:
    conditions = box.access.call("GET", path).get("status", {}).get("conditions", ())
    return ("Established", "True") in {(each["type"], each["status"]) for each in conditions}


@pytest.fixture(scope="module")
def agent(with_crds: Box, identities: dict[str, Path]) -> Iterator[Box]:
    """The node's agent with two simulated GPUs, a process of this machine."""
    box, folder = with_crds, with_crds.spec.folder / "agent"
    folder.mkdir()
    (folder / "layout.yaml").write_text(LAYOUT)
    options = {
        "--node-name": box.node,
        "--kubeconfig": identities["agent"],
        "--layout": folder / "layout.yaml",
        "--simulate": "2xH100-80GB",
        "--simulate-state": folder / "gpus.json",
        "--kubelet-dir": box.kubelet_dir,
        "--cdi-dir": box.cdi_dir,
        "--state-dir": folder / "state",
        "--mps-dir": folder / "mps",
    }
    words = [str(word) for option in options.items() for word in option]
    process = box.start_outside("agent", (*COMMAND, "agent", "--end-mps", *words))
    until(
        "the agent is ready",
        lambda: "agent is ready" in box.log_tail("agent"),
        timeout_s=START_S,
        still=partial(check_runs, process, box.spec.logs, "agent"),
    )
    yield box
    process.terminate()
    assert process.wait(START_S) == 0, box.log_tail("agent")


@pytest.fixture(scope="module")
def served(agent: Box, identities: dict[str, Path]) -> Iterator[Box]:
    """The webhook, a process of this machine, called from inside; registered."""
    box = agent
    port, health = free_ports(2)
    pair = box.access.authority.server("product-webhook", ("127.0.0.1",))
    options = {
        "--kubeconfig": identities["webhook"],
        "--cert": pair.certificate,
        "--key": pair.key,
        "--host": "127.0.0.1",
        "--port": port,
        "--health-host": "127.0.0.1",
        "--health-port": health,
        "--drain-delay": 0,
        "--drain-timeout": 1,
    }
    words = [str(word) for option in options.items() for word in option]
    process = box.start_outside("webhook", (*COMMAND, "webhook", *words))
    until(
        "the webhook is ready",
        lambda: body_of(health, "/readyz"),
        timeout_s=START_S,
        still=partial(check_runs, process, box.spec.logs, "webhook"),
    )
    url = f"https://127.0.0.1:{box.let_in(port)}/mutate"
    hook = configuration(client_by_url(url, box.access.ca.read_bytes()))
    path = MUTATING_WEBHOOKS.path()
    box.access.call("POST", path, hook)
    yield box
    box.access.call("DELETE", f"{path}/{hook['metadata']['name']}")
    process.terminate()
    assert process.wait(START_S) == 0, box.log_tail("webhook")


@pytest.fixture
async def admin(node_box: Box) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(node_box.access.kubeconfig()) as client:
        yield client


@pytest.fixture
def tenant(node_box: Box) -> Iterator[str]:
    """A namespace whose GPUs are shared by MPS."""
    with node_box.access.namespace(account=True, labels={MODE_LABEL: "mps"}) as name:
        yield name


async def test_the_kubelet_counts_what_the_agent_published(agent: Box, admin: Client) -> None:
    async def counted() -> dict[str, int]:
        listed = (await admin.get(NODES, agent.node))["status"]["allocatable"]
        ours = {k: int(parse_quantity(v)) for k, v in listed.items() if _is_gpu(k)}
        return ours if ours.get(SHARE) else {}

    assert await eventually("the shares are allocatable", counted) == {
        SHARE: 4,
        "nvidia.com/gpu": 1,
        "gpu.sharing/milli-gpu": 2000,
    }
    published = await admin.get(GPU_NODES, agent.node)
    assert [gpu["board"] for gpu in published["status"]["gpus"]] == ["H100-80GB", "H100-80GB"]


def _is_gpu(resource: str) -> bool:
    return resource.startswith(("nvidia.com/", "gpu.sharing/"))


async def test_a_quarter_of_a_gpu_reaches_its_container(
    served: Box, admin: Client, tenant: str
) -> None:
    asking = pod(
        "asking",
        limits={"nvidia.com/gpu": "1"},
        annotations={"gpu.sharing/fraction": "0.25"},
        env={"NVIDIA_VISIBLE_DEVICES": "all"},
    )
    made = await _create_when_served(admin, asking, tenant)
    await reaches(admin, tenant, "asking", "Running")

    assert made["spec"]["containers"][0]["resources"]["limits"] == {SHARE: "1"}
    assert json.loads(made["metadata"]["annotations"][GRANTS_ANNOTATION])
    env = _env(served, tenant, "asking")
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert env["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-"), "a tenant must not see all GPUs"
    assert env["GPU_SHARING_RESOURCE"] == SHARE
    told = json.loads(served.kubectl("-n", tenant, "exec", "asking", "--", "cat", *_files(env)))
    assert (told["resource"], told["threadPercentage"]) == (SHARE, 25)


async def _create_when_served(
    client: Client, item: dict[str, Any], namespace: str
) -> dict[str, Any]:
    """Create a pod as soon as the webhook's new registration is in force."""

    async def granted() -> bool:
        tried = await client.create(PODS, item, namespace=namespace, dry_run=True)
        return GRANTS_ANNOTATION in tried["metadata"]["annotations"]

    await eventually("the webhook is in force", granted)
    return await client.create(PODS, item, namespace=namespace)


def _files(env: dict[str, str]) -> list[str]:
    return env["GPU_SHARING_FILES"].split(",")


def _env(box: Box, namespace: str, name: str) -> dict[str, str]:
    text = box.kubectl("-n", namespace, "exec", name, "--", "env")
    return dict(line.split("=", 1) for line in text.splitlines())


async def test_a_pod_that_asks_for_no_gpu_sees_none(
    served: Box, admin: Client, tenant: str
) -> None:
    await admin.create(PODS, pod("plain"), namespace=tenant)
    await reaches(admin, tenant, "plain", "Running")

    gpu = {k for k in _env(served, tenant, "plain") if k.startswith(("NVIDIA", "CUDA", "GPU"))}
    assert gpu == set()


async def test_a_malformed_wish_is_refused_in_our_words(
    served: Box, admin: Client, tenant: str
) -> None:
    asking = pod("asking", limits={"nvidia.com/gpu": "1"})
    asking["metadata"]["annotations"] = {"gpu.sharing/fraction": "much"}

    async def refused() -> str:
        try:
            await admin.create(PODS, asking, namespace=tenant, dry_run=True)
        except ApiError as error:
            return error.message
        return ""

    said = await eventually("the webhook is in force", refused)
    assert "gpu.sharing/fraction" in said
    assert "much" in said
    assert "0.25" in said, "a refusal shows one spelling that works"
