"""Policies and nodes from a folder (``--static``), for a webhook without an API server.

SharingProfile manifests   the profiles
Namespace manifests        the namespaces and their labels
GPUNode, Node manifests    the inventory, as a cluster shows it
entries of a --nodes file  the inventory, as a person writes it
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sharing.documents import Document, objects_of, read_path
from sharing.errors import InputError, shown
from sharing.nodefile import read_nodes
from webhook.manifests import sort_out
from webhook.policies import Policies
from webhook.snapshot import Snapshot

_NODE_KINDS: Final = frozenset({"GPUNode", "GPUNodeList", "Node", "NodeList"})


def read_static(folder: Path) -> Snapshot:
    """What a folder says.

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
        policies=Policies(namespaces=manifests.namespaces, profiles=manifests.profiles),
        inventory=read_nodes(nodes) if nodes else None,
    )


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
