"""One round: create pods, wait until the scheduler has bound all, take them away again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster.inventory import RESOURCE
from sharing.cluster.cache import Cache
from sharing.cluster.client import Client
from sharing.cluster.kind import NAMESPACES, PODS

CREATORS: Final = 16
"""Requests under way at once, as from a few controllers."""
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round took.

    Attributes:
        webhook: Whether pods went through it.
        pods: How many.
        created_s: Seconds until the last was created.
        bound_s: Seconds until the last was bound, from the same start.
        cpu_s: Processor seconds until then, by program of the control plane, and the webhook's.
    """

    webhook: bool
    pods: int
    created_s: float
    bound_s: float
    cpu_s: Mapping[str, float]


async def measure(
    client: Client, *, webhook: bool, pods: int, namespace: str, pids: Mapping[str, int]
) -> Round:
    """Let pods be bound in a namespace that is there, and remove them.

    Without the webhook pods ask for what it would have made of them, so that the scheduler has the
    same to do in both.
    """
    asked = "nvidia.com/gpu" if webhook else RESOURCE
    async with Cache(client, PODS, _bound, namespace=namespace) as cache:
        await cache.wait_synced(timeout_s=60)
        begun, used_s = time.monotonic(), _cpu_s(pids)
        await _create(client, namespace, asked, pods)
        created_s = time.monotonic() - begun
        async with asyncio.timeout(_TIMEOUT_S):
            await cache.until(lambda store: sum(store.values()) == pods)
        bound_s = time.monotonic() - begun
        cpu_s = {name: seconds - used_s[name] for name, seconds in _cpu_s(pids).items()}
        await _check(client, namespace)
        await _delete(client, namespace, pods)
        async with asyncio.timeout(_TIMEOUT_S):
            await cache.until(lambda store: len(store) == 0)
    return Round(webhook=webhook, pods=pods, created_s=created_s, bound_s=bound_s, cpu_s=cpu_s)


def _cpu_s(pids: Mapping[str, int]) -> dict[str, float]:
    """Processor seconds of programs so far; fields 14 and 15 of ``/proc/<pid>/stat``, proc(5)."""
    found = {}
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _bound(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


async def _create(client: Client, namespace: str, asked: str, pods: int) -> None:
    await _each(pods, lambda name: client.create(PODS, pod(name, asked), namespace=namespace))


async def _delete(client: Client, namespace: str, pods: int) -> None:
    """One by one: to delete a collection of thousands takes longer than a request may."""
    await _each(pods, lambda name: client.delete(PODS, name, namespace=namespace, grace_s=0))


async def _each(pods: int, work: Callable[[str], Awaitable[Any]]) -> None:
    """Do something for each pod's name, from a few sides at once."""
    numbers = iter(range(pods))

    async def worker() -> None:
        for number in numbers:
            await work(f"p{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(worker())


def pod(name: str, asked: str) -> dict[str, Any]:
    """A pod with one container that asks for one of a resource."""
    container = {
        "name": "main", "image": "registry.example/app:1",
        "resources": {"limits": {asked: "1"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


async def _check(client: Client, namespace: str) -> None:
    """A round counts only if every pod got a share."""
    items = (await client.list(PODS, namespace=namespace))["items"]
    limits = [item["spec"]["containers"][0]["resources"]["limits"] for item in items]
    assert all(each.get(RESOURCE) == "1" for each in limits), limits[:3]


async def make_namespaces(client: Client) -> dict[bool, str]:
    """A namespace by whether its pods go through the webhook."""
    names = {False: "off", True: "on"}
    labels = {"gpu.sharing/mode": "mps"}
    await client.create(NAMESPACES, {"metadata": {"name": names[False]}})
    await client.create(NAMESPACES, {"metadata": {"name": names[True], "labels": labels}})
    return names
