"""The product on an embedded cluster: CRDs, the webhook's registration, and its programs running.

The webhook, the controller and the agents are processes of their own with kubeconfigs of their
own identities, as they are in a real cluster (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from certs.start import fresh_identity
from cli.trial.programs import Program
from cli.trial.scenario import NodeSpec
from embedded.apiserver import service_account
from embedded.cluster import EmbeddedCluster, EmbeddedNode
from sharing.api.crd import crd_manifests
from sharing.cluster.cache import Cache, whole
from sharing.cluster.client import Client
from sharing.cluster.kind import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    GPU_LAYOUTS,
    GPU_NODES,
    JOBS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SHARING_PROFILES,
    Kind,
)
from sharing.errors import InputError, UnavailableError, shown
from webhook.registration import client_by_url, configuration

NAMESPACE: Final = "gpu-sharing"
_LAYOUT_TIMEOUT_S: Final = 60.0
_KNOWN_TIMEOUT_S: Final = 10.0
_KNOWN_POLL_S: Final = 0.02
_HOST: Final = "127.0.0.1"

Told = Callable[[str], None]

_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version, kind.kind): kind
    for kind in (
        CONFIG_MAPS, DEPLOYMENTS, GPU_LAYOUTS, GPU_NODES, JOBS, NAMESPACES, PODS, RESOURCE_QUOTAS,
        SHARING_PROFILES,
    )
}  # fmt: skip


class Installation:
    """A cluster with the product on it; an async context manager.

    Args:
        folder: For everything that is written. Short: unix sockets lie below it.
        nodes: The simulated nodes.
        port: The API server's port; 0 for a free one.
        objects: What exists before the agents start.
        told: Hears what is being done.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[NodeSpec],
        *,
        port: int = 0,
        objects: Sequence[Mapping[str, Any]] = (),
        told: Told = lambda _: None,
    ) -> None:
        self.folder = folder
        self.nodes = tuple(nodes)
        embedded = [EmbeddedNode(name=node.name, labels=node.labels) for node in self.nodes]
        self.cluster = EmbeddedCluster(folder, embedded, port=port)
        self.programs: dict[str, Program] = {}
        self.client: Client = None  # type: ignore[assignment]  # there from __aenter__ on
        self._objects = tuple(objects)
        self._told = told
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._told("starting the API server, the scheduler and the kubelets")
            await stack.enter_async_context(self.cluster)
            self.client = await stack.enter_async_context(self.cluster.client())
            await self._prepare()
            self._told("starting the webhook, the controller and one agent a node")
            await self._start_programs(stack)
            await self._register()
            self._told("cutting GPUs as laid out")
            await self._layouts_served()
            await self._known_to_webhook()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def state_file(self, node: str) -> Path:
        """The state of a node's simulated GPUs."""
        return self.folder / node / f"{node}.json"

    async def _prepare(self) -> None:
        """CRDs, our namespace and the scenario's objects."""
        for crd in crd_manifests():
            await self.client.create(CRDS, crd)
        await self.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for manifest in self._objects:
            await create(self.client, manifest)

    async def _start_programs(self, stack: AsyncExitStack) -> None:
        """All at once: each takes about a second of processor time to start."""
        identity = fresh_identity(["localhost", _HOST], datetime.now(UTC))
        self._authority = identity.ca_pem
        pair = self.folder / "pair"
        pair.mkdir(mode=0o700)
        (pair / "tls.crt").write_bytes(identity.leaf_pem)
        (pair / "tls.key").write_bytes(identity.key_pem)
        self._add("webhook", "--host", _HOST, "--port", "0", "--health-host", _HOST,
                  "--health-port", "0", "--drain-delay", "0", "--drain-timeout", "2",
                  "--cert", str(pair / "tls.crt"), "--key", str(pair / "tls.key"),
                  ready="ready: ")  # fmt: skip
        self._add("controller")
        for node in self.nodes:
            self._add_agent(node)
        stack.push_async_callback(self._stop_programs)
        async with asyncio.TaskGroup() as group:
            for each in self.programs.values():
                group.create_task(each.start(), name=f"start {each.name}")

    async def _stop_programs(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.programs.values()))

    def _add(self, name: str, *arguments: str, ready: str = "ready") -> None:
        kubeconfig = self.cluster.kubeconfig(service_account(NAMESPACE, name))
        self.programs[name] = Program(
            name,
            [name, "--kubeconfig", str(kubeconfig), *arguments],
            log=self.folder / "logs" / f"{name}.log",
            ready=ready,
        )

    def _add_agent(self, node: NodeSpec) -> None:
        folder = self.cluster.node_folder(node.name)
        kubeconfig = self.cluster.kubeconfig(service_account(NAMESPACE, "agent"))
        boards = node.gpus if isinstance(node.gpus, str) else ",".join(node.gpus)
        arguments = [
            "agent", "--node-name", node.name, "--kubeconfig", str(kubeconfig),
            "--simulate", boards, "--simulate-state", str(self.state_file(node.name)),
            "--kubelet-dir", str(folder / "kubelet"), "--cdi-dir", str(folder / "cdi"),
            "--state-dir", str(folder / "state"), "--mps-dir", str(folder / "mps"),
            "--end-mps",
        ]  # fmt: skip
        name = f"agent {node.name}"
        log = self.folder / "logs" / f"agent-{node.name}.log"
        self.programs[name] = Program(name, arguments, log=log)

    async def _register(self) -> None:
        """Tell the API server to ask the webhook, at the address that it printed."""
        url = self.programs["webhook"].address("https")
        await self.client.create(
            MUTATING_WEBHOOKS, configuration(client_by_url(url, self._authority))
        )

    async def _layouts_served(self) -> None:
        """Wait until each managed node serves what its GPUNode wants."""
        wants_layout = any(each.get("kind") == "GPULayout" for each in self._objects)
        names = {node.name for node in self.nodes}

        def served(objects: Mapping[tuple[str, str], Mapping[str, Any]]) -> bool:
            ready = {
                name
                for (_, name), node in objects.items()
                if _is_served(node, wants_layout=wants_layout)
            }
            return names <= ready

        await until(
            self.client,
            GPU_NODES,
            served,
            what="the nodes' layouts",
            timeout_s=_LAYOUT_TIMEOUT_S,
        )

    async def _known_to_webhook(self) -> None:
        """Wait until decisions see what the nodes offer, by the webhook's own metrics."""
        nodes = (await self.client.list(GPU_NODES))["items"]
        wanted = sum(
            bool(share.get("healthy", True))
            for node in nodes
            for gpu in (node.get("status") or {}).get("gpus") or ()
            for share in gpu.get("shares") or ()
        )
        health = self.programs["webhook"].address("http")
        address = health.rpartition("/")[0] + "/metrics"
        try:
            async with asyncio.timeout(_KNOWN_TIMEOUT_S), aiohttp.ClientSession() as session:
                while await _offered(session, address) != wanted:  # noqa: ASYNC110 - metrics are polled
                    await asyncio.sleep(_KNOWN_POLL_S)
        except TimeoutError:
            raise UnavailableError(
                "webhook", f"does not know all {wanted} shares after {_KNOWN_TIMEOUT_S:.0f} s"
            ) from None


async def _offered(session: aiohttp.ClientSession, address: str) -> int:
    async with session.get(address) as response:
        text = await response.text()
    return sum(
        int(float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "gpu_sharing_webhook_offered_shares"
    )


def _is_served(node: Mapping[str, Any], *, wants_layout: bool) -> bool:
    wanted = (node.get("spec") or {}).get("gpus")
    if wants_layout and not wanted:
        return False
    generation = node["metadata"].get("generation")
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(
        each["type"] == "Ready"
        and each["status"] == "True"
        and each.get("observedGeneration") == generation
        for each in conditions
    )


async def until(
    client: Client,
    kind: Kind,
    fulfilled: Callable[[Mapping[tuple[str, str], Mapping[str, Any]]], bool],
    *,
    what: str,
    timeout_s: float,
) -> None:
    """Wait until the objects of a kind fulfil a condition, seen through a watch.

    Raises:
        UnavailableError: They did not in time.
    """
    try:
        async with asyncio.timeout(timeout_s), Cache(client, kind, whole) as cache:
            await cache.wait_synced(timeout_s=timeout_s)
            await cache.until(lambda store: fulfilled(dict(store.items())))
    except TimeoutError:
        raise UnavailableError(
            what, f"not there after {timeout_s:.0f} s", fix="look into the programs' logs"
        ) from None


async def create(client: Client, manifest: Mapping[str, Any]) -> None:
    """Create an object of any kind that the product or a scenario uses.

    Raises:
        InputError: Its kind is not known here.
        ApiError: The API server refused it.
    """
    kind = _KINDS.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
    if kind is None:
        raise InputError(
            "scenario",
            f"objects of kind {shown(manifest.get('kind'))} in {shown(manifest.get('apiVersion'))} "
            "are not created by it",
            expected=", ".join(sorted(name for _, name in _KINDS)),
        )
    await client.create(kind, manifest)
