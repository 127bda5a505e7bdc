"""The chart's own Deployment on a whole node: one rotation and one rolling restart, nobody notices.

The pods run under containerd with the chart's account, probes, security contexts, drain and grace
period, and with its times: with ``GPU_SHARING_PATIENT=1`` the test lasts until the rotation is
through and the replaced pods have ended, two minutes. There is no engine that would build the
image, so what would be in it is mounted into them from this machine, read-only.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from benchmarks.certificates.counts import ApiCounts, failures
from benchmarks.certificates.load import Load
from benchmarks.certificates.scene import TENANT
from benchmarks.cluster import inventory
from certs.cluster import Cluster, Place
from certs.secret import Stored, read_secret
from sharing.cluster.client import Client
from sharing.cluster.errors import NotFoundError
from sharing.cluster.kind import GPU_NODES, NAMESPACES, PODS, SECRETS, Kind
from sharing.names import MANAGED_LABEL, MODE_LABEL
from tests.chart import installing, rendering
from tests.cluster.box.box import Box
from tests.cluster.box.configuration import IMAGE
from tests.cluster.needs import Tier
from tests.cluster.waiting import eventually

pytestmark = [
    pytest.mark.cluster(Tier.NODE.value),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(400),
]

DEPLOYMENTS: Final = Kind(kind="Deployment", plural="deployments", group="apps")
NAME: Final = "gpu-sharing-webhook"
LABEL: Final = "app.kubernetes.io/component=webhook"
PATIENT: Final = os.environ.get("GPU_SHARING_PATIENT") == "1"
"""With the chart's times a rotation takes a minute and an end a minute and a half: who is not
patient sees both begin."""
ON_S: Final = 10
"""For so long after the restart old pods are watched: their ports close after 5 s."""
RATE: Final = 40.0
CALLERS: Final = 8
MOUNTED: Final = tuple(
    sorted({str(rendering.ROOT), sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64"})
)
"""This project, Python, the packages, and the libraries of the system that they use."""
NOT_PODS: Final = ("DaemonSet", "Deployment")


def with_image(deployment: dict[str, Any], server: str) -> dict[str, Any]:
    """The Deployment, its image's contents mounted, and the API server where there is no proxy."""
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    host, _, port = server.removeprefix("https://").partition(":")
    volumes = [{"name": f"image-{at}", "path": path} for at, path in enumerate(MOUNTED)]
    container = {
        **container,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [str(Path(sys.executable)), "-m", "cli.main"],
        "workingDir": str(rendering.ROOT),
        "env": [
            *container.get("env", ()),
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "KUBERNETES_SERVICE_HOST", "value": host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": port},
        ],
        "volumeMounts": [
            *container.get("volumeMounts", ()),
            *({"name": v["name"], "mountPath": v["path"], "readOnly": True} for v in volumes),
        ],
    }
    mounted = [
        *spec.get("volumes", ()),
        *({"name": v["name"], "hostPath": {"path": v["path"]}} for v in volumes),
    ]
    template = {
        **deployment["spec"]["template"],
        "spec": {**spec, "containers": [container], "volumes": mounted},
    }
    return {**deployment, "spec": {**deployment["spec"], "template": template}}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """A node of its own: an installation is one of a whole cluster."""
    with Box(labels={MANAGED_LABEL: "true"}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(box: Box) -> AsyncIterator[Client]:
    """The chart's objects with its default values, the webhook's pods ready."""
    items = [
        with_image(item, f"https://{box.spec.address}:{box.spec.server.rpartition(':')[2]}")
        if item["metadata"]["name"] == NAME and item["kind"] == "Deployment"
        else item
        for item in rendering.objects("default")
        if item["kind"] not in NOT_PODS or item["metadata"]["name"] == NAME
    ]
    installing.create(box.access, [installing.namespace(), *items])
    async with Client.from_kubeconfig(box.access.kubeconfig()) as client:
        await eventually("the CRDs are served", lambda: _served(client), timeout_s=60)
        await inventory.publish(client, [box.node])
        labels = {MODE_LABEL: "mps"}
        await client.create(NAMESPACES, {"metadata": {"name": TENANT, "labels": labels}})
        try:
            await eventually("two replicas are ready", lambda: is_rolled_out(client), timeout_s=120)
        except AssertionError as error:
            error.add_note(said(box))
            raise
        yield client


async def _served(client: Client) -> bool:
    try:
        await client.list(GPU_NODES)
    except NotFoundError:
        return False
    return True


def said(box: Box) -> str:
    """What the pods say, for a test that fails."""
    words = ("--namespace", rendering.NAMESPACE)
    return box.kubectl("describe", "pods", *words) + box.kubectl(
        "logs", "--selector", LABEL, "--prefix", "--tail=20", *words
    )


async def is_rolled_out(client: Client) -> bool:
    """Whether all replicas are of the newest template, and ready."""
    found = await client.get(DEPLOYMENTS, NAME, namespace=rendering.NAMESPACE)
    status, wanted = found.get("status", {}), found["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("availableReplicas") == wanted
        and status.get("replicas") == wanted
    )


async def pods_of(client: Client) -> dict[str, dict[str, Any]]:
    """The webhook's pods by name."""
    found = await client.list(PODS, namespace=rendering.NAMESPACE, label_selector=LABEL)
    return {each["metadata"]["name"]: each for each in found["items"]}


async def stored(client: Client) -> Stored:
    """What the Secret holds."""
    name = Place().secret
    return read_secret(await client.get(SECRETS, name, namespace=rendering.NAMESPACE))


def served_until(box: Box, pod: dict[str, Any]) -> float:
    """When the certificate ends that a pod serves, by its own metrics."""
    url = f"http://{pod['status']['podIP']}:8080/metrics"
    metric = "gpu_sharing_certs_leaf_not_after_timestamp_seconds "
    lines = box.exec("busybox", "wget", "-q", "-O", "-", url).splitlines()
    (line,) = (each for each in lines if each.startswith(metric))
    return float(line.removeprefix(metric))


def load_on(box: Box) -> Load:
    """Callers of the API server."""
    access = box.access
    context = ssl.create_default_context(cafile=str(access.ca))
    pair = access.authority.client("load", "load", ("system:masters",))
    context.load_cert_chain(pair.certificate, pair.key)
    return Load(access.server, context, namespace=TENANT, rate=RATE, connections=CALLERS)


@dataclass(slots=True)
class Restart:
    """One rolling restart, under way.

    Attributes:
        admin: An administrator.
        before: The pods that are replaced, by name.
        ending: When the kubelet kills those of them that still end.
    """

    admin: Client
    before: dict[str, dict[str, Any]]
    ending: dict[str, datetime] = field(default_factory=dict)

    async def begin(self) -> None:
        """As ``kubectl rollout restart`` does it."""
        template = {"metadata": {"annotations": {"restarted": "once"}}}
        patch = {"spec": {"template": template}}
        await self.admin.patch(DEPLOYMENTS, NAME, patch, namespace=rendering.NAMESPACE)

    async def is_over(self) -> bool:
        """Whether the old pods are gone, and none of them only when its time was over."""
        left = {n: pod for n, pod in (await pods_of(self.admin)).items() if n in self.before}
        for name, pod in left.items():
            if until := pod["metadata"].get("deletionTimestamp"):
                self.ending[name] = datetime.fromisoformat(until)
        for name in self.ending.keys() - left.keys():
            assert datetime.now(UTC) < self.ending.pop(name), f"{name} had to be killed"
        return not left


async def test_a_rolling_restart_amid_a_rotation_fails_no_review(box: Box, admin: Client) -> None:
    first, restart = await stored(admin), Restart(admin, await pods_of(admin))
    counts, load = ApiCounts(box.access), load_on(box)
    await counts.read()
    load.start()

    await Cluster(admin, Place()).ask("by a test")
    await restart.begin()
    await eventually("the restart is rolled out", lambda: is_rolled_out(admin), timeout_s=120)
    if PATIENT:
        await _all_is_renewed(box, restart, first)
    else:
        await _has_created(load, load.seen.created + int(RATE * ON_S))
    seen = await load.stop()
    await counts.read()

    assert failures(counts.total) == 0, counts.total
    assert not seen.failed, seen.failed
    assert not seen.refused, seen.refused
    assert not seen.lost, seen.lost
    assert counts.total["code 200"] >= seen.created > RATE * ON_S
    after = {n: pod for n, pod in (await pods_of(admin)).items() if n not in restart.before}
    assert len(after) == 2
    for pod in after.values():
        (status,) = pod["status"]["containerStatuses"]
        assert status["ready"], said(box)
        assert status["restartCount"] == 0, said(box)


async def _all_is_renewed(box: Box, restart: Restart, first: Stored) -> None:
    """The old pods have ended by themselves, and the new ones serve another certificate."""
    admin = restart.admin
    await eventually("the replaced pods have ended", restart.is_over, timeout_s=180)

    async def is_rotated() -> bool:
        now = await stored(admin)
        return now.next is None and now.current not in {None, first.current}

    await eventually("the certificate is rotated", is_rotated, timeout_s=120)
    now, pods = await stored(admin), await pods_of(admin)
    assert now.current is not None
    end_s = now.current.not_after.timestamp()

    async def is_served() -> bool:
        return {served_until(box, pod) for pod in pods.values()} == {end_s}

    await eventually("all serve the new certificate", is_served, timeout_s=90)


async def _has_created(load: Load, count: int) -> None:
    async def look() -> bool:
        return load.seen.created >= count

    await eventually(f"{count} pods are created", look, timeout_s=90)
