"""Reports about placement and the device plugin, on a node of ours."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from sharing.api.node import GpuNodeStatus
from sharing.cluster.kind import PODS
from sharing.plugin.binding import SHARES_ENV
from tests.support import books
from tests.support.agent_bench import NodeBench, node_bench

HALF, QUARTER = "gpu.sharing/timeslice-1of2", "gpu.sharing/timeslice-1of4"
MIXED = {"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 1, "1of4": 2}}


def container(name: str, resource: str) -> dict[str, Any]:
    amounts = {resource: "1"}
    resources = {"limits": amounts, "requests": amounts}
    return {"name": name, "image": "test.local/busybox:1", "resources": resources}


async def create(node: NodeBench, name: str, *containers: dict[str, Any]) -> None:
    await node.client.create(PODS, {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": list(containers)},
    })  # fmt: skip


async def at_rest(node: NodeBench, *names: str) -> list[str]:
    """The phases of pods that have settled."""
    ended = ("Running", "Failed")
    await node.until(
        node.pods,
        lambda: all(node.phase(name) in ended for name in names),
        lambda: [node.phase(name) for name in names],
    )
    return [node.phase(name) for name in names]


async def held(node: NodeBench) -> dict[tuple[str, str], str]:
    """The one device of each container, by the kubelet's word."""
    kubelet = await books.read_kubelet(node.kubelet.settings.pod_resources_socket)
    return {
        (pod, name): unit[1] for (_, pod, name), units in kubelet.held.items() for unit in units
    }


def seen(node: NodeBench, pod: str, name: str) -> str:
    """The share that a container was told it has."""
    view = node.kubelet.view("default", pod, name)
    assert view is not None
    return dict(view.env)[SHARES_ENV]


def told(status: GpuNodeStatus) -> dict[tuple[str, str], str]:
    """The share of each container, by the agent's word."""
    return {
        (holder.pod, holder.container): share.id
        for gpu in status.gpus for share in gpu.shares for holder in share.holders
    }  # fmt: skip


async def test_two_containers_of_a_pod_have_a_share_each_of_the_only_gpu() -> None:
    """NVIDIA/k8s-device-plugin#1690, aws/karpenter-provider-aws#9070."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout(MIXED)
        await node.start_agent()
        await node.until_allocatable({HALF: 1, QUARTER: 2})

        await create(node, "both", container("a", QUARTER), container("b", HALF))

        assert await at_rest(node, "both") == ["Running"]
        by_kubelet = await held(node)
        assert len(set(by_kubelet.values())) == 2
        for name in ("a", "b"):
            assert seen(node, "both", name) == by_kubelet["both", name]


async def test_of_many_pods_at_once_each_sees_the_share_that_the_kubelet_gave_it() -> None:
    """Project-HAMi/HAMi#2232, #781, #1741, Project-HAMi/ascend-device-plugin#15.

    Two pods swapped theirs, or books differed from GPUs. Nothing identifies a pod but the device
    itself, which the kubelet chose.

    NVIDIA/KAI-Scheduler#1673, #848, #1449, #611: helpers that reserve GPUs came twice, came back
    for ever or stood in the way. Here nobody makes a pod but its author.
    """
    async with node_bench("4xH100-80GB") as node:
        await node.start_controller()
        await node.layout(MIXED)
        await node.start_agent()
        await node.until_allocatable({HALF: 4, QUARTER: 8})
        sizes = {f"p{n}": HALF if n % 3 == 0 else QUARTER for n in range(12)}

        await asyncio.gather(
            *(create(node, name, container("main", size)) for name, size in sizes.items())
        )

        assert set(await at_rest(node, *sizes)) == {"Running"}
        assert names_of_all(node) == set(sizes)
        by_kubelet = await held(node)
        assert len(set(by_kubelet.values())) == 12
        by_pod = {(name, "main"): seen(node, name, "main") for name in sizes}
        assert by_pod == by_kubelet
        status = await node.until_status(lambda status: len(told(status)) == 12)
        assert told(status) == by_kubelet


async def test_the_sum_of_shares_is_never_more_than_the_gpu_however_many_ask() -> None:
    """volcano-sh/volcano#3616, #4809, Project-HAMi/volcano-vgpu-device-plugin#6.

    Three pods of half a GPU were bound now and then. On a full node the one too many ends once,
    and nothing is made anew for it (NVIDIA/KAI-Scheduler#848).
    """
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.start_agent()
        await node.until_allocatable({HALF: 2})
        names = [f"p{n}" for n in range(3)]

        await asyncio.gather(*(create(node, name, container("main", HALF)) for name in names))

        assert sorted(await at_rest(node, *names)) == ["Failed", "Running", "Running"]
        assert len(set((await held(node)).values())) == 2
        assert names_of_all(node) == set(names)


async def test_what_a_node_says_it_can_do_is_what_it_does_with_mps_beside_mig() -> None:
    """NVIDIA/k8s-device-plugin#713: discovery said "not capable" and the plugin failed."""
    async with node_bench("2xH100-80GB") as node:
        await node.start_controller()
        await node.layout(
            {"gpus": "0", "mode": "mps", "sizes": {"1of2": 2}},
            {"gpus": "1", "mode": "mig", "sizes": {"3g.40gb": 2}},
        )
        await node.start_agent()
        offered = {"gpu.sharing/mps-1of2": 2, "nvidia.com/mig-3g.40gb": 2}
        await node.until_allocatable(offered)

        await node.until(node.nodes, lambda: bool(labels(node)), lambda: labels(node))
        assert labels(node)["gpu.sharing/modes"] == "mig_mps"
        await node.until_status(lambda s: sum(len(gpu.shares) for gpu in s.gpus) == 4)
        counted = Counter(one.resource for gpu in node.status.gpus for one in gpu.shares)
        assert counted == offered
        for number, resource in enumerate(offered):
            assert (await node.run_pod(f"p{number}", resource))["status"]["phase"] == "Running"


def labels(node: NodeBench) -> dict[str, str]:
    """The node's labels of ours, once it has any that the agent writes."""
    found = (node.nodes.get("n1") or {})["metadata"].get("labels", {})
    return found if "gpu.sharing/modes" in found else {}


def names_of_all(node: NodeBench) -> set[str]:
    """Every pod of the cluster."""
    return {one["metadata"]["name"] for one in node.pods.values()}
