"""The product on a cluster: CRDs, the webhook's registration, and its programs running.

The webhook, the controller and the agents are processes of their own, on an embedded cluster with
kubeconfigs of their own identities, as they are in a real cluster (docs/decisions/0006). What
differs from cluster to cluster is in ``ground``; here is one way for all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from certs.start import fresh_identity
from cli.trial.ground import Ground, Place
from cli.trial.kinds import kind_of
from cli.trial.objects import Objects, until
from cli.trial.programs import Program
from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.errors import AlreadyExistsError, ApiError
from sharing.cluster.kind import CRDS, GPU_NODES, MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from sharing.errors import InputError, UnavailableError
from sharing.quantity import parse_quantity
from webhook.registration import NAME, client_by_url, configuration

NAMESPACE: Final = "gpu-sharing"
_LAYOUT_TIMEOUT_S: Final = 60.0
_KNOWN_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_LOOPBACK: Final = "127.0.0.1"
_OFFERED: Final = "gpu_sharing_webhook_offered_shares"
_REVIEWS: Final = "gpu_sharing_webhook_reviews_total"
_PROBE: Final = {
    "metadata": {"generateName": "probe-", "annotations": {"gpu.sharing/fraction": "1/2"}},
    "spec": {"containers": [{"name": "main", "image": "registry.example/probe:1"}]},
}

Told = Callable[[str], None]


async def _nothing() -> None:
    """What is done meanwhile, usually."""


class Installation:
    """The product on a cluster; an async context manager.

    Args:
        ground: The cluster; it is started with the installation and ends with it.
        folder: For keys and logs.
        objects: What exists before the agents start.
        told: Hears what is being done.
        agent_options: For every agent that is started, beside its folders and GPUs.
    """

    def __init__(
        self,
        ground: Ground,
        folder: Path,
        *,
        objects: Sequence[Mapping[str, Any]] = (),
        told: Told = lambda _: None,
        agent_options: Sequence[str] = (),
    ) -> None:
        self.ground = ground
        self.folder = folder
        self.programs: dict[str, Program] = {}
        self.client: Client = None  # type: ignore[assignment]  # there from __aenter__ on
        self.objects: Objects = None  # type: ignore[assignment]  # as above
        self._wanted = tuple(objects)
        self._told = told
        self._agent_options = tuple(agent_options)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._told(f"starting on {self.ground.about}")
            await stack.enter_async_context(self.ground)
            self.client = await stack.enter_async_context(self.ground.client())
            self.objects = Objects(self.client, self.ground)
            if self.ground.lasts:
                stack.push_async_callback(self._remove_traces)
            await self._prepare()
            self._told("starting the webhook, the controller and one agent a node")
            await self._start_programs(stack)
            if self.ground.lasts:  # while agents and webhook still run
                stack.push_async_callback(self._remove_objects)
            await self._register()
            self._told("cutting GPUs as laid out")
            await self._layouts_served()
            await self.known_to_webhook(await self._counted())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def place(self, node: str) -> Place:
        """A node by its name."""
        return next(place for place in self.ground.places if place.name == node)

    def agent(self, node: str) -> Program:
        """The agent of a node."""
        return self.programs[f"agent {node}"]

    # -- the way in

    async def _prepare(self) -> None:
        """CRDs, our namespace, the nodes' labels and the scenario's objects."""
        await self.objects.define(crd_manifests())
        try:
            await self.objects.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        except AlreadyExistsError:
            self._told(f"using the namespace {NAMESPACE} that is there")
        for place in self.ground.places:
            await self.objects.label(place)
        for manifest in self._wanted:
            await self.objects.create(kind_of(manifest), manifest)

    async def _start_programs(self, stack: AsyncExitStack) -> None:
        """All at once: each takes about a second of processor time to start."""
        host, port = self.ground.listen
        named = urlsplit(self.ground.url(f"https://{host}:{port}")).hostname or host
        identity = fresh_identity(["localhost", _LOOPBACK, named], datetime.now(UTC))
        self._authority = identity.ca_pem
        pair = self.folder / "pair"
        pair.mkdir(mode=0o700)
        (pair / "tls.crt").write_bytes(identity.leaf_pem)
        (pair / "tls.key").write_bytes(identity.key_pem)
        self._add("webhook", "--host", host, "--port", str(port), "--health-host", _LOOPBACK,
                  "--health-port", "0", "--drain-delay", "0", "--drain-timeout", "2",
                  "--cert", str(pair / "tls.crt"), "--key", str(pair / "tls.key"),
                  ready="ready: ")  # fmt: skip
        self._add("controller")
        for place in self.ground.places:
            if place.kubelet is not None and place.cdi is not None:
                self._add_agent(place, place.kubelet, place.cdi)
        stack.push_async_callback(self._stop_programs)
        async with asyncio.TaskGroup() as group:
            for each in self.programs.values():
                group.create_task(each.start(), name=f"start {each.name}")

    async def _stop_programs(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.programs.values()))

    def _add(self, name: str, *arguments: str, title: str = "", ready: str = "ready") -> None:
        kubeconfig = self.ground.kubeconfig(name)
        access = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
        title = title or name
        self.programs[title] = Program(
            title,
            [name, *access, *arguments],
            log=self.folder / "logs" / f"{title.replace(' ', '-')}.log",
            ready=ready,
            inside=partial(self.ground.inside, title),
        )

    def _add_agent(self, place: Place, kubelet: Path, cdi: Path) -> None:
        place.folder.mkdir(parents=True, exist_ok=True)
        gpus = place.spec.gpus
        boards = gpus if isinstance(gpus, str) else ",".join(gpus)
        self._add(
            "agent", "--node-name", place.name,
            "--simulate", boards, "--simulate-state", str(place.gpus), "--simulate-files",
            "--kubelet-dir", str(kubelet), "--cdi-dir", str(cdi),
            "--state-dir", str(place.folder / "state"), "--mps-dir", str(place.folder / "mps"),
            "--end-mps", *self._agent_options, title=f"agent {place.name}",
        )  # fmt: skip

    async def _register(self) -> None:
        """Tell the API server to ask the webhook, and wait until it does."""
        url = self.ground.url(self.programs["webhook"].address("https"))
        hook = configuration(client_by_url(url, self._authority))
        try:
            await self.objects.create(MUTATING_WEBHOOKS, hook)
        except AlreadyExistsError:
            raise InputError(
                f"MutatingWebhookConfiguration {NAME}",
                "is there already, so the product is installed on this cluster",
                fix="try it with pods of your own, or run the demo on another cluster",
                example="gpu-sharing demo",
            ) from None
        await self._metric(_REVIEWS, lambda reviews: reviews > 0, f"is not asked at {url}",
                           meanwhile=self._probe)  # fmt: skip

    async def _probe(self) -> None:
        """A pod that is sent to the webhook and never created, whatever becomes of it."""
        with suppress(ApiError):
            await self.client.create(PODS, _PROBE, namespace="default", dry_run=True)

    # -- waiting

    async def _layouts_served(self) -> None:
        """Wait until each managed node serves what its GPUNode wants."""
        wants_layout = any(each.get("kind") == "GPULayout" for each in self._wanted)
        names = {place.name for place in self.ground.places}

        def served(objects: Mapping[tuple[str, str], Mapping[str, Any]]) -> bool:
            ready = {
                name
                for (_, name), node in objects.items()
                if is_served(node, wants_layout=wants_layout)
            }
            return names <= ready

        await until(
            self.client,
            GPU_NODES,
            served,
            what="the nodes' layouts",
            timeout_s=_LAYOUT_TIMEOUT_S,
        )

    async def _counted(self) -> int:
        """All shares, once each kubelet has told the scheduler of its own."""
        names = {place.name for place in self.ground.places}
        listed = (await self.client.list(GPU_NODES))["items"]
        wanted = {node["metadata"]["name"]: shares_of(node) for node in listed}

        def counted(nodes: Mapping[tuple[str, str], Mapping[str, Any]]) -> bool:
            return all(
                parse_quantity((nodes["", name]["status"].get("allocatable") or {}).get(share, "0"))
                == count
                for name in names & wanted.keys()
                for share, count in wanted[name].items()
            )

        await until(
            self.client, NODES, counted, what="the kubelets' counts", timeout_s=_LAYOUT_TIMEOUT_S
        )
        return sum(shares.total() for shares in wanted.values())

    async def known_to_webhook(self, wanted: int) -> None:
        """Wait until decisions see so many shares, by the webhook's own metrics.

        Raises:
            UnavailableError: They do not in time.
        """
        await self._metric(
            _OFFERED, lambda known: known == wanted, f"does not know all {wanted} shares"
        )

    async def _metric(
        self,
        name: str,
        fulfilled: Callable[[int], bool],
        otherwise: str,
        *,
        meanwhile: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        health = self.programs["webhook"].address("http")
        address = health.rpartition("/")[0] + "/metrics"
        try:
            async with asyncio.timeout(_KNOWN_TIMEOUT_S), aiohttp.ClientSession() as session:
                while not fulfilled(await _total(session, address, name)):
                    await meanwhile()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise UnavailableError(
                "webhook", f"{otherwise} after {_KNOWN_TIMEOUT_S:.0f} s"
            ) from None

    # -- the way out of a cluster that goes on

    async def _remove_objects(self) -> None:
        self._told("removing what was created")
        await self.objects.remove(but=CRDS)

    async def _remove_traces(self) -> None:
        for place in self.ground.places:
            if place.kubelet is not None:
                await self.objects.remove_nodes_traces(place)
        await self.objects.remove()


async def _total(session: aiohttp.ClientSession, address: str, name: str) -> int:
    async with session.get(address) as response:
        text = await response.text()
    return sum(
        int(float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )


def shares_of(node: Mapping[str, Any]) -> Counter[str]:
    """Healthy shares by resource, as a GPUNode's status has them."""
    gpus = (node.get("status") or {}).get("gpus") or ()
    shares = (share for gpu in gpus for share in gpu.get("shares") or ())
    return Counter(share["resource"] for share in shares if share.get("healthy", True))


def is_served(node: Mapping[str, Any], *, wants_layout: bool = True) -> bool:
    """Whether a GPUNode's wanted layout is what the node offers."""
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
