"""What becomes of a cluster while no replica of the webhook is up, and how it heals.

Each statement of docs/operations/certificates.md about that is shown here on a real API server.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from benchmarks.certificates.load import POD
from benchmarks.certificates.observer import bundles_of
from benchmarks.certificates.scene import API_FLAGS, TENANT, Scene
from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError, ConflictError, NotFoundError
from sharing.cluster.kind import MUTATING_WEBHOOKS, NAMESPACES, PODS, Kind
from sharing.names import GRANTS_ANNOTATION
from tests.cluster import leftovers
from tests.cluster.controlplane import ControlPlane
from tests.cluster.waiting import eventually

pytestmark = [
    pytest.mark.cluster("control plane"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

DEPLOYMENTS: Final = Kind(kind="Deployment", plural="deployments", group="apps")
CONFIGURATION: Final = "gpu-sharing"
UNCALLED: Final = 'failed calling webhook "pods.gpu.sharing"'


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    folder = leftovers.make_folder()
    try:
        with ControlPlane(folder, api_flags=API_FLAGS) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """What three replicas came to that began at once on nothing."""

    authorities: int
    in_bundles: frozenset[int]
    certificates: int
    violations: tuple[str, ...]


async def beginning(scene: Scene) -> Began:
    item = await scene.admin.get(MUTATING_WEBHOOKS, CONFIGURATION)
    return Began(
        authorities=len((await scene.stored()).trusted),
        in_bundles=frozenset(map(len, bundles_of(item))),
        certificates=len(scene.observer.served),
        violations=tuple(scene.observer.violations),
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(plane: ControlPlane) -> AsyncIterator[tuple[Scene, Began]]:
    """A cluster in which three replicas began at once on nothing, and some pods were made."""
    home = plane.logs.parent / "scene"
    home.mkdir()
    async with Scene(plane=plane, folder=home) as made:
        await made.start_ready(3)
        await eventually("pods are reviewed", lambda: is_reviewed(made.admin))
        await made.admin.create(PODS, named("runs"), namespace=TENANT)
        await made.admin.create(DEPLOYMENTS, deployment("scaled"), namespace=TENANT)
        for system in ("kube-system", "gpu-sharing"):
            with suppress(ConflictError):
                await made.admin.create(NAMESPACES, {"metadata": {"name": system}})
        yield made, await beginning(made)


@pytest.fixture
def scene(world: tuple[Scene, Began]) -> Scene:
    return world[0]


@pytest.fixture
def began(world: tuple[Scene, Began]) -> Began:
    return world[1]


@pytest_asyncio.fixture(loop_scope="module")
async def absent(scene: Scene) -> Client:
    """The same cluster after all replicas were killed; who may do everything there."""
    for one in scene.running():
        one.send(signal.SIGKILL)
        await one.ended()
        await scene.forget(one)

    async def is_away() -> bool:
        with suppress(ApiError):
            await scene.admin.create(PODS, POD, namespace=TENANT, dry_run=True)
            return False
        return True

    await eventually("the API server finds nobody", is_away)
    return scene.admin


def named(name: str, **limits: str) -> dict[str, Any]:
    """A pod that asks for a GPU, or for something else."""
    container = {**POD["spec"]["containers"][0]}
    if limits:
        container["resources"] = {"limits": limits}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": named("unused")["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def is_reviewed(client: Client) -> bool:
    """Whether a pod comes back with a grant."""
    try:
        made = await client.create(PODS, POD, namespace=TENANT, dry_run=True)
    except ApiError:
        return False
    return GRANTS_ANNOTATION in made["metadata"].get("annotations", {})


async def test_three_replicas_that_start_at_once_agree_on_one_authority(began: Began) -> None:
    assert began == Began(authorities=1, in_bundles=frozenset({1}), certificates=1, violations=())


async def test_a_pod_that_asks_for_a_gpu_waits(absent: Client) -> None:
    with pytest.raises(ApiError, match=UNCALLED) as refused:
        await absent.create(PODS, named("waits"), namespace=TENANT)

    # Not a refusal of the pod: whoever made it tries again.
    assert refused.value.code == 500


async def test_a_pod_that_asks_for_no_gpu_does_not_wait(absent: Client) -> None:
    # topolvm#57, netbird#168, policy-controller#1660: all webhook pods down, CNI pod blocked.
    plain = named("plain", cpu="1", memory="1Gi")

    made = await absent.create(PODS, plain, namespace=TENANT)

    assert made["metadata"]["uid"]


@pytest.mark.parametrize("system", ["kube-system", "gpu-sharing"])
async def test_pods_of_the_system_and_our_own_do_not_wait(absent: Client, system: str) -> None:
    made = await absent.create(PODS, named("driver"), namespace=system, dry_run=True)

    assert made["metadata"]["name"] == "driver"


async def test_pods_that_a_kubelet_mirrors_do_not_wait(absent: Client, scene: Scene) -> None:
    groups = ("system:masters", "system:nodes")
    access = scene.plane.access.kubeconfig("system:node:node-a", groups)
    async with Client.from_kubeconfig(access) as kubelet:
        made = await kubelet.create(PODS, named("mirrored"), namespace=TENANT, dry_run=True)

    assert made["metadata"]["name"] == "mirrored"


async def test_what_runs_is_written_and_deleted_as_before(absent: Client) -> None:
    labelled = {"metadata": {"labels": {"changed": "yes"}}}
    await absent.patch(PODS, "runs", labelled, namespace=TENANT)
    running = {"status": {"phase": "Running"}}
    await absent.patch(PODS, "runs", running, namespace=TENANT, subresource="status")
    await absent.delete(PODS, "runs", namespace=TENANT, grace_s=0)

    with pytest.raises(NotFoundError):
        await absent.get(PODS, "runs", namespace=TENANT)


async def test_a_new_workload_with_gpus_waits_and_an_old_one_is_scaled(absent: Client) -> None:
    with pytest.raises(ApiError, match="failed calling webhook"):
        await absent.create(DEPLOYMENTS, deployment("new"), namespace=TENANT)

    scale = {"spec": {"replicas": 3}}
    scaled = await absent.patch(DEPLOYMENTS, "scaled", scale, namespace=TENANT, subresource="scale")

    assert scaled["spec"]["replicas"] == 3


async def test_one_replica_that_comes_back_is_enough(absent: Client, scene: Scene) -> None:
    before = await scene.stored()

    await scene.start_ready()
    await eventually("pods are reviewed", lambda: is_reviewed(absent))

    # Nothing was made anew: what the dead ones left in the Secret is served on.
    assert (await scene.stored()).current == before.current
    assert scene.observer.violations == []


async def test_our_configuration_can_be_deleted_and_comes_back_trusted(
    absent: Client, scene: Scene
) -> None:
    kept = await absent.get(MUTATING_WEBHOOKS, CONFIGURATION)
    await absent.delete(MUTATING_WEBHOOKS, CONFIGURATION)

    async def passes() -> bool:
        try:
            made = await absent.create(PODS, POD, namespace=TENANT, dry_run=True)
        except ApiError:
            return False
        return GRANTS_ANNOTATION not in made["metadata"].get("annotations", {})

    await eventually("pods pass unreviewed", passes)
    for entry in kept["webhooks"]:
        entry["clientConfig"].pop("caBundle", None)
    metadata = {"name": CONFIGURATION, "labels": kept["metadata"]["labels"]}
    await absent.create(MUTATING_WEBHOOKS, {**kept, "metadata": metadata})
    await scene.start_ready()
    await eventually("pods are reviewed", lambda: is_reviewed(absent))

    item = await absent.get(MUTATING_WEBHOOKS, CONFIGURATION)
    assert all(bundles_of(item))
    assert scene.observer.violations == []


async def test_a_secret_that_is_lost_together_with_all_replicas_is_made_anew(
    absent: Client, scene: Scene
) -> None:
    before = (await scene.stored()).current
    path = "/api/v1/namespaces/gpu-sharing/secrets/gpu-sharing-webhook-certs"
    await absent.request("DELETE", path)

    await scene.start_ready()
    await eventually("pods are reviewed", lambda: is_reviewed(absent))

    assert (await scene.stored()).current not in {None, before}
    assert scene.observer.violations == []
