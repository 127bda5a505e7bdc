"""A real kubelet's and containerd's cgroups, as the agent reads them: which pod a process is of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from sharing.cluster.client import Client
from sharing.cluster.kind import PODS
from sharing.node.cgroup import Place, known_place
from sharing.node.podseen import seen_pod
from sharing.node.processes import ByProc
from tests.cluster.box.box import Box
from tests.cluster.waiting import eventually
from tests.cluster.workload import pod, reaches

pytestmark = pytest.mark.cluster


def all_places() -> Iterable[tuple[Place, ...]]:
    """The places of every process of this machine."""
    pids = frozenset(int(one.name) for one in Path("/proc").glob("[0-9]*"))
    return ByProc().of(pids).values()


async def test_a_containers_process_is_put_down_to_its_pod_and_container(node_box: Box) -> None:
    async with Client.from_kubeconfig(node_box.access.kubeconfig()) as client:
        with node_box.access.namespace(account=True) as namespace:
            made = await client.create(PODS, pod("worker"), namespace=namespace)
            await reaches(client, namespace, "worker", "Running")
            seen = seen_pod(await client.get(PODS, "worker", namespace=namespace))
            uid = made["metadata"]["uid"]

            async def places() -> list[Place]:
                found = (known_place(one, {uid}) for one in all_places())
                return [one for one in found if one is not None and one.container_id]

            ids = {one.container_id for one in await eventually("a process is found", places)}
            assert seen.uid == uid
            # The sandbox's own process is in a container that no status names.
            assert set(seen.containers) <= ids
            assert set(seen.containers.values()) == {"main"}
