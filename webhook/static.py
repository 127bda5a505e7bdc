"""Policies and nodes from a folder (``--static``), for a webhook without an API server.

SharingProfile manifests   the profiles
Namespace manifests        the namespaces and their labels
GPUNode, Node manifests    the inventory, as a cluster shows it
entries of a --nodes file  the inventory, as a person writes it

The folder is looked at again and again: what it holds is compared, not dates or events, since a
kubelet swaps a link to a folder, of which watches tell unreliably. A change is taken once it has
settled and is sound; until then the policies before it stay in force.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from sharing.documents import Document, contents_hash, objects_of, read_path
from sharing.errors import InputError, shown
from sharing.nodefile import read_nodes
from webhook.manifests import sort_out
from webhook.metrics import Metrics
from webhook.policies import Policies
from webhook.snapshot import Snapshot
from webhook.workload import TEMPLATE_PATHS, TemplatePath

POLL_S: Final = 2.0
TemplatePaths = Mapping[str, tuple[TemplatePath, ...]]

_log: Final = structlog.get_logger()
_NODE_KINDS: Final = frozenset({"GPUNode", "GPUNodeList", "Node", "NodeList"})


def read_static(folder: Path, template_paths: TemplatePaths = TEMPLATE_PATHS) -> Snapshot:
    """What a folder says.

    Args:
        folder: Where the manifests are.
        template_paths: Where kinds keep their pod templates.

    Raises:
        InputError: A file is wrong; the error names file, document and field.
    """
    if not folder.is_dir():
        raise InputError(
            str(folder),
            "it is no folder",
            expected="a folder with SharingProfile, Namespace and node manifests",
        )
    documents = read_path(folder)
    nodes = [document for document in documents if _describes_nodes(document)]
    others = [document for document in documents if not _describes_nodes(document)]
    manifests = sort_out(objects_of(others))
    for found in manifests.others:
        raise InputError(
            found.where,
            f"kind {shown(found.kind)} is neither policy nor node",
            expected="SharingProfile, Namespace, GPUNode, Node, or entries of a nodes file",
            fix="move it out of the folder",
        )
    return Snapshot(
        policies=Policies(
            namespaces=manifests.namespaces,
            profiles=manifests.profiles,
            template_paths=template_paths,
        ),
        inventory=read_nodes(nodes) if nodes else None,
    )


class StaticSource:
    """The newest sound snapshot of a folder.

    Args:
        folder: Where the manifests are.
        template_paths: Where kinds keep their pod templates.

    Raises:
        InputError: The folder is wrong from the start.
    """

    def __init__(self, folder: Path, template_paths: TemplatePaths = TEMPLATE_PATHS) -> None:
        self._folder = folder
        self._template_paths = template_paths
        # Before it is read: a change in between is a change.
        self._taken = self._seen = contents_hash(folder)
        self._snapshot = _packed(lambda: read_static(folder, template_paths))
        self._is_current = True

    def __call__(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    async def run(self, metrics: Metrics, *, poll_s: float = POLL_S) -> None:
        """Follow the folder until cancelled.

        Args:
            metrics: Where sizes are shown, and whether the folder's newest content is in force.
            poll_s: Seconds between two looks; a change is taken when two of them saw the same.
        """
        metrics.describe(self._snapshot)
        metrics.watch_folder(lambda: self._is_current)
        while True:
            await asyncio.sleep(poll_s)
            await self._look(metrics)

    async def _look(self, metrics: Metrics) -> None:
        seen = await asyncio.to_thread(contents_hash, self._folder)
        settled, self._seen = seen == self._seen, seen
        if seen == self._taken or not settled:
            return
        self._taken = seen
        try:
            snapshot = await asyncio.to_thread(read_static, self._folder, self._template_paths)
        except InputError as error:
            self._is_current = False
            _log.warning("changed policies were not taken", error=str(error))
            return
        self._is_current = True
        self._snapshot = snapshot
        metrics.describe(snapshot)
        _log.info(
            "changed policies were taken",
            profiles=len(snapshot.policies.profiles),
            namespaces=len(snapshot.policies.namespaces),
            nodes=len(snapshot.inventory.nodes) if snapshot.inventory else 0,
        )


def _packed(read: Callable[[], Snapshot]) -> Snapshot:
    """What is read, side by side in memory.

    Reading leaves what stays strewn among what goes, and memory is given back by whole pages:
    of a large folder a third of all memory would be holes. Takes some 100 ms then, so it is done
    before anything is served.
    """
    written = pickle.dumps(read())
    gc.collect()
    snapshot: Snapshot = pickle.loads(written)  # noqa: S301  our own words of a moment ago
    return snapshot


def _describes_nodes(document: Document) -> bool:
    """Whether a document is for ``sharing.nodefile``: entries, or objects that are nodes."""
    value = document.value
    if isinstance(value, list):
        return True
    if not isinstance(value, dict):
        return False
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        kinds = {item.get("kind") for item in value["items"] if isinstance(item, dict)}
        return bool(kinds) and kinds <= _NODE_KINDS
    return value.get("kind") in _NODE_KINDS or ("kind" not in value and bool(value))
