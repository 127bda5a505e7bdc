"""The agent's side of the API server: what it follows, and what it publishes.

Nothing waits for it: while the server is away, the last wanted state serves and the latest report
is published as soon as it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from sharing import names
from sharing.api.model import API_VERSION, parse_model
from sharing.api.node import Condition, GpuNodeSpec, GpuNodeStatus
from sharing.cluster.backoff import Backoff
from sharing.cluster.cache import Cache, Change
from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import AlreadyExistsError, ApiError, NotFoundError
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import GPU_NODES, NODES, PODS
from sharing.errors import InputError, QuantityError
from sharing.node.checkpoint import PodName
from sharing.node.deadkeys import DeadKeys, empty_keys
from sharing.node.foreign import others_offered
from sharing.node.nodecondition import condition_to_write, seen_condition
from sharing.node.podseen import by_uid, seen_pod
from sharing.node.rivals import ANNOTATIONS, LABELS, MIG_CONFIG_STATE
from sharing.node.status import is_ours
from sharing.quantity import parse_quantity

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSeen:
    """A GPUNode as the agent reads it."""

    generation: int | None
    spec: GpuNodeSpec | None
    """None where it cannot be understood."""
    complaint: str = ""
    """What is wrong with it."""
    status: GpuNodeStatus = field(default_factory=GpuNodeStatus)
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A Node as the agent reads it."""

    uid: str
    managed: bool
    labels: Mapping[str, str]
    """Those that agents write."""
    foreign: Mapping[str, str]
    """Those by which others who manage GPUs are known, and annotations that do the same."""
    milli: int | None
    """Capacity of the accounting resource."""
    healthy: tuple[str, str, str] = ("", "", "")
    """Status, reason and message of the Node's condition about its GPUs."""
    empty: tuple[str, ...] = ()
    """Share resources of which there are none."""
    others: tuple[str, ...] = ()
    """Extended resources that somebody else offers there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What the API server shall show."""

    status: GpuNodeStatus
    labels: Mapping[str, str]
    milli: int
    healthy: Condition | None = None
    """What the Node's own condition about its GPUs says."""


class NodeApi:
    """Follows one node's objects and keeps what the agent says of it up to date.

    Args:
        client: The connection.
        node: The node's name.
        mig_config_state: Whether ``nvidia.com/mig.config.state`` is ours to write.
        on_change: Called when something that the agent follows changed.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        on_change: Callable[[], None],
        *,
        mig_config_state: bool = False,
    ) -> None:
        by_name = f"metadata.name={node}"
        self._client = client
        self._node = node
        self._specs = Cache(client, GPU_NODES, seen_spec, field_selector=by_name)
        self._nodes = Cache(client, NODES, seen_node, field_selector=by_name)
        self._pods = Cache(client, PODS, seen_pod, field_selector=f"spec.nodeName={node}")
        self._on_change = on_change
        self._mig_config_state = mig_config_state
        self.events = EventRecorder(client, "gpu-sharing-agent", instance=node)
        self.dead_keys = DeadKeys()
        self._wanted: Publication | None = None
        self._told: GpuNodeStatus | None = None
        self._dirty = asyncio.Event()
        self.published = asyncio.Event()
        """Set while everything that was said is at the server."""

    # -- what it follows

    @property
    def synced(self) -> bool:
        """Whether the server told once what it has of this node."""
        return self._specs.synced.is_set() and self._nodes.synced.is_set()

    @property
    def spec(self) -> SpecSeen | None:
        """The GPUNode; None if there is none."""
        return self._specs.get(self._node)

    @property
    def managed(self) -> bool:
        """Whether the node is ours to serve."""
        node = self._nodes.get(self._node)
        return node is not None and node.managed

    @property
    def gpu_node(self) -> Mapping[str, str] | None:
        """Names the GPUNode, for Events; None while there is none."""
        seen = self.spec
        if seen is None or not seen.uid:
            return None
        named = {"apiVersion": API_VERSION, "kind": "GPUNode"}
        return {**named, "name": self._node, "uid": seen.uid}

    @property
    def node_reference(self) -> Mapping[str, str]:
        """Names the Node, for Events; as the kubelet does it, the uid is its name."""
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}

    @property
    def foreign_labels(self) -> Mapping[str, str]:
        """The Node's labels and annotations that tell of others who manage GPUs."""
        node = self._nodes.get(self._node)
        return {} if node is None else node.foreign

    def pods(self) -> Mapping[str, PodName] | None:
        """The node's pods that are not finished, by uid; None while that is not known."""
        if not self._pods.synced.is_set() or self._pods.error is not None:
            return None
        return by_uid(self._pods.values())

    def containers(self) -> Mapping[str, str]:
        """Names of the containers of these pods by the container runtime's id."""
        return {key: name for one in self._pods.values() for key, name in one.containers.items()}

    async def wait_synced(self, timeout_s: float) -> bool:
        """Wait until the server told what it has; False when time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._specs.synced.wait()
                await self._nodes.synced.wait()
        except TimeoutError:
            return False
        return True

    # -- what it publishes

    def publish(self, publication: Publication) -> None:
        """Have the server show this; returns at once, the latest publication wins."""
        if publication != self._wanted or self.dead_keys.is_due(time.monotonic()):
            self._wanted = publication
            self._mark()

    def _mark(self) -> None:
        self.published.clear()
        self._dirty.set()

    async def run(self) -> None:
        """Follow and publish until cancelled."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.events)
            for cache in (self._specs, self._nodes, self._pods):
                cache.on_change(self._changed)
                await stack.enter_async_context(cache)
            await self._publish_for_ever()

    def _changed(self, change: Change[Any]) -> None:
        if change.old == change.new:
            return
        if isinstance(change.old or change.new, SpecSeen | NodeSeen):
            self._mark()
        self._on_change()

    async def _publish_for_ever(self) -> None:
        backoff = Backoff(first_s=0.2, cap_s=30.0)
        waits = backoff.waits()
        failing = ""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                complete = await self._write()
            except ApiError as error:
                if str(error) != failing:
                    _log.warning("state was not published", error=str(error))
                failing = str(error)
                self._dirty.set()
                await asyncio.sleep(next(waits))
                continue
            if failing:
                _log.info("state is published again")
            failing, waits = "", backoff.waits()
            if complete and not self._dirty.is_set():
                self.published.set()

    async def _write(self) -> bool:
        """Write what differs; whether the server can have it all (its Node may be missing)."""
        wanted = self._wanted
        node = self._nodes.get(self._node)
        if wanted is None or node is None or not self._specs.synced.is_set():
            return False
        await self._write_node(node, wanted)
        seen = self.spec
        if seen is None:
            await self._create(node)
            self._told = None
        # What is seen may be behind what was told, so that one of the two alone says nothing.
        retold = self._told is not None and self._told != wanted.status
        if retold or seen is None or seen.status != wanted.status:
            await self._write_status(wanted.status)
        self._told = wanted.status
        return True

    async def _write_node(self, node: NodeSeen, wanted: Publication) -> None:
        there = dict(node.labels)
        if self._mig_config_state and MIG_CONFIG_STATE in node.foreign:
            there[MIG_CONFIG_STATE] = node.foreign[MIG_CONFIG_STATE]
        labels: dict[str, str | None] = {
            key: value for key, value in wanted.labels.items() if there.get(key) != value
        }
        labels |= {key: None for key in there if key not in wanted.labels}
        if labels:
            await self._client.patch(NODES, self._node, {"metadata": {"labels": labels}})
        status: dict[str, Any] = {}
        if node.milli != wanted.milli:
            # The kubelet sets allocatable to capacity for what it does not manage, at its next
            # status update; told both, it counts at once.
            amount = {names.MILLI_GPU: str(wanted.milli)}
            status |= {"capacity": amount, "allocatable": amount}
        if node.managed and (condition := condition_to_write(node.healthy, wanted.healthy)):
            status["conditions"] = [condition]
        if node.managed:
            served = {share.resource for gpu in wanted.status.gpus for share in gpu.shares}
            gone = dict.fromkeys(self.dead_keys.due(node.empty, served, time.monotonic()))
            for side in ("capacity", "allocatable") if gone else ():
                status[side] = status.get(side, {}) | gone
        if status:
            await self._client.patch(
                NODES,
                self._node,
                {"status": status},
                patch_type=PatchType.STRATEGIC,
                subresource="status",
            )

    async def _create(self, node: NodeSeen) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node.uid}
        gpu_node = {
            "apiVersion": API_VERSION,
            "kind": "GPUNode",
            "metadata": {"name": self._node, "ownerReferences": [owner]},
            "spec": {},
        }
        try:
            await self._client.create(GPU_NODES, gpu_node)
        except AlreadyExistsError:
            return  # our own watch was behind

    async def _write_status(self, status: GpuNodeStatus) -> None:
        plain = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        # A merge patch keeps what it does not name, so what is gone has to be named.
        whole = dict.fromkeys(status.model_dump(by_alias=True)) | plain
        try:
            await self._client.patch(GPU_NODES, self._node, {"status": whole}, subresource="status")
        except NotFoundError:
            self._dirty.set()  # deleted meanwhile: the next turn makes it again


def seen_spec(item: Mapping[str, Any]) -> SpecSeen:
    """What the agent keeps of a GPUNode; one that is malformed says so and is not lost."""
    metadata = item.get("metadata") or {}
    generation = metadata.get("generation")
    subject = f"GPUNode {metadata.get('name')}"
    uid = str(metadata.get("uid") or "")
    try:
        status = parse_model(GpuNodeStatus, item.get("status") or {}, subject)
    except InputError:
        status = GpuNodeStatus()  # ours to write: it is replaced
    try:
        spec = parse_model(GpuNodeSpec, item.get("spec") or {}, f"{subject}, spec")
    except InputError as error:
        return SpecSeen(
            generation=generation, spec=None, complaint=str(error), status=status, uid=uid
        )
    return SpecSeen(generation=generation, spec=spec, status=status, uid=uid)


def seen_node(item: Mapping[str, Any]) -> NodeSeen:
    """What the agent keeps of a Node."""
    metadata = item.get("metadata") or {}
    labels = metadata.get("labels") or {}
    capacity = (item.get("status") or {}).get("capacity") or {}
    return NodeSeen(
        uid=str(metadata.get("uid") or ""),
        managed=labels.get(names.MANAGED_LABEL) == "true",
        labels={key: str(value) for key, value in sorted(labels.items()) if is_ours(key)},
        foreign={key: str(labels[key]) for key in LABELS if labels.get(key)}
        | {key: "" for key in ANNOTATIONS if (metadata.get("annotations") or {}).get(key)},
        milli=_whole(capacity.get(names.MILLI_GPU)),
        empty=empty_keys(capacity),
        healthy=seen_condition(item),
        others=others_offered((item.get("status") or {}).get("allocatable") or {}),
    )


def _whole(quantity: object) -> int | None:
    if not isinstance(quantity, str | int):
        return None
    try:
        return int(parse_quantity(quantity))
    except QuantityError:
        return None
