"""Tier c itself: a real scheduler fills nodes that exist as objects only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from sharing.cluster.client import Client
from sharing.cluster.errors import NotFoundError
from sharing.cluster.kind import LEASES, NODES, PODS
from tests.cluster.controlplane import ControlPlane
from tests.cluster.fleet import LEASE_NAMESPACE, Fleet
from tests.cluster.waiting import eventually
from tests.cluster.workload import pod, reaches

pytestmark = pytest.mark.cluster

RESOURCE: Final = "test.example/share"
NODE_COUNT: Final = 20
PER_NODE: Final = 3


@pytest.fixture
async def admin(scale_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(scale_plane.access.kubeconfig()) as client:
        yield client


async def _pods(client: Client, namespace: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await client.list(PODS, namespace=namespace))["items"]
    return listed


async def test_pods_fill_the_fleet_and_no_more(scale_plane: ControlPlane, admin: Client) -> None:
    room = NODE_COUNT * PER_NODE
    kubeconfig = scale_plane.access.kubeconfig()
    with (
        scale_plane.access.namespace() as namespace,
        Fleet(kubeconfig, count=NODE_COUNT, capacity={RESOURCE: str(PER_NODE)}) as fleet,
    ):
        for number in range(room + 1):
            asking = pod(f"p{number}", limits={RESOURCE: "1"})
            await admin.create(PODS, asking, namespace=namespace)

        async def running() -> list[dict[str, Any]]:
            found = [p for p in await _pods(admin, namespace) if p["status"]["phase"] == "Running"]
            return found if len(found) == room else []

        on = Counter(p["spec"]["nodeName"] for p in await eventually("all run", running))
        assert on == dict.fromkeys(fleet.names, PER_NODE)
        (waiting,) = [p for p in await _pods(admin, namespace) if "nodeName" not in p["spec"]]

        leaving = next(p for p in await _pods(admin, namespace) if "nodeName" in p["spec"])
        await admin.delete(PODS, leaving["metadata"]["name"], namespace=namespace, grace_s=30)
        await reaches(admin, namespace, waiting["metadata"]["name"], "Running")


async def test_a_fleet_renews_its_leases_and_goes(scale_plane: ControlPlane, admin: Client) -> None:
    kubeconfig = scale_plane.access.kubeconfig()
    with Fleet(kubeconfig, count=1, capacity={}, lease_period_s=0.1) as fleet:
        (name,) = fleet.names

        async def renewed() -> str:
            lease = await admin.get(LEASES, name, namespace=LEASE_NAMESPACE)
            return str(lease["spec"]["renewTime"])

        first = await renewed()

        async def again() -> bool:
            return await renewed() != first

        await eventually("the lease is renewed", again)
    with pytest.raises(NotFoundError):
        await admin.get(NODES, name)


async def test_a_fleet_that_cannot_start_says_so(scale_plane: ControlPlane) -> None:
    nobody = scale_plane.access.kubeconfig("nobody")

    with pytest.raises(ExceptionGroup, match="unhandled errors") as failed:
        await asyncio.to_thread(Fleet(nobody, count=1, capacity={}).__enter__)

    assert failed.group_contains(Exception, match='User "nobody" cannot create')
