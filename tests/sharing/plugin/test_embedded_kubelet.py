"""The plugin at the embedded kubelet, of both generations, whatever restarts in which order."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from itertools import permutations
from pathlib import Path

import pytest

from embedded.kubelet import cdi
from embedded.kubelet.clock import SystemClock
from embedded.kubelet.devices import DeviceTable
from embedded.kubelet.plugins import Plugins
from sharing.plugin.binding import ShareBinding
from sharing.plugin.plugins import DevicePlugins
from sharing.plugin.settings import Patience
from tests.support.plugin_bindings import gpu_uuid, mig, mps, slice_, whole
from tests.support.plugin_waiting import eventually

QUICK = Patience(first_retry_s=0.02, longest_retry_s=0.2, poll_s=0.02, stream_opens_s=0.5)
MIXED = [whole(0), whole(1), mig(2, 0), mig(2, 1), mps(3, 0), mps(3, 1, parts=2), slice_(4, 0)]


class Node:
    """A kubelet's device manager and an agent's plugins in one folder; each can restart."""

    def __init__(self, folder: Path, *, old: bool) -> None:
        self.folder = folder
        self.table = DeviceTable()
        self.kubelet = Plugins(
            folder / "k",
            self.table,
            SystemClock(),
            lambda _resource: None,
            keyed_by_resource=old,
            dial_timeout_s=3,
        )
        self.plugins = self._new_plugins()
        self.wanted: list[ShareBinding] = []

    def _new_plugins(self) -> DevicePlugins:
        return DevicePlugins(self.folder / "k", cdi_dir=self.folder / "cdi", patience=QUICK)

    async def restart_agent(self) -> None:
        await self.plugins.stop()
        self.plugins = self._new_plugins()
        await self.plugins.start()
        await self.plugins.advertise(self.wanted)

    async def stop_kubelet(self) -> None:
        """Its process ends; what it knew is worth nothing to the next one."""
        await self.kubelet.stop()
        self.kubelet.expect(self.table.resources())

    async def restart_kubelet(self) -> None:
        await self.stop_kubelet()
        await self.kubelet.start()

    async def lose_folder(self) -> None:
        await self.stop_kubelet()
        shutil.rmtree(self.folder / "k")
        await self.kubelet.start()

    async def change_layout(self) -> None:
        self.wanted = [*self.wanted[1:], slice_(9, len(self.wanted), parts=16)]
        await self.plugins.advertise(self.wanted)

    def allocatable(self) -> dict[str, int]:
        return {name: count for name, count in self.table.allocatable().items() if count}

    def expected(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in self.wanted:
            counts[one.resource] = counts.get(one.resource, 0) + one.healthy
        return counts


@pytest.fixture(params=[False, True], ids=["new kubelet", "old kubelet"])
async def node(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    one = Node(folder, old=request.param)
    await one.kubelet.start()
    await one.plugins.start()
    yield one
    await one.plugins.stop()
    await one.kubelet.stop()


async def offer(node: Node, bindings: list[ShareBinding]) -> None:
    node.wanted = bindings
    await node.plugins.advertise(bindings)
    await eventually(lambda: node.allocatable() == node.expected())


async def test_mixed_layouts_are_counted_class_by_class(node: Node) -> None:
    await offer(node, MIXED)
    assert node.table.get("nvidia.com/gpu").healthy == {gpu_uuid(0), gpu_uuid(1)}


EVENTS = ("restart_agent", "restart_kubelet", "lose_folder", "change_layout")


@pytest.mark.parametrize("order", list(permutations(EVENTS, 3)), ids=" then ".join)
async def test_counts_are_right_again_after_restarts_in_any_order(
    node: Node, order: tuple[str, ...]
) -> None:
    await offer(node, MIXED)
    for event in order:
        await getattr(node, event)()
    await eventually(lambda: node.allocatable() == node.expected(), 5)
    assert await node.plugins.wait_serving(5)
    assert node.allocatable() == node.expected()


async def test_a_withdrawn_class_counts_zero_at_once(node: Node) -> None:
    await offer(node, MIXED)
    node.wanted = [one for one in MIXED if one.resource != "nvidia.com/gpu"]
    delivery = await node.plugins.advertise(node.wanted)
    assert not delivery.pending
    await eventually(lambda: node.table.capacity()["nvidia.com/gpu"] == 0, 2)


async def test_a_container_runtime_resolves_what_allocate_names(node: Node) -> None:
    await offer(node, MIXED)
    for binding in MIXED:
        endpoint = node.kubelet.endpoint(binding.resource)
        assert endpoint is not None
        answer = await endpoint.allocate([binding.device_id])
        names = [one.name for one in answer.cdi_devices]
        edits = cdi.resolve(names, [node.folder / "cdi"])
        assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == binding.visible
        assert tuple(one.path for one in edits.nodes) == tuple(sorted(binding.device_nodes))
        assert bool(edits.mounts) is (binding.mps is not None)


async def test_two_whole_gpus_resolve_to_one_set_of_edits(node: Node) -> None:
    await offer(node, MIXED)
    endpoint = node.kubelet.endpoint("nvidia.com/gpu")
    assert endpoint is not None
    answer = await endpoint.allocate([gpu_uuid(0), gpu_uuid(1)])
    edits = cdi.resolve([one.name for one in answer.cdi_devices], [node.folder / "cdi"])
    assert [name for name, _ in edits.env].count("NVIDIA_VISIBLE_DEVICES") == 1
    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == f"{gpu_uuid(0)},{gpu_uuid(1)}"
