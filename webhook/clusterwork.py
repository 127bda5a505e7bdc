"""A cluster read once: its policies and nodes as one snapshot, and the objects that make its pods.

For a person who asks what would become of a cluster; the server follows watches (``live``). Only
lists are asked for, so a token that may read is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sharing.cluster.client import Client
from sharing.cluster.errors import NotFoundError
from sharing.cluster.kind import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    GPU_NODES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SHARING_PROFILES,
    STATEFUL_SETS,
    Kind,
)
from sharing.documents import KubeObject
from sharing.inventory import Inventory
from sharing.names import MANAGED_LABEL
from sharing.nodefile import node_facts
from webhook.container import mapping
from webhook.live import keep_labels, keep_node, keep_profile
from webhook.policies import Policies
from webhook.registration import TEMPLATE_SYSTEMS
from webhook.snapshot import Snapshot
from webhook.workload import TEMPLATE_PATHS

_OWN_KINDS: Final = (
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    REPLICA_SETS,
    Kind(kind="ReplicationController", plural="replicationcontrollers"),
    CRON_JOBS,
    JOBS,
    PODS,
)
_GROUPS: Final = frozenset(group for groups in TEMPLATE_SYSTEMS.values() for group in groups)
"""Groups of kinds that are not Kubernetes' own and whose templates have a known place."""
_ENDED: Final = frozenset({"Succeeded", "Failed", "Complete"})


async def read_snapshot(client: Client) -> Snapshot:
    """Policies and nodes as they are now.

    A cluster that does not know our kinds yet has no profiles, and nothing is known of its nodes.

    Raises:
        ApiError: The API server refuses or does not answer.
    """
    profiles = {
        str(item["metadata"]["name"]): keep_profile(item)
        for item in await _listed(client, SHARING_PROFILES) or ()
    }
    namespaces = {
        str(item["metadata"]["name"]): keep_labels(item)
        for item in await _listed(client, NAMESPACES) or ()
    }
    return Snapshot(
        policies=Policies(namespaces=namespaces, profiles=profiles),
        inventory=await _read_inventory(client),
    )


async def _read_inventory(client: Client) -> Inventory | None:
    gpu_nodes = await _listed(client, GPU_NODES)
    if gpu_nodes is None:
        return None
    listed = await client.list(NODES, label_selector=f"{MANAGED_LABEL}=true")
    facts = {str(item["metadata"]["name"]): node_facts(item) for item in listed["items"]}
    nodes = sorted(map(keep_node, gpu_nodes), key=lambda node: node.name)
    return Inventory(
        tuple(
            replace(node, labels=facts[node.name][0], ready=facts[node.name][1])
            if node.name in facts
            else node
            for node in nodes
        )
    )


async def _listed(client: Client, kind: Kind) -> list[dict[str, Any]] | None:
    """All objects of a kind; None where there is no such kind."""
    try:
        items: list[dict[str, Any]] = (await client.list(kind))["items"]
    except NotFoundError:
        return None
    return items


async def read_workloads(client: Client, *, where: str, namespace: str) -> tuple[KubeObject, ...]:
    """Everything that makes pods, by its outermost owner; pods that nobody owns as well.

    Args:
        client: The connection.
        where: How messages call the cluster.
        namespace: Only what is in it; empty for all.

    Raises:
        ApiError: The API server refuses or does not answer.
    """
    kinds = (*_OWN_KINDS, *[kind async for kind in _foreign_kinds(client)])
    makers = frozenset((kind.group, kind.kind) for kind in kinds) | {("", "Node")}
    found: list[KubeObject] = []
    for kind in kinds:
        async for page in client.pages(kind, namespace=namespace):
            found += (
                _kept(item, where)
                for item in page["items"]
                if not _has_ended(item) and not _is_made(item, makers)
            )
    return tuple(sorted(found, key=lambda one: (one.namespace, one.kind, one.name)))


async def _foreign_kinds(client: Client) -> Any:
    groups = (await client.request("GET", "/apis")).get("groups") or []
    for group in sorted(groups, key=lambda group: str(group.get("name"))):
        name, preferred = str(group.get("name")), group.get("preferredVersion") or {}
        if name not in _GROUPS:
            continue
        version = str(preferred.get("version"))
        resources = await client.request("GET", f"/apis/{name}/{version}")
        for row in resources.get("resources") or []:
            if row.get("kind") in TEMPLATE_PATHS and "list" in (row.get("verbs") or ()):
                yield Kind(kind=row["kind"], plural=row["name"], group=name, version=version)


def _is_made(item: Mapping[str, Any], makers: frozenset[tuple[str, str]]) -> bool:
    """Whether something that is looked at itself, or a kubelet, makes this object."""
    return any(
        (api_version.partition("/")[0] if "/" in api_version else "", kind) in makers
        for api_version, kind in _controllers(item)
    )


def _controllers(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for owner in mapping(item, "metadata").get("ownerReferences") or ():
        if owner.get("controller"):
            yield str(owner.get("apiVersion")), str(owner.get("kind"))


def _has_ended(item: Mapping[str, Any]) -> bool:
    """Whether a pod or job makes no pods any more."""
    status = mapping(item, "status")
    if item.get("kind") == "Pod":
        return status.get("phase") in _ENDED
    return item.get("kind") == "Job" and any(
        condition.get("type") in _ENDED and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _kept(item: dict[str, Any], where: str) -> KubeObject:
    """The object as its author would write it: without what the cluster has added since."""
    metadata = {key: item["metadata"][key] for key in item["metadata"] if key != "managedFields"}
    value = {key: item[key] for key in item if key != "status"} | {"metadata": metadata}
    if item.get("kind") == "Pod":
        # The scheduler chose it; from an author it would bypass the scheduler.
        spec = mapping(item, "spec")
        value["spec"] = {key: spec[key] for key in spec if key != "nodeName"}
    return KubeObject(
        where=where,
        api_version=str(item["apiVersion"]),
        kind=str(item["kind"]),
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        value=value,
    )
