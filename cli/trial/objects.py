"""The objects that a trial makes, and how they go again from a cluster that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from cli.trial.ground import Ground, Place
from sharing.cluster.cache import Cache, whole
from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import AlreadyExistsError, ApiError, NotFoundError
from sharing.cluster.kind import (
    CRDS,
    GPU_NODES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    Kind,
)
from sharing.errors import UnavailableError
from sharing.names import MILLI_GPU, PREFIX
from sharing.plugin.cdi import FILE_PREFIX

_ESTABLISH_TIMEOUT_S: Final = 20.0
_GONE_TIMEOUT_S: Final = 60.0
_log: Final = structlog.get_logger()


class Objects:
    """Creates objects and remembers them.

    Args:
        client: Of somebody who may do everything.
        ground: The cluster.
    """

    def __init__(self, client: Client, ground: Ground) -> None:
        self._client = client
        self._ground = ground
        self._made: list[tuple[Kind, str, str]] = []

    async def create(
        self, kind: Kind, manifest: Mapping[str, Any], *, warnings: list[str] | None = None
    ) -> dict[str, Any]:
        """Create an object, and wait until it can be used.

        Raises:
            ApiError: The API server refused it.
        """
        made = await self._client.create(kind, manifest, warnings=warnings)
        metadata = made["metadata"]
        self._made.append((kind, metadata.get("namespace", ""), metadata["name"]))
        if kind is NAMESPACES:
            await self._ground.namespace_made(self._client, metadata["name"])
        return made

    async def define(self, crds: list[dict[str, Any]]) -> None:
        """Create the CRDs that are not there yet, and wait until all are served.

        Raises:
            UnavailableError: They are not served in time.
        """
        for crd in crds:
            with suppress(AlreadyExistsError):
                await self.create(CRDS, crd)
        names = {crd["metadata"]["name"] for crd in crds}
        await until(
            self._client,
            CRDS,
            lambda store: names <= {name for (_, name), crd in store.items() if _is_served(crd)},
            what="the CRDs",
            timeout_s=_ESTABLISH_TIMEOUT_S,
        )

    async def label(self, place: Place) -> None:
        """Give a node its labels.

        Raises:
            ApiError: There is no such node, or we may not.
        """
        patch = {"metadata": {"labels": place.spec.labels}}
        await self._client.patch(NODES, place.name, patch)

    async def remove(self, *, but: Kind | None = None) -> None:
        """Take everything away, pods first; what cannot be is told in the log.

        Args:
            but: A kind that stays until the next call.
        """
        kinds = dict.fromkeys([PODS, MUTATING_WEBHOOKS, *(made[0] for made in self._made[::-1])])
        for kind in kinds:
            if kind is not but:
                await self._delete(kind)

    async def remove_nodes_traces(self, place: Place) -> None:
        """Take away what the agent wrote, after its end."""
        with suppress(NotFoundError):
            await self._client.delete(GPU_NODES, place.name)
        node = await self._client.get(NODES, place.name)
        ours = {*place.spec.labels, *_ours(node["metadata"].get("labels") or {})}
        labels = {"metadata": {"labels": dict.fromkeys(sorted(ours))}}
        await self._client.patch(NODES, place.name, labels)
        amount = {"status": {"capacity": {MILLI_GPU: None}, "allocatable": {MILLI_GPU: None}}}
        await self._client.patch(
            NODES, place.name, amount, subresource="status", patch_type=PatchType.STRATEGIC
        )
        if place.cdi is not None:
            for file in place.cdi.glob(f"{FILE_PREFIX}*"):
                file.unlink(missing_ok=True)

    async def _delete(self, kind: Kind) -> None:
        """All of a kind, and wait until they are gone."""
        chosen = {(namespace, name) for of, namespace, name in self._made if of is kind}
        self._made = [made for made in self._made if made[0] is not kind]
        for namespace, name in sorted(chosen):
            try:
                await self._client.delete(kind, name, namespace=namespace)
            except NotFoundError:
                continue
            except ApiError as error:
                _log.warning("object was not removed", kind=kind.kind, name=name, error=str(error))
        if chosen:
            await self._gone(kind, chosen)

    async def _gone(self, kind: Kind, keys: set[tuple[str, str]]) -> None:
        try:
            await until(
                self._client,
                kind,
                lambda store: not keys & store.keys(),
                what=f"the end of each {kind.kind}",
                timeout_s=_GONE_TIMEOUT_S,
            )
        except UnavailableError as error:
            _log.warning("objects are still there", error=str(error))


def _ours(labels: Mapping[str, str]) -> set[str]:
    return {key for key in labels if key.partition("/")[0] == PREFIX}


def _is_served(crd: Mapping[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


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
