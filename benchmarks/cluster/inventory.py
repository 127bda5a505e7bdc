"""GPUNodes of a fleet: what agents would report, so that the webhook's inventory is a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS, GPU_NODES
from tests.cluster.waiting import eventually

GPUS: Final = 8
PARTS: Final = 4
RESOURCE: Final = f"gpu.sharing/mps-1of{PARTS}"
PER_NODE: Final = GPUS * PARTS
_MEMORY_MIB: Final = 81_559
_AT_ONCE: Final = 16
_SINCE: Final = "2026-01-01T00:00:00Z"


def status(node: int) -> dict[str, Any]:
    """The status of a node of eight H100, each cut into four shares by MPS."""
    ready = {
        "type": "Ready", "status": "True", "reason": "Served", "message": "",
        "lastTransitionTime": _SINCE, "observedGeneration": 1,
    }  # fmt: skip
    return {"gpus": [_gpu(node, index) for index in range(GPUS)], "conditions": [ready]}


def _gpu(node: int, index: int) -> dict[str, Any]:
    uuid = f"GPU-{node:08x}-0000-0000-0000-{index:012x}"
    shares = [
        {
            "id": f"{uuid}::{number}", "resource": RESOURCE, "milli": 1000 // PARTS,
            "memoryMiB": _MEMORY_MIB // PARTS, "healthy": True,
        }
        for number in range(PARTS)
    ]  # fmt: skip
    return {
        "index": index, "uuid": uuid, "board": "H100-80GB", "product": "NVIDIA H100 80GB HBM3",
        "memoryMiB": _MEMORY_MIB, "health": {"healthy": True}, "shares": shares,
        "layout": {"mode": "mps", "sizes": {f"1of{PARTS}": PARTS}},
    }  # fmt: skip


async def define(client: Client) -> None:
    """Create the CRDs and wait until all are served."""
    for crd in crd_manifests():
        await client.create(CRDS, crd)
    await eventually("the CRDs are served", partial(_all_established, client))


async def _all_established(client: Client) -> bool:
    return all(map(_established, (await client.list(CRDS))["items"]))


def _established(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def publish(client: Client, names: Iterable[str]) -> None:
    """Create the GPUNodes of nodes."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int, name: str) -> None:
        async with limit:
            head = {"apiVersion": GPU_NODES.api_version, "kind": GPU_NODES.kind}
            await client.create(GPU_NODES, {**head, "metadata": {"name": name}, "spec": {}})
            await client.patch(GPU_NODES, name, {"status": status(number)}, subresource="status")

    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            group.create_task(one(number, name))
