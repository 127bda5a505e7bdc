"""Four accounts of one node that have to agree: kubelet, agent, NVML, and the Node object.

Each is read where it is kept: PodResources and the Node's status are the kubelet's word, the
GPUNode's status is the agent's, the simulator's state is what NVML would show. What must hold
whenever everything is at rest is ``disagreements``; what must hold at any moment is
``double_bookings``.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import grpc

from sharing.cluster.client import Client
from sharing.cluster.kind import GPU_NODES, NODES
from sharing.errors import UnavailableError
from sharing.names import MILLI_GPU
from sharing.node import checkpoint
from sharing.nvml.simulator.state import Gpu, Machine
from sharing.nvml.simulator.store import Store
from sharing.plugin.proto import podresources_pb2 as api
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub
from sharing.quantity import parse_quantity
from sharing.share import instance_named, mig_device_id, place_of

Unit = tuple[str, str]
"""Resource and device id."""
Container = tuple[str, str, str]
"""Namespace, pod and container."""

_OURS: Final = ("nvidia.com/", "gpu.sharing/")
_SLICE: Final = re.compile(r"-1of([0-9]{1,2})$")
_PERIOD_S: Final = 0.1
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletBooks:
    """What the kubelet says through PodResources."""

    healthy: frozenset[Unit]
    held: Mapping[Container, frozenset[Unit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """All accounts of a node, read one after the other."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    kubelet: KubeletBooks
    status: Mapping[str, Any]
    """Of the GPUNode."""
    machine: Machine

    @property
    def shares(self) -> list[dict[str, Any]]:
        """The agent's shares."""
        return [share for gpu in self.status.get("gpus") or () for share in gpu.get("shares") or ()]


async def read(client: Client, node: str, pod_resources: Path, gpus: Path) -> Books:
    """Read all accounts.

    Raises:
        ApiError: The API server does not answer.
        grpc.aio.AioRpcError: The kubelet does not answer.
    """
    status = (await client.get(NODES, node))["status"]
    kubelet = await read_kubelet(pod_resources)
    return Books(
        capacity=_ours(status.get("capacity") or {}),
        allocatable=_ours(status.get("allocatable") or {}),
        kubelet=kubelet,
        status=(await client.get(GPU_NODES, node)).get("status") or {},
        machine=Store(gpus).read(),
    )


def _ours(amounts: Mapping[str, str]) -> dict[str, int]:
    counts = {k: int(parse_quantity(v)) for k, v in amounts.items() if k.startswith(_OURS)}
    return {name: count for name, count in counts.items() if count}


async def read_kubelet(socket: Path) -> KubeletBooks:
    """The kubelet's own account.

    Raises:
        grpc.aio.AioRpcError: The kubelet does not answer.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = PodResourcesListerStub(channel)
        listed = await stub.List(api.ListPodResourcesRequest(), timeout=_TIMEOUT_S)
        healthy = await stub.GetAllocatableResources(
            api.AllocatableResourcesRequest(), timeout=_TIMEOUT_S
        )
    return KubeletBooks(
        healthy=frozenset(_units(healthy.devices)),
        held={
            (pod.namespace, pod.name, container.name): frozenset(_units(container.devices))
            for pod in listed.pod_resources
            for container in pod.containers
            if container.devices
        },
    )


def _units(devices: Any) -> Iterator[Unit]:
    for device in devices:
        for device_id in device.device_ids:
            yield device.resource_name, device_id


def disagreements(books: Books) -> tuple[str, ...]:
    """Where the accounts differ, one sentence each; nothing else may be going on."""
    return tuple(_disagreements(books))


def _disagreements(books: Books) -> Iterator[str]:
    healthy = {(share["resource"], share["id"]) for share in books.shares if share["healthy"]}
    allocatable = {k: n for k, n in books.allocatable.items() if k != MILLI_GPU}
    if allocatable != Counter(resource for resource, _ in healthy):
        yield f"node allocates {allocatable}, agent has {Counter(r for r, _ in healthy)}"
    if books.kubelet.healthy != healthy:
        yield f"only kubelet or only agent has healthy {sorted(books.kubelet.healthy ^ healthy)}"
    capacity = {k: n for k, n in books.capacity.items() if k != MILLI_GPU}
    listed = Counter(share["resource"] for share in books.shares)
    if books.status.get("plan") is None and capacity != listed:
        yield f"node has capacity {capacity}, agent lists {listed}"
    yield from _holders(books)
    yield from _amounts(books)
    for gpu in books.status.get("gpus") or ():
        yield from _against_nvml(gpu, books.machine)


def _holders(books: Books) -> Iterator[str]:
    by_kubelet = {(who, *unit) for who, units in books.kubelet.held.items() for unit in units}
    by_agent = {
        ((holder["namespace"], holder["pod"], holder["container"]), share["resource"], share["id"])
        for share in books.shares
        for holder in share.get("holders") or ()
    }
    for who, resource, device_id in sorted(by_kubelet ^ by_agent):
        known = "kubelet" if (who, resource, device_id) in by_kubelet else "agent"
        yield f"only the {known} knows that {'/'.join(who)} holds {device_id} as {resource}"


def _amounts(books: Books) -> Iterator[str]:
    """1000 for each GPU that takes work, more where its shares are worth more together."""
    wanted = sum(
        max(1000, sum(share["milli"] for share in gpu.get("shares") or ()))
        for gpu in books.status.get("gpus") or ()
        if gpu["health"]["healthy"]
    )
    for name, amounts in (("capacity", books.capacity), ("allocatable", books.allocatable)):
        if amounts.get(MILLI_GPU, 0) != wanted:
            yield f"{MILLI_GPU} {name} is {amounts.get(MILLI_GPU, 0)}, should be {wanted}"


def _against_nvml(gpu: Mapping[str, Any], machine: Machine) -> Iterator[str]:
    found = next((each for each in machine.gpus if each.uuid == gpu["uuid"]), None)
    if found is None:
        yield f"agent has GPU {gpu['uuid']}, which is not in this machine"
        return
    if found.lost:
        return  # what it was cut into cannot be seen
    shares = gpu.get("shares") or ()
    said = {place_of(share["id"]) for share in shares if instance_named(share["id"])}
    if said != instances_of(found):
        yield f"GPU {gpu['index']}: agent has {sorted(said)}, NVML {sorted(instances_of(found))}"
    if gpu["migEnabled"] != found.mig_current:
        yield f"GPU {gpu['index']}: MIG mode is {found.mig_current}, agent says {gpu['migEnabled']}"
    total = sum(share["memoryMiB"] for share in shares)
    if total > gpu["memoryMiB"]:
        yield f"GPU {gpu['index']}: shares have {total} MiB of {gpu['memoryMiB']}"


def instances_of(gpu: Gpu) -> set[str]:
    """The device ids of a GPU's MIG instances, as NVML shows them."""
    found = set()
    for instance in gpu.instances:
        profile = gpu.profile(instance.profile_id)
        assert profile is not None
        found.add(mig_device_id(gpu.uuid, profile.profile, instance.start))
    return found


def double_bookings(
    kubelet: KubeletBooks, machine: Machine, *, rebooted: bool = False
) -> tuple[str, ...]:
    """What may never be, whatever goes on: one sentence each.

    Args:
        kubelet: The kubelet's account.
        machine: The GPUs.
        rebooted: The GPUs have forgotten their MIG instances, which the kubelet's checkpoint
            has not.
    """
    return tuple(_double_bookings(kubelet, machine, rebooted=rebooted))


def _double_bookings(kubelet: KubeletBooks, machine: Machine, *, rebooted: bool) -> Iterator[str]:
    pods: dict[str, set[tuple[str, str]]] = {}
    by_gpu: dict[str, set[Unit]] = {}
    for (namespace, pod, _), units in kubelet.held.items():
        for resource, device_id in units:
            pods.setdefault(device_id, set()).add((namespace, pod))
            by_gpu.setdefault(device_id.partition("::")[0], set()).add((resource, device_id))
    for device_id, holders in sorted(pods.items()):
        if len(holders) > 1:
            yield f"{device_id} is held by {sorted(holders)}"
    gpus = {gpu.uuid: gpu for gpu in machine.gpus}
    for uuid, of_gpu in sorted(by_gpu.items()):
        gpu = gpus.get(uuid)
        if gpu is None:
            yield f"GPU {uuid} is held and is not in this machine"
            continue
        mig = {place_of(device_id) for _, device_id in of_gpu} - {uuid}
        if mig - instances_of(gpu) and not (gpu.lost or rebooted):
            yield f"GPU {uuid}: {sorted(mig - instances_of(gpu))} are held and do not exist"
        yield from _overbooked(uuid, of_gpu)


def _overbooked(uuid: str, held: set[Unit]) -> Iterator[str]:
    """A GPU, or a MIG instance of it, of which more is held than there is."""
    worth: dict[str, Fraction] = {}
    for resource, device_id in held:
        place = place_of(device_id)
        worth[place] = worth.get(place, Fraction(0)) + _worth(resource)
    worth[uuid] = worth.get(uuid, Fraction(0)) + bool(worth.keys() - {uuid})
    for place, times in sorted(worth.items()):
        if times > 1:
            yield f"{place} is held {times} times: {sorted(held)}"


def _worth(resource: str) -> Fraction:
    match = _SLICE.search(resource)
    return Fraction(1, int(match[1])) if match else Fraction(1)


def read_checkpoint(folder: Path) -> KubeletBooks:
    """The kubelet's account of who holds what, from its own file; pods by uid.

    Unlike PodResources' List this changes nothing: List lets a kubelet forget an assignment that
    is under way, and hand the device out again (kubernetes#137534).

    Raises:
        UnavailableError: The file cannot be read.
    """
    held: dict[Container, frozenset[Unit]] = {}
    for entry in checkpoint.read(folder):
        who = ("", entry.pod_uid, entry.container)
        units = frozenset((entry.resource, device_id) for device_id in entry.device_ids)
        held[who] = held.get(who, frozenset()) | units
    return KubeletBooks(healthy=frozenset(), held=held)


@asynccontextmanager
async def watched(
    plugins: Path, gpus: Path, rebooted: Callable[[], bool]
) -> AsyncIterator[list[str]]:
    """Look at the kubelet's checkpoint all the time; whatever was ever wrong is in the list.

    Args:
        plugins: The kubelet's folder of device plugins.
        gpus: The state of the simulated GPUs.
        rebooted: Whether the GPUs have forgotten what the checkpoint knows.
    """
    found: dict[str, None] = {}
    said: list[str] = []

    async def look() -> None:
        while True:
            with suppress(UnavailableError):  # it is being written
                kubelet = read_checkpoint(plugins)
                now = double_bookings(kubelet, Store(gpus).read(), rebooted=rebooted())
                found.update(dict.fromkeys(now))
            await asyncio.sleep(_PERIOD_S)

    task = asyncio.create_task(look())
    try:
        yield said
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        said.extend(found)
