"""Policies and nodes from watches: always at hand, never fetched while a review is answered.

Four caches follow the API server. Whenever one changes, a new snapshot is made of what they hold
and put in place of the old one in one assignment; a review that is being answered keeps its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import structlog

from sharing.api.model import parse_model
from sharing.api.node import GpuNodeStatus, node_inventory
from sharing.api.profile import SharingProfile, parse_profile
from sharing.cluster.cache import Cache, Change
from sharing.cluster.client import Client
from sharing.cluster.kind import GPU_NODES, NAMESPACES, NODES, SHARING_PROFILES
from sharing.errors import InputError
from sharing.inventory import Inventory, NodeInventory
from sharing.names import MANAGED_LABEL, PREFIX
from sharing.nodefile import node_facts
from webhook.metrics import Metrics
from webhook.offers import supply_of
from webhook.policies import BrokenProfile, Policies
from webhook.snapshot import Snapshot
from webhook.where import Where
from webhook.workload import TEMPLATE_PATHS, TemplatePath

_NODES_DELAY_S: Final = 0.1
"""Changes of nodes that come together make one inventory: its cost grows with the nodes."""

TemplatePaths = Mapping[str, tuple[TemplatePath, ...]]

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    labels: Mapping[str, str]
    ready: bool


class LiveSource:
    """The newest snapshot of a cluster; an async context manager that runs the watches.

    Args:
        client: The connection to the API server.
        metrics: Where sizes and ages are shown.
        template_paths: Where kinds keep their pod templates.
    """

    def __init__(
        self, client: Client, metrics: Metrics, *, template_paths: TemplatePaths = TEMPLATE_PATHS
    ) -> None:
        self._metrics = metrics
        self._template_paths = template_paths
        self._profiles = Cache(client, SHARING_PROFILES, keep_profile)
        self._namespaces = Cache(client, NAMESPACES, keep_labels)
        self._gpu_nodes = Cache(client, GPU_NODES, keep_node)
        self._nodes = Cache(client, NODES, _keep_facts, label_selector=f"{MANAGED_LABEL}=true")
        self._snapshot: Snapshot | None = None
        self._inventory: Inventory = Inventory()
        self._policies_due: asyncio.Handle | None = None
        self._inventory_due: asyncio.Handle | None = None
        self._stack = AsyncExitStack()
        self._first: asyncio.Task[None] | None = None
        self._reported: frozenset[BrokenProfile] = frozenset()

    def __call__(self) -> Snapshot | None:
        """The newest snapshot; None before everything was listed once."""
        return self._snapshot

    async def wait_ready(self) -> None:
        """Return once everything was listed and the first snapshot stands."""
        if self._first is not None:
            await asyncio.shield(self._first)

    @property
    def waiting_for(self) -> str:
        """What has not been listed yet, with the reason if one is known; empty if nothing."""
        for cache in self._caches:
            if not cache.synced.is_set():
                return f"{cache.kind}: {cache.error or 'not listed yet'}"
        return ""

    def age_s(self) -> float:
        """Seconds since the stalest watch was last known to be up to date."""
        return max(cache.age_s() for cache in self._caches)

    @property
    def _caches(self) -> tuple[Cache[Any], ...]:
        return (self._profiles, self._namespaces, self._gpu_nodes, self._nodes)

    async def __aenter__(self) -> Self:
        self._profiles.on_change(self._policies_changed)
        self._namespaces.on_change(self._policies_changed)
        self._gpu_nodes.on_change(self._nodes_changed)
        self._nodes.on_change(self._nodes_changed)
        for cache in self._caches:
            self._metrics.watch_cache(str(cache.kind), cache.age_s)
            await self._stack.enter_async_context(cache)
        self._first = asyncio.create_task(self._make_first(), name="first snapshot")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for due in (self._policies_due, self._inventory_due, self._first):
            if due is not None:
                due.cancel()
        await self._stack.aclose()

    async def _make_first(self) -> None:
        for cache in self._caches:
            await cache.synced.wait()
        self._make_inventory()
        _log.info(
            "policies were read",
            profiles=len(self._profiles),
            namespaces=len(self._namespaces),
            nodes=len(self._gpu_nodes),
        )

    def _policies_changed(self, change: Change[Any]) -> None:
        if change.old == change.new or self._snapshot is None or self._policies_due is not None:
            return
        # At the end of this turn of the loop: a namespace's first pod follows it closely.
        self._policies_due = asyncio.get_running_loop().call_soon(self._make_policies)

    def _nodes_changed(self, change: Change[Any]) -> None:
        if change.old == change.new or self._snapshot is None or self._inventory_due is not None:
            return
        loop = asyncio.get_running_loop()
        self._inventory_due = loop.call_later(_NODES_DELAY_S, self._make_inventory)

    def _make_inventory(self) -> None:
        self._inventory_due = None
        facts = {name: kept for (_, name), kept in self._nodes.items()}
        self._inventory = Inventory(
            tuple(_joined(node, facts.get(node.name)) for node in self._gpu_nodes.values())
        )
        self._make_policies()

    def _make_policies(self) -> None:
        self._policies_due = None
        policies = Policies(
            namespaces={name: labels for (_, name), labels in self._namespaces.items()},
            profiles={name: profile for (_, name), profile in self._profiles.items()},
            complete=True,
            template_paths=self._template_paths,
        )
        snapshot = Snapshot(policies=policies, inventory=self._inventory)
        self._look_up_ahead(policies)
        self._report_broken(snapshot)
        self._metrics.describe(snapshot)
        self._snapshot = snapshot

    def _look_up_ahead(self, policies: Policies) -> None:
        """Sum up offers now, so that the first review after a change need not."""
        supply = supply_of(self._inventory)
        selectors = {
            profile.node_selector
            for profile in policies.profiles.values()
            if isinstance(profile, SharingProfile)
        }
        for selector in sorted(selectors | {()}):
            supply.room(Where(selector))

    def _report_broken(self, snapshot: Snapshot) -> None:
        broken = frozenset(snapshot.broken)
        for profile in sorted(broken - self._reported, key=lambda profile: profile.name):
            _log.warning("profile cannot be used", profile=profile.name, error=profile.error)
        self._reported = broken


def keep_profile(manifest: dict[str, Any]) -> SharingProfile | BrokenProfile:
    """What is kept of a SharingProfile: the profile, or why it cannot be used."""
    try:
        return parse_profile(manifest)
    except InputError as error:
        return BrokenProfile(name=str(manifest["metadata"]["name"]), error=str(error))


def keep_labels(namespace: dict[str, Any]) -> Mapping[str, str]:
    """What is kept of a namespace: its labels under our prefix, texts shared between all."""
    labels = namespace["metadata"].get("labels") or {}
    ours = {
        sys.intern(key): sys.intern(value)
        for key, value in labels.items()
        if key.startswith(PREFIX + "/") and isinstance(value, str)
    }
    return ours or _NO_LABELS


def keep_node(gpu_node: dict[str, Any]) -> NodeInventory:
    """What is kept of a GPUNode: its offers, of a node about which nothing else is known."""
    name = str(gpu_node["metadata"]["name"])
    status = parse_model(GpuNodeStatus, gpu_node.get("status") or {}, f"GPUNode {name!r}")
    return node_inventory(name, status, labels={}, ready=False)


def _keep_facts(node: dict[str, Any]) -> _NodeFacts:
    labels, ready = node_facts(node)
    return _NodeFacts(labels, ready)


def _joined(node: NodeInventory, facts: _NodeFacts | None) -> NodeInventory:
    """A node with what the Node object says; one that is not managed is not ready."""
    if facts is None:
        return node
    return replace(node, labels=facts.labels, ready=facts.ready)


_NO_LABELS: Final[Mapping[str, str]] = {}
