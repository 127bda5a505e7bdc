"""Each request form in each mode, from admission through scheduling to what Allocate answered.

The pods run on an embedded cluster with the product's real programs; each is deleted again, so
that the next finds its share free.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cli.trial.installation import Installation
from sharing.cluster.cache import Cache, whole
from sharing.cluster.kind import PODS
from sharing.mode import Mode
from sharing.names import GRANTS_ANNOTATION
from sharing.shareclass import parse_resource_name
from tests.support.forms import Case, cases

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def running(installed: Installation, namespace: str, name: str) -> dict[str, Any]:
    async with asyncio.timeout(20), Cache(installed.client, PODS, whole) as cache:
        await cache.wait_synced(timeout_s=20)

        def phase() -> str:
            pod = cache.get(name, namespace=namespace) or {}
            return str((pod.get("status") or {}).get("phase"))

        await cache.until(lambda _: phase() in ("Running", "Failed"))
        pod = cache.get(name, namespace=namespace)
        assert pod is not None
        return pod


async def gone(installed: Installation, namespace: str, name: str) -> None:
    await installed.client.delete(PODS, name, namespace=namespace, grace_s=0)
    async with asyncio.timeout(20), Cache(installed.client, PODS, whole) as cache:
        await cache.wait_synced(timeout_s=20)
        await cache.until(lambda store: store.get(name, namespace=namespace) is None)


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.name}-{c.mode}") for c in cases()])
async def test_a_form_becomes_its_share_on_a_gpu(case: Case, installed: Installation) -> None:
    namespace, name = case.mode.value, case.name

    await installed.client.create(PODS, case.manifest)
    pod = await running(installed, namespace, name)

    assert pod["status"]["phase"] == "Running", pod["status"]
    assert GRANTS_ANNOTATION in pod["metadata"]["annotations"]
    kubelet = installed.cluster.kubelets["n1"]
    for container in (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]:
        view = kubelet.view(namespace, name, container["name"])
        assert view is not None
        resource = case.expected.get(container["name"])
        assert list(view.devices) == ([resource] if resource else [])
        if resource:
            check_view(case.mode, resource, view.devices[resource], view.env)
        else:
            assert not any(key.startswith("GPU_SHARING_") for key in view.env)
    await gone(installed, namespace, name)


def check_view(mode: Mode, resource: str, ids: tuple[str, ...], env: Any) -> None:
    """One device, and the environment that binds the container to it."""
    share_class = parse_resource_name(resource)
    assert share_class is not None
    (device_id,) = ids
    gpu = device_id.partition("::")[0]
    assert env["GPU_SHARING_MODE"] == mode.value
    assert env["GPU_SHARING_RESOURCE"] == resource
    visible = env["NVIDIA_VISIBLE_DEVICES"]
    assert visible.startswith("MIG-") if mode is Mode.MIG else visible == gpu
    assert ("CUDA_MPS_PIPE_DIRECTORY" in env) == (mode is Mode.MPS)
    if mode is Mode.MPS:
        percentage = {"gpu.sharing/mps-1of4": "25", "gpu.sharing/mps-1of2": "50"}[resource]
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percentage
        assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].endswith("M")
