"""``gpu-sharing top`` on a real API server, with the roles that the chart has for people."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry, Gauge

from cli.exposition import exposed
from cli.topsource import ProxyClient, Sight, look_at_cluster
from sharing.cluster.errors import ForbiddenError
from tests.chart import installing, rendering
from tests.cluster.access import Access
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

HOME: Final = rendering.NAMESPACE
PERSON: Final = "olga"
SHARE: Final = "GPU-a::1of4-0"
STATUS: Final[dict[str, Any]] = {
    "gpus": [
        {
            "index": 3,
            "uuid": "GPU-a",
            "board": "H100-80GB",
            "product": "NVIDIA H100 80GB HBM3",
            "memoryMiB": 81559,
            "shares": [
                {
                    "id": SHARE,
                    "resource": "gpu.sharing/mps-1of4",
                    "memoryMiB": 20389,
                    "holders": [{"namespace": "a", "pod": "train", "container": "main"}],
                }
            ],
        }
    ]
}


def bound(kind: str, role: str) -> dict[str, Any]:
    """A role of the chart's in the hands of a person."""
    cluster = kind == "ClusterRole"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": f"{PERSON}-{role}"} | ({} if cluster else {"namespace": HOME}),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PERSON}],
    }


@pytest.fixture
def people(home: Access) -> Iterator[Access]:
    """A person who may view, and a GPUNode whose share is held."""
    node = {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": "n1"},
        "spec": {},
    }
    roles = [
        rendering.the("default", "ClusterRole", "gpu-sharing-view"),
        rendering.the("default", "Role", "gpu-sharing-top"),
        bound("ClusterRole", "gpu-sharing-view"),
    ]
    with installing.installed(home, [*roles, node]):
        made = home.call("GET", installing.path_of(node))
        home.call("PUT", f"{installing.path_of(node)}/status", made | {"status": STATUS})
        yield home


def own_address() -> str:
    """An address of this machine that API servers pass requests on to: none of loopback."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


@pytest.fixture
async def agent(people: Access) -> AsyncIterator[Access]:
    """A pod that API servers take for the agent of a node, with metrics of one share."""
    address = own_address()
    if not address:
        pytest.skip("this machine has no address but loopback")
    registry = CollectorRegistry()
    labels = {
        "share": SHARE, "gpu": "GPU-a", "resource": "gpu.sharing/mps-1of4", "mode": "mps",
        "size": "1of4", "pool": "", "namespace": "a", "pod": "train", "container": "main",
    }  # fmt: skip
    Gauge("gpu_sharing_share_info", "-", list(labels), registry=registry).labels(**labels).set(1)
    used = Gauge("gpu_sharing_share_memory_used_bytes", "-", ["share"], registry=registry)
    used.labels(SHARE).set(700 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = int(listener.getsockname()[1])
    async with exposed(registry, asyncio.Event(), free) as port:
        with installing.installed(people, [_pod(port)]):
            path = installing.path_of(_pod(port))
            made = people.call("GET", path)
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            people.call("PUT", f"{path}/status", made | {"status": status})
            yield people


def _pod(port: int) -> dict[str, Any]:
    template = rendering.the("default", "DaemonSet", "gpu-sharing-agent")["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "gpu-sharing-agent-x",
            "namespace": HOME,
            "labels": template["metadata"]["labels"],
        },
        "spec": {
            "nodeName": "n1",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "agent",
                    "image": "registry.example/agent:1",
                    "ports": [{"name": "health", "containerPort": port}],
                }
            ],
        },
    }


async def look(access: Access) -> Sight:
    async with ProxyClient.from_kubeconfig(access.kubeconfig(PERSON)) as person:
        return await look_at_cluster(person, node=None, namespace=HOME)


async def test_who_may_view_and_read_metrics_sees_what_is_used(agent: Access) -> None:
    with pytest.raises(ForbiddenError, match="pods"):
        await look(agent)
    with installing.installed(agent, [bound("Role", "gpu-sharing-top")]):

        async def seen() -> bool:
            try:
                (row,) = (await look(agent)).rows
            except ForbiddenError:
                return False
            return row.memory_used_mib == 700

        await eventually("the role is in force", seen)
        sight = await look(agent)
    assert sight.remarks == ()
    assert [(one.node, one.namespace, one.pod) for one in sight.rows] == [("n1", "a", "train")]


async def test_without_an_agent_holders_are_seen_and_no_use(people: Access) -> None:
    with installing.installed(people, [bound("Role", "gpu-sharing-top")]):
        await eventually("the role is in force", partial(_may_look, people))
        sight = await look(people)
    assert [(one.gpu, one.pod, one.memory_used_mib) for one in sight.rows] == [("3", "train", None)]
    assert sight.remarks == ("n1: what is used is not known: no agent runs there",)


async def _may_look(access: Access) -> bool:
    try:
        await look(access)
    except ForbiddenError:
        return False
    return True
