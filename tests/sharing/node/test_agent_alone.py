"""The agent without its API server, and beside GPUs that nobody gave a layout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from sharing.catalogue import load
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.kind import GPU_NODES, NODES
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.health import HealthPolicy
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Machine
from tests.support.agent_bench import NodeBench, node_bench
from tests.support.nodeworld import World, bare_gpu


class Line:
    """A connection to the API server that can be cut; what goes through it is not touched."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.close()
            return
        there, back = await asyncio.open_connection(*self._server)
        self._open |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # the other end is gone, which closing tells this one
        finally:
            sink.close()

    def cut(self) -> None:
        """The API server is away."""
        self._cut = True
        for writer in self._open:
            writer.close()
        self._open.clear()

    def mend(self) -> None:
        """It is back."""
        self._cut = False


@asynccontextmanager
async def line_to(node: NodeBench) -> AsyncIterator[tuple[Line, Client]]:
    """A line to the bench's API server, and a client on it."""
    known = json.loads((node.folder / "kubeconfig").read_text("utf-8"))
    address = urlsplit(known["clusters"][0]["cluster"]["server"])
    assert address.hostname is not None
    assert address.port is not None
    line = Line(address.hostname, address.port)
    token = known["users"][0]["user"]["token"]
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(line, "127.0.0.1", 0)
        stack.callback(server.close)
        stack.callback(line.cut)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        async def source() -> credentials.Access:
            return credentials.Access(server=url, origin="test", authorization=f"Bearer {token}")

        yield line, await stack.enter_async_context(Client(source))


async def test_while_the_api_server_is_away_faults_are_acted_on_and_are_told_when_it_is_back() -> (
    None
):
    async with node_bench("2xH100-80GB") as node, line_to(node) as (line, client):
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}})
        await node.start_agent(client=client, health=HealthPolicy(quiet_s=3600.0))
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 4})

        line.cut()
        node.store().change(lambda machine: operate.report_xid(machine, "0", 79))
        await node.until_allocatable({"gpu.sharing/timeslice-1of2": 2})
        pod = await node.run_pod("train", "gpu.sharing/timeslice-1of2")
        assert pod["status"]["phase"] == "Running"
        assert node.status.gpus[0].health.healthy  # nobody could be told
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})

        line.mend()
        status = await node.until_status(lambda s: not s.gpus[0].health.healthy)
        assert status.gpus[0].health.xid == 79
        status = await node.until_status(lambda s: s.plan is not None and bool(s.plan.blocked_by))
        assert status.plan is not None
        assert "pod default/train" in status.plan.blocked_by[0]
        assert node.phase("train") == "Running"


async def test_mig_instances_that_nobody_asked_for_stay_on_a_gpu_without_a_layout() -> None:
    async with node_bench("1xH100-80GB") as node:

        def made_before_us(machine: Machine) -> tuple[Machine, None]:
            machine, _ = operate.set_mig_mode(machine, "0", on=True)
            for profile in ("3g.40gb", "1g.10gb"):
                machine, _ = operate.create_instance(machine, "0", MigProfile.parse(profile))
            return machine, None

        node.store().change(made_before_us)
        before = node.machine().gpus[0].instances

        await node.start_agent()

        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-3g.40gb": 1})
        assert node.machine().gpus[0].instances == before


def test_after_a_reboot_nothing_is_offered_before_its_layout_is_back() -> None:
    world = World(gpu=bare_gpu(load().board("H100-80GB")), wanted=EXCLUSIVE_LAYOUT)
    world.wanted = GpuLayout(mode=Mode.MIG, sizes=((MigProfile.parse("3g.40gb"), 2),))
    world.settle()
    assert len(world.counted) == 2

    world.reboot()

    while world.plan().steps:
        made = {one.device_id("GPU-0") for one in world.gpu.instances}
        world.turn()
        assert {share.device_id for share in world.listed} <= made
        world.take_in_all()
    assert len(world.counted) == 2


async def test_a_deleted_gpunode_comes_back_and_nothing_happens_to_shares() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 2}})
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        before = node.machine().gpus[0].instances
        old = (node.gpu_nodes.get("n1") or {})["metadata"]["uid"]

        await node.client.delete(GPU_NODES, "n1")
        await node.until(
            node.gpu_nodes,
            lambda: (node.gpu_nodes.get("n1") or {}).get("metadata", {}).get("uid", old) != old,
            lambda: node.gpu_nodes.get("n1"),
        )
        status = await node.until_status(lambda s: bool(s.gpus) and bool(s.gpus[0].shares))
        await node.until_served()
        assert {share.resource for share in status.gpus[0].shares} == {"nvidia.com/mig-1g.10gb"}
        assert node.allocatable() == {"nvidia.com/mig-1g.10gb": 2}
        assert node.machine().gpus[0].instances == before
        assert node.phase("train") == "Running"


async def test_a_node_that_is_given_up_offers_nothing_and_leaves_its_pods_alone() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "mig", "sizes": {"1g.10gb": 2}})
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        await node.run_pod("train", "nvidia.com/mig-1g.10gb")
        before = node.machine().gpus[0].instances
        label = "gpu.sharing/managed"

        await node.client.patch(NODES, "n1", {"metadata": {"labels": {label: None}}})
        await node.until_allocatable({})
        assert node.phase("train") == "Running"
        assert node.machine().gpus[0].instances == before

        await node.client.patch(NODES, "n1", {"metadata": {"labels": {label: "true"}}})
        await node.until_allocatable({"nvidia.com/mig-1g.10gb": 2})
        assert node.machine().gpus[0].instances == before
