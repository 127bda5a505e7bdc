"""The chart on a whole real node: from an earlier chart over two upgrades to its removal.

The programs run under the accounts, with the rights, arguments and ports that Helm put there; the
webhook makes its own certificate and has API servers trust it, and they call it by its Service.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES, NODES, PODS
from sharing.names import MANAGED_LABEL
from tests.chart import installing, release, rendering
from tests.chart.release import ON_A_NODE, Programs, helm, values_file
from tests.cluster.box.box import Box
from tests.cluster.needs import Tier
from tests.cluster.waiting import eventually, until
from tests.cluster.workload import pod, reaches

pytestmark = [pytest.mark.cluster(Tier.NODE.value), pytest.mark.usefixtures("with_helm")]

SHARE: Final = "gpu.sharing/mps-1of4"
PROGRAMS: Final = ("controller", "agent", "webhook")


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """A node of its own: an installation is one of a whole cluster."""
    with Box(labels={MANAGED_LABEL: "true"}) as running:
        yield running


@pytest.fixture
async def admin(box: Box) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(box.access.kubeconfig()) as client:
        yield client


def layout() -> dict[str, Any]:
    entries = [
        {"gpus": "0", "mode": "mps", "sizes": {"1of4": 4}},
        {"gpus": "rest", "mode": "exclusive"},
    ]
    return {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "GPULayout",
        "metadata": {"name": "quarters"},
        "spec": {"gpus": entries},
    }


@pytest.mark.timeout(300)
async def test_a_release_is_installed_upgraded_twice_and_removed(
    box: Box, admin: Client, tmp_path: Path
) -> None:
    access, programs = box.access, Programs(box)
    installing.create(access, [installing.namespace()])
    helm(access, "install", str(release.previous_chart(tmp_path / "previous")))
    values = values_file(tmp_path, ON_A_NODE)

    helm(access, "upgrade", str(rendering.CHART), *values)
    for name in PROGRAMS:
        programs.start(name)
    with release.endpoint(box), release.tenant(box, "mps") as tenant:
        await _serves(admin, tenant, "first")
        assert release.verified(box) == "verified: every caller accepts what is served\n"
        await _upgrade_under_way(box, admin, tenant, (*values, "--set", "webhook.hideGPUs=true"))
        programs.stop("webhook")
        await _only_gpu_pods_wait(admin, tenant)
        programs.start("webhook")

        helm(access, "uninstall")
        await _is_removed_but_for_what_people_wrote(box, admin, tenant)
    assert [programs.stop(name) for name in PROGRAMS] == [0, 0, 0], box.log_tail()


async def _serves(admin: Client, tenant: str, name: str) -> None:
    """A layout becomes shares, and a plain request a running container with one of them."""
    if name == "first":
        await admin.create(GPU_LAYOUTS, layout())
    await eventually("the shares are allocatable", partial(_offers, admin), timeout_s=60)
    asking = pod(name, limits={"nvidia.com/gpu": "1"})
    asking["metadata"]["annotations"] = {"gpu.sharing/fraction": "1/4"}

    async def granted() -> bool:
        """The webhook is called, and what it answers is trusted."""
        try:
            made = await admin.create(PODS, asking, namespace=tenant, dry_run=True)
        except ApiError as error:
            return "failed calling webhook" not in error.message and _fail(error)
        return SHARE in made["spec"]["containers"][0]["resources"]["limits"]

    await eventually("pods get grants", granted, timeout_s=60)
    await admin.create(PODS, asking, namespace=tenant)
    await reaches(admin, tenant, name, "Running")


def _fail(error: ApiError) -> bool:
    raise error


async def _offers(admin: Client) -> bool:
    (node,) = (await admin.list(NODES))["items"]
    return SHARE in node["status"]["allocatable"] and node["status"]["allocatable"][SHARE] == "4"


async def _upgrade_under_way(box: Box, admin: Client, tenant: str, values: tuple[str, ...]) -> None:
    """An upgrade neither takes trust away nor disturbs what runs; what is new is trusted soon."""
    before = release.bundles(box.access)
    assert all(before.values())
    running = await admin.get(PODS, "first", namespace=tenant)

    helm(box.access, "upgrade", str(rendering.CHART), *values)

    after = release.bundles(box.access)
    assert {name: after[name] for name in before} == before
    until(
        "the new entry is trusted",
        lambda: release.bundles(box.access)["hide.gpu.sharing"],
        timeout_s=60,
    )
    (authority, *_) = x509.load_pem_x509_certificates(
        base64.b64decode(release.bundles(box.access)["hide.gpu.sharing"])
    )
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    await _serves(admin, tenant, "second")
    same = await admin.get(PODS, "first", namespace=tenant)
    assert same["metadata"]["uid"] == running["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0


async def _only_gpu_pods_wait(admin: Client, tenant: str) -> None:
    """While no replica answers, a pod that asks for no GPU is made as ever where nothing hides."""
    await admin.create(PODS, pod("plain"), namespace="default", dry_run=True)
    asking = pod("waiting", limits={"nvidia.com/gpu": "1"})
    with pytest.raises(ApiError, match=r"failed calling webhook .pods\.gpu\.sharing"):
        await admin.create(PODS, asking, namespace=tenant, dry_run=True)


async def _is_removed_but_for_what_people_wrote(box: Box, admin: Client, tenant: str) -> None:
    objects = [
        each
        for each in rendering.objects("simulated")
        if each["kind"] != "CustomResourceDefinition"
    ]
    for each in objects:
        path = installing.path_of(each)
        until(f"{path} is gone", lambda: not installing.is_there(box.access, path), timeout_s=60)  # noqa: B023 - called at once
    assert (await admin.get(GPU_LAYOUTS, "quarters"))["spec"]["gpus"]
    assert (await admin.get(GPU_NODES, box.node))["status"]["gpus"]
    first = await admin.get(PODS, "first", namespace=tenant)
    assert first["status"]["phase"] == "Running"
    plain = pod("after", limits={"nvidia.com/gpu": "1"})
    made = await admin.create(PODS, plain, namespace=tenant, dry_run=True)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
