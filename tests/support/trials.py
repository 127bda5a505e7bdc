"""One installation on an embedded cluster or on a real node, with the same handles for tests.

What a test does with a cluster beyond its API: end and start the kubelet, cut the node's power,
break simulated GPUs, ask who holds what. On the real node each program works with the rights that
the chart gives it, and the agent runs inside, so that it dies in a reboot.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from cli.trial.collecting import read_devices
from cli.trial.embeddedground import EmbeddedGround
from cli.trial.ground import Place
from cli.trial.installation import Installation, shares_of
from cli.trial.objects import until
from cli.trial.programs import Program
from cli.trial.realground import RealGround
from cli.trial.scenario import NodeSpec
from cli.trial.viewing import Seen
from sharing.cluster.client import Client
from sharing.cluster.errors import NotFoundError
from sharing.cluster.kind import GPU_NODES, MUTATING_WEBHOOKS, NODES, PODS
from sharing.names import MILLI_GPU
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Machine
from sharing.nvml.simulator.store import Store
from sharing.quantity import parse_quantity
from tests.cluster.waiting import eventually
from tests.support import books
from tests.support.books import Books
from webhook.registration import NAME

if TYPE_CHECKING:
    from tests.cluster.box.box import Box

WAIT_S: Final = 40.0
NODE: Final = NodeSpec(
    name="n1", gpus="8xH100-80GB", labels={"gpu.sharing/managed": "true", "pool": "all"}
)

PodKey = tuple[str, str]
"""Namespace and name."""


class Node(Protocol):
    """What can be done to the one node."""

    async def restart_kubelet(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the kubelet and start it again; pods run on."""
        ...

    async def cut_power(self, *, whole: bool) -> None:
        """Start the node again with what its disks have; nothing that ran does.

        Args:
            whole: The control plane too, if it is the same machine's.
        """
        ...

    async def restart_api_server(self) -> None:
        """End the API server and start it again: connections, watches and history are lost."""
        ...


class EmbeddedNode:
    """The embedded cluster's node."""

    def __init__(self, ground: EmbeddedGround) -> None:
        self._api = ground.cluster.api
        self._kubelet = ground.cluster.kubelets[NODE.name]

    async def restart_kubelet(self, how: signal.Signals = signal.SIGTERM) -> None:
        """It writes nothing at its end, so that each end is the same."""
        del how
        await self._kubelet.restart()

    async def cut_power(self, *, whole: bool) -> None:
        await self._kubelet.reboot()
        if whole:
            await self._api.restart()

    async def restart_api_server(self) -> None:
        await self._api.restart()


class BoxNode:
    """A real node in a box."""

    def __init__(self, box: Box) -> None:
        self._box = box

    async def restart_kubelet(self, how: signal.Signals = signal.SIGTERM) -> None:
        await asyncio.to_thread(self._box.restart, "kubelet", how)

    async def cut_power(self, *, whole: bool) -> None:
        await asyncio.to_thread(self._box.reboot, whole=whole)

    async def restart_api_server(self) -> None:
        await asyncio.to_thread(self._box.restart, "kube-apiserver", signal.SIGKILL)


class BoxGround(RealGround):
    """A real cluster whose agent runs inside the node."""

    def __init__(self, box: Box, **settings: Any) -> None:
        super().__init__(box.access.kubeconfig(), **settings)
        self._box = box

    def inside(self, program: str) -> tuple[str, ...]:
        return tuple(self._box.command()) if program.startswith("agent") else ()


class Trial:
    """A running installation and its node."""

    def __init__(self, installed: Installation, node: Node, *, is_real: bool) -> None:
        self.installed = installed
        self.is_real = is_real
        self._node = node
        self._rebooted = False

    @property
    def client(self) -> Client:
        """A client with all rights."""
        return self.installed.client

    @property
    def place(self) -> Place:
        """The one node."""
        return self.installed.ground.places[0]

    @property
    def agent(self) -> Program:
        """The node's agent."""
        return self.installed.agent(self.place.name)

    # -- pods

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod, as it can run here."""
        return await self.client.create(PODS, self.installed.ground.fitted(manifest))

    async def reaches(self, pod: PodKey, *phases: str) -> dict[str, Any]:
        """The pod once it is in one of the phases."""
        found: dict[str, Any] = {}

        def reached(store: Mapping[PodKey, Mapping[str, Any]]) -> bool:
            found.update(store.get(pod) or {})
            return (found.get("status") or {}).get("phase") in phases

        await until(self.client, PODS, reached, what=f"{pod} {phases}", timeout_s=WAIT_S)
        return found

    async def unschedulable(self, pod: PodKey) -> str:
        """Why the scheduler finds no node for a pod, once it has said so."""
        said: list[str] = []

        def waits(store: Mapping[PodKey, Mapping[str, Any]]) -> bool:
            conditions = ((store.get(pod) or {}).get("status") or {}).get("conditions") or ()
            said[:] = [
                str(each.get("message")) for each in conditions
                if each["type"] == "PodScheduled" and each["status"] == "False"
            ]  # fmt: skip
            return bool(said)

        await until(self.client, PODS, waits, what=f"{pod} waits", timeout_s=WAIT_S)
        return said[0]

    async def delete(self, *pods: PodKey) -> None:
        """End pods and wait until they are gone."""
        for namespace, name in pods:
            try:
                await self.client.delete(PODS, name, namespace=namespace)
            except NotFoundError:
                continue
        keys = set(pods)
        await until(
            self.client, PODS, lambda store: not keys & store.keys(), what="ends", timeout_s=WAIT_S
        )

    async def delete_all(self) -> None:
        """End every pod of the trial's namespaces."""
        listed = (await self.client.list(PODS))["items"]
        keys = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in listed]
        await self.delete(*(key for key in keys if not key[0].startswith("kube-")))

    async def view(self, pod: PodKey, container: str = "main") -> Seen | None:
        """What a container sees."""
        return await self.installed.ground.view(self.client, self.place, pod, container)

    # -- counts

    async def held(self) -> dict[tuple[str, str, str], dict[str, tuple[str, ...]]]:
        """The kubelet's own account: device ids by resource, by container."""
        devices = await read_devices(self.place)
        return {key: dict(held) for key, held in devices.items() if held}

    async def offered(self) -> dict[str, int]:
        """What the node allocates of our resources, by the Node object; zeros left out."""
        node = await self.client.get(NODES, self.place.name)
        counts = {k: parse_quantity(v) for k, v in node["status"]["allocatable"].items()}
        return {
            name: int(count)
            for name, count in counts.items()
            if name.startswith(("nvidia.com/", "gpu.sharing/")) and name != MILLI_GPU and count
        }

    async def published(self) -> dict[str, int]:
        """Healthy shares by resource, by the agent's own account."""
        return dict(shares_of(await self.client.get(GPU_NODES, self.place.name)))

    async def books(self) -> Books:
        """All accounts of the node."""
        assert self.place.pod_resources is not None
        return await books.read(
            self.client, self.place.name, self.place.pod_resources, self.place.gpus
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """See that nothing is handed out twice meanwhile, not even for a moment."""
        assert self.place.kubelet is not None
        plugins = self.place.kubelet / "device-plugins"
        watching = books.watched(plugins, self.place.gpus, lambda: self._rebooted)
        async with watching as said:
            yield
        assert not said, said

    async def counts_agree(self, fulfilled: Callable[[Mapping[str, int]], bool] = bool) -> None:
        """Wait until all books agree and are as wanted, and the webhook knows them.

        Raises:
            NeverHappenedError: They do not in time.
        """
        seen: dict[str, Any] = {}

        async def agree() -> bool:
            found = await self.books()
            offered = {k: n for k, n in found.allocatable.items() if k != MILLI_GPU}
            seen.update(offered=offered, disagreements=books.disagreements(found))
            return not seen["disagreements"] and fulfilled(seen["offered"])

        try:
            await eventually("the counts agree", agree, timeout_s=WAIT_S)
        except AssertionError as error:
            error.add_note(str(seen))
            raise
        self._rebooted = False
        await self.installed.known_to_webhook(sum(seen["offered"].values()))

    # -- troubles

    async def kill_agent(self) -> None:
        """End the agent with kill -9 and start it again."""
        await self.agent.stop(signal.SIGKILL)
        await self.agent.start()

    async def kill_webhook(self) -> None:
        """End the webhook with kill -9."""
        await self.installed.programs["webhook"].stop(signal.SIGKILL)

    async def start_webhook(self) -> None:
        """Start it again; its registration follows it to its new port, if it has one."""
        webhook = self.installed.programs["webhook"]
        await webhook.start()
        hook = await self.client.get(MUTATING_WEBHOOKS, NAME)
        for entry in hook["webhooks"]:
            entry["clientConfig"]["url"] = self.installed.ground.url(webhook.address("https"))
        await self.client.replace(MUTATING_WEBHOOKS, hook)

    async def restart_kubelet(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the kubelet and start it again; pods run on."""
        await self._node.restart_kubelet(how)

    async def restart_api_server(self) -> None:
        """End the API server and start it again with what it had stored."""
        await self._node.restart_api_server()

    async def reboot(self, *, whole: bool = False) -> None:
        """Cut the node's power: GPUs forget their instances, /run is lost, the agent dies.

        Args:
            whole: The control plane too.
        """
        await self.agent.stop(signal.SIGKILL)
        self._rebooted = True
        self.gpus(operate.reboot)
        shutil.rmtree(self.place.folder / "mps", ignore_errors=True)
        assert self.place.cdi is not None
        for file in self.place.cdi.iterdir():
            file.unlink()
        await self._node.cut_power(whole=whole)
        await self.agent.start()

    async def repair(self) -> None:
        """All GPUs are well and the agent knows of no fault: without its memory it must not wait
        out the time for which a GPU that was faulty has to be quiet."""
        await self.agent.stop()
        self._rebooted = True
        self.gpus(operate.reboot)
        shutil.rmtree(self.place.folder / "state")
        await self.agent.start()

    def index_of(self, uuid: str) -> int:
        """The index of a GPU, by the simulator's own state."""
        return next(n for n, gpu in enumerate(self.machine.gpus) if gpu.uuid == uuid)

    @property
    def machine(self) -> Machine:
        """The simulated GPUs as they are now."""
        return Store(self.place.gpus).read()

    def gpus(self, change: Callable[[Machine], tuple[Machine, Any]]) -> Any:
        """Do something to the simulated GPUs; what it returned."""
        return Store(self.place.gpus).change(change)


@asynccontextmanager
async def embedded_trial(
    folder: Path, objects: Sequence[Mapping[str, Any]]
) -> AsyncIterator[Trial]:
    """The product on an embedded cluster of one node."""
    ground = EmbeddedGround(folder, [NODE])
    options = _agent_options(folder)
    async with Installation(ground, folder, objects=objects, agent_options=options) as installed:
        yield Trial(installed, EmbeddedNode(ground), is_real=False)


@asynccontextmanager
async def box_trial(box: Box, objects: Sequence[Mapping[str, Any]]) -> AsyncIterator[Trial]:
    """The product on a real node, each program with the chart's rights."""
    from tests.cluster.box.configuration import IMAGE
    from tests.cluster.ports import free_ports
    from tests.cluster.rights import chart_identities

    folder = box.spec.folder / "t"
    folder.mkdir()
    (port,) = free_ports(1)
    identities = await asyncio.to_thread(chart_identities, box.access)
    identities["agent"] = _for_inside(identities["agent"], box.spec.server)
    inside = await asyncio.to_thread(box.let_in, port)
    place = Place(spec=NODE, name=box.node, folder=folder, kubelet=box.kubelet_dir, cdi=box.cdi_dir)
    ground = BoxGround(
        box,
        places=[place],
        image=IMAGE,
        listen=("127.0.0.1", port),
        webhook_url=f"https://127.0.0.1:{inside}/mutate",
        identities=identities,
    )
    options = _agent_options(folder)
    async with Installation(ground, folder, objects=objects, agent_options=options) as installed:
        yield Trial(installed, BoxNode(box), is_real=True)
    shutil.rmtree(folder)


def _agent_options(folder: Path) -> tuple[str, ...]:
    """A GPU that was faulty is trusted again after a second and one probe, however often."""
    policy = folder / "health.toml"
    policy.write_text(
        "[health]\nquiet_s = 1.0\nlongest_quiet_s = 1.0\nprobes = 1\nflap_limit = 1000\n"
    )
    return "--health-policy", str(policy)


def _for_inside(kubeconfig: Path, server: str) -> Path:
    """The same kubeconfig with the address that the API server has inside the node."""
    content = json.loads(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = server
    kubeconfig.write_text(json.dumps(content))
    return kubeconfig
