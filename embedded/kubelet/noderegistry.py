"""Keeps the Node object: creates it, writes its status when something changed, beats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from embedded.kubelet.clock import Clock, timestamp
from embedded.kubelet.nodestatus import (
    Machine,
    Offer,
    lost_patch,
    new_node,
    resources,
    status_patch,
    taints,
)
from embedded.scheduler.amounts import amounts_of
from embedded.scheduler.views import Node
from sharing.cluster.backoff import Backoff
from sharing.cluster.cache import Cache, whole
from sharing.cluster.client import PatchType
from sharing.cluster.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from sharing.cluster.kind import NODES
from sharing.errors import QuantityError

if TYPE_CHECKING:
    from sharing.cluster.client import Client

_log: Final = structlog.get_logger()


class NodeRegistry:
    """The Node object of one kubelet.

    Args:
        client: The connection.
        name: The node's name.
        machine: What the node is.
        labels: Labels to put on it.
        offer: Tells what plugins make it offer now.
        clock: Time.
        beat_s: How often conditions are written though nothing changed.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        machine: Machine,
        labels: Mapping[str, str],
        offer: Callable[[], Offer],
        clock: Clock,
        beat_s: float,
    ) -> None:
        self._client = client
        self._name = name
        self._machine = machine
        self._labels = labels
        self._offer = offer
        self._clock = clock
        self._beat_s = beat_s
        self._wake = asyncio.Event()
        self.cache = Cache(client, NODES, whole, field_selector=f"metadata.name={name}")
        self.cache.on_change(lambda _: self._wake.set())

    def wake(self) -> None:
        """Something about the offer changed."""
        self._wake.set()

    def view(self) -> Node:
        """The node with what it offers this moment, which the API may not show yet."""
        item = self.cache.get(self._name) or {"metadata": {"name": self._name}}
        _, allocatable = resources(item.get("status") or {}, self._machine, self._offer())
        known: dict[str, int] = {}
        for key, value in allocatable.items():
            # A foreign amount beyond what can be counted is nothing that pods could ask for.
            with suppress(QuantityError):
                known |= amounts_of({key: value}) if value is not None else {}
        metadata = item["metadata"]
        return Node(
            name=self._name,
            labels=metadata.get("labels") or {},
            allocatable=known,
        )

    async def register(self) -> None:
        """Create the Node, or put our labels on the one that is there.

        Raises:
            ApiError: If the API server refuses or does not answer.
        """
        node = new_node(self._name, self._labels, at=timestamp())
        try:
            await self._client.create(NODES, node)
        except AlreadyExistsError:
            labels = {"metadata": {"labels": node["metadata"]["labels"]}}
            await self._client.patch(NODES, self._name, labels)

    async def announce(self) -> None:
        """Write the status for the first time and take the taints of absence off.

        Raises:
            ApiError: If the API server refuses or does not answer.
        """
        await self._write(beat=True)
        await self._settle_taints(ready=True)

    async def lose(self) -> None:
        """What the node lifecycle controller does about a kubelet that fell silent.

        Raises:
            ApiError: If the API server refuses or does not answer.
        """
        item = await self._client.get(NODES, self._name)
        patch = {"status": lost_patch(item.get("status") or {}, now=timestamp())}
        await self._patch(patch, subresource="status")
        await self._settle_taints(ready=False)

    async def run(self) -> None:
        """Write whatever changes, and a heartbeat, until cancelled."""
        waits = Backoff().waits()
        beat = asyncio.ensure_future(self._clock.sleep(self._beat_s))
        try:
            while True:
                due = beat.done()
                if due:
                    beat = asyncio.ensure_future(self._clock.sleep(self._beat_s))
                self._wake.clear()
                try:
                    await self._write(beat=due)
                    waits = Backoff().waits()
                except NotFoundError:
                    # Deleted by somebody; a kubelet makes it anew only when it starts.
                    _log.warning("node object is gone", node=self._name)
                except ApiError as error:
                    _log.warning("node status was not written", node=self._name, error=str(error))
                    await asyncio.sleep(next(waits))
                    continue
                await self._news(beat)
        finally:
            beat.cancel()

    async def _news(self, beat: asyncio.Future[None]) -> None:
        wake = asyncio.ensure_future(self._wake.wait())
        either: tuple[asyncio.Future[Any], ...] = (wake, beat)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wake.cancel()

    async def _write(self, *, beat: bool) -> None:
        item = self.cache.get(self._name) or await self._client.get(NODES, self._name)
        patch = status_patch(
            item.get("status") or {},
            self._machine,
            self._offer(),
            name=self._name,
            now=timestamp(),
            beat=beat,
        )
        if patch:
            await self._patch({"status": patch}, subresource="status")

    async def _settle_taints(self, *, ready: bool) -> None:
        """Taints are one list that others write, too; so with the version that was read."""
        while True:
            item = await self._client.get(NODES, self._name)
            present = (item.get("spec") or {}).get("taints") or []
            wanted = taints(present, ready=ready, at=timestamp())
            if wanted == present:
                return
            version = item["metadata"].get("resourceVersion")
            body = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted or None}}
            try:
                await self._client.patch(NODES, self._name, body)
            except ConflictError:
                continue
            return

    async def _patch(self, patch: dict[str, Any], *, subresource: str) -> None:
        await self._client.patch(
            NODES,
            self._name,
            patch,
            patch_type=PatchType.STRATEGIC,
            subresource=subresource,
        )
