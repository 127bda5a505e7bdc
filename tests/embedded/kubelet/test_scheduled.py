"""Scheduler and kubelet together: a pod's way from "created" to "running" and back."""

from __future__ import annotations

import asyncio

from embedded.scheduler.loop import Scheduler
from tests.support.kubelet_bench import SHARE, Bench, pod


async def test_pods_wait_for_devices_and_get_them_as_others_leave(node: Bench) -> None:
    await node.plugin("a b")
    async with Scheduler(node.client):
        for name in ("one", "two", "three"):
            await node.create(pod(name, shares=1, node=""))
        async with asyncio.timeout(10):
            await node.pods.until(
                lambda pods: (
                    sum(one["status"].get("phase") == "Running" for one in pods.values()) == 2
                )
            )
        (waiting,) = [
            one["metadata"]["name"]
            for one in node.pods.values()
            if one["status"]["phase"] != "Running"
        ]
        told = await node.until_pod(waiting, lambda one: bool(one["status"].get("conditions")))
        assert told["status"]["conditions"][0]["message"] == (
            f"0/1 nodes are available: 1 Insufficient {SHARE}."
        )
        running = next(one for one in ("one", "two", "three") if one != waiting)
        await node.delete(running)
        await node.until_phase(waiting, "Running")
        # Nothing was ever bound that the kubelet had to refuse.
        assert all(one["status"]["phase"] == "Running" for one in node.pods.values())


async def test_an_unhealthy_device_is_not_scheduled_onto(node: Bench) -> None:
    plugin = await node.plugin({"a": "Unhealthy"})
    async with Scheduler(node.client):
        await node.create(pod("p", shares=1, node=""))
        await node.until_pod("p", lambda one: bool(one["status"].get("conditions")))
        await plugin.show(a="Healthy")
        await node.until_phase("p", "Running")


async def test_a_node_that_fell_silent_gets_no_pods(node: Bench) -> None:
    await node.plugin("a")
    async with Scheduler(node.client):
        await node.kubelet.lose()
        await node.create(pod("p", shares=1, node=""))
        told = await node.until_pod("p", lambda one: bool(one["status"].get("conditions")))
        message = told["status"]["conditions"][0]["message"]
        assert "had untolerated taint {node.kubernetes.io/unreachable: }" in message
