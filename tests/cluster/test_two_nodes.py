"""Two boxes, one cluster: a second node without a control plane of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sharing.cluster.client import Client
from sharing.cluster.kind import NODES, PODS
from tests.cluster.box.box import Box
from tests.cluster.plugin import SmallPlugin
from tests.cluster.waiting import eventually
from tests.cluster.workload import pod, reaches

pytestmark = pytest.mark.cluster


@pytest.fixture
async def admin(node_box: Box) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(node_box.access.kubeconfig()) as client:
        yield client


async def test_pods_of_two_nodes_reach_each_other(
    node_box: Box, second_box: Box, admin: Client, box_namespace: str
) -> None:
    web = "mkdir /www; echo here > /www/index.html; exec busybox httpd -f -p 8080 -h /www"
    serving = pod("serving", command=["sh", "-c", web])
    serving["spec"]["nodeName"] = second_box.node
    await admin.create(PODS, serving, namespace=box_namespace)
    address = (await reaches(admin, box_namespace, "serving", "Running"))["status"]["podIP"]
    look = f"until wget -qO- http://{address}:8080/; do sleep 0.2; done"
    asking = pod("asking", command=["sh", "-c", look])
    asking["spec"]["nodeName"] = node_box.node
    await admin.create(PODS, asking, namespace=box_namespace)
    await reaches(admin, box_namespace, "asking", "Succeeded")

    assert node_box.kubectl("-n", box_namespace, "logs", "asking").endswith("here\n")


async def test_the_scheduler_finds_the_node_that_has_a_device(
    second_box: Box, admin: Client, box_namespace: str
) -> None:
    resource = "second.test.example/thing"
    async with SmallPlugin(second_box.device_plugins, resource, {"d": "Healthy"}):
        await admin.create(PODS, pod("asking", limits={resource: "1"}), namespace=box_namespace)
        found = await reaches(admin, box_namespace, "asking", "Running")

    assert found["spec"]["nodeName"] == second_box.node


async def test_one_node_reboots_and_the_other_does_not(
    node_box: Box, second_box: Box, admin: Client
) -> None:
    first, second = node_box.boot_id, second_box.boot_id

    await asyncio.to_thread(second_box.reboot)

    async def seen() -> dict[str, str]:
        nodes = (await admin.list(NODES))["items"]
        boots = {n["metadata"]["name"]: n["status"]["nodeInfo"]["bootID"] for n in nodes}
        return boots if boots[second_box.node] != second else {}

    boots = await eventually("the new boot is known", seen)
    assert boots == {node_box.node: first, second_box.node: second_box.boot_id}
