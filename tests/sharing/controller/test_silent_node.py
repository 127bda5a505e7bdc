"""A node whose agent says nothing never stops the others."""

from __future__ import annotations

import asyncio
from typing import Any

from sharing.cluster.kind import GPU_NODES, NODES
from sharing.controller.controller import Controller, ControllerSettings
from tests.support.agent_bench import NodeBench, node_bench


async def silent_node(node: NodeBench, name: str) -> None:
    """A node that told of its GPU once, and whose agent is gone."""
    labels = {"gpu.sharing/managed": "true"}
    await node.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
    gpu_node = {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {},
    }
    await node.client.create(GPU_NODES, gpu_node)
    status = {
        "observedGeneration": 1,
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-silent",
                "board": "H100-80GB",
                "product": "NVIDIA H100 80GB HBM3",
                "memoryMiB": 81559,
                "health": {"healthy": True},
            }
        ],
    }
    await node.client.patch(GPU_NODES, name, {"status": status}, subresource="status")


def ready(node: NodeBench) -> dict[str, Any]:
    conditions = ((node.layouts.get("all") or {}).get("status") or {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Ready"), {})


async def test_a_silent_node_is_named_and_the_others_go_on() -> None:
    async with node_bench("1xH100-80GB") as node:
        settings = ControllerSettings(lease=None, gather_s=0.01, silent_after_s=0.3)
        controller = Controller(settings, node.client)
        node.tasks["controller"] = asyncio.create_task(controller.run())
        await silent_node(node, "n2")
        await node.start_agent()

        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        await node.until(
            node.layouts,
            lambda: "n2: its agent is silent" in ready(node).get("message", ""),
            lambda: node.layouts.get("all"),
        )
        assert ready(node)["status"] == "False"

        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.until_allocatable({"gpu.sharing/timeslice-1of4": 4})
        wanted = node.gpu_nodes.get("n2") or {}
        assert wanted["spec"]["gpus"][0]["layout"]["sizes"] == {"1of4": 4}
