"""The inventory file (``--nodes``): nodes as a person describes them, for work without a cluster.

    - name: n1
      gpus: 8xH100-80GB            # or a list: [H100-80GB, A100-40GB]
      labels: {pool: mixed}
      layout:                      # as in GPULayout.spec.gpus
      - {gpus: "0-1", mode: mig, sizes: {1g.10gb: 4, 3g.40gb: 1}}
      - {gpus: rest, mode: mps, sizes: {1of4: 4}}

Objects read from a cluster do as well: GPUNode manifests say what nodes offer, Node manifests
which labels they carry and whether they are ready.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Self

from pydantic import Field, field_validator, model_validator

from sharing import catalogue, migcut, miglayout
from sharing.api.layout import LayoutEntrySpec
from sharing.api.model import ApiModel, parse_model
from sharing.api.node import GpuNodeStatus, node_inventory
from sharing.board import Board
from sharing.documents import Document
from sharing.errors import InputError, shown
from sharing.inventory import Inventory, NodeInventory, node_offers
from sharing.layout import GpuIdentity, GpuLayout, assign
from sharing.mode import Mode
from sharing.share import PlacedInstance, Share, shares_of, worth_milli
from sharing.shareclass import ShareClass

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_EXAMPLE: Final = "- {name: n1, gpus: 8xH100-80GB}"


class NodeEntry(ApiModel):
    """One node of an inventory file."""

    name: str
    gpus: str | tuple[str, ...]
    """``8xH100-80GB``, or a list of boards."""
    labels: dict[str, str] = Field(default_factory=dict)
    layout: Annotated[tuple[LayoutEntrySpec, ...], Field(max_length=64)] = ()
    """GPUs that no entry selects are exclusive."""
    ready: bool = True

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise InputError(
                "name",
                f"{shown(name)} is no node name",
                expected="lower-case letters, digits, '-' and '.'",
                example="node-1",
            )
        return name

    @model_validator(mode="after")
    def _check_gpus(self) -> Self:
        self.shares()
        return self

    @property
    def boards(self) -> tuple[Board, ...]:
        """Its GPUs' boards, in order of their indices."""
        return catalogue.parse_node_gpus(self.gpus)

    def layouts(self) -> tuple[tuple[Board, GpuIdentity, GpuLayout], ...]:
        """Each GPU with its board and what it is cut into."""
        boards = self.boards
        gpus = [
            GpuIdentity(index=index, uuid=f"GPU-{self.name}-{index}", board=board.name)
            for index, board in enumerate(boards)
        ]
        assigned = assign([entry.to_entry() for entry in self.layout], gpus)
        return tuple((boards[gpu.index], gpu, layout) for gpu, layout in assigned)

    def shares(self) -> tuple[tuple[ShareClass, int, int], ...]:
        """All shares as (class, memory in MiB, worth in milli-GPU).

        Raises:
            InputError: A board is unknown, or a GPU cannot be cut so.
        """
        found: list[tuple[ShareClass, int, int]] = []
        for board, gpu, layout in self.layouts():
            found += [
                (share.share_class, share.memory_mib, _worth(share, board))
                for share in _gpu_shares(board, gpu.uuid, layout)
            ]
        return tuple(found)

    def to_inventory(self) -> NodeInventory:
        """What the node offers once its layout is applied."""
        return NodeInventory(
            name=self.name,
            offers=node_offers(self.shares()),
            labels=dict(self.labels),
            ready=self.ready,
        )


def _gpu_shares(board: Board, uuid: str, layout: GpuLayout) -> tuple[Share, ...]:
    instances: tuple[PlacedInstance, ...] = ()
    if layout.mode is Mode.MIG:
        migcut.check_cuts(board, layout)
        instances = tuple(
            PlacedInstance(
                profile=placed.profile,
                start=placed.placement.start,
                memory_mib=board.mig_profile(placed.profile).memory_mib,
            )
            for placed in miglayout.place(board, layout.mig_profiles)
        )
    return shares_of(layout, gpu_uuid=uuid, memory_mib=board.memory_mib, instances=instances)


def _worth(share: Share, board: Board) -> int:
    instance = share.share_class.instance
    slices = 0 if instance is None else instance.gpu_slices
    return worth_milli(
        share.share_class,
        memory_mib=share.memory_mib,
        gpu_memory_mib=board.memory_mib,
        compute_share=(slices, board.mig_compute_slices or 1),
    )


@dataclass(slots=True)
class _Found:
    """What the documents said so far, by node name."""

    entries: dict[str, NodeInventory] = field(default_factory=dict)
    statuses: dict[str, GpuNodeStatus] = field(default_factory=dict)
    nodes: dict[str, tuple[dict[str, str], bool]] = field(default_factory=dict)


def read_nodes(documents: Iterable[Document]) -> Inventory:
    """The inventory that files describe: entries, GPUNode and Node manifests, or Lists of these.

    Raises:
        InputError: A document is none of these, has a wrong field, or names a node again.
    """
    found = _Found()
    for document in documents:
        for where, item in _items(document):
            _take(found, item, where)
    for name, status in found.statuses.items():
        labels, ready = found.nodes.get(name, ({}, True))
        found.entries[name] = node_inventory(name, status, labels=labels, ready=ready)
    return Inventory(tuple(found.entries[name] for name in sorted(found.entries)))


def _items(document: Document) -> Iterable[tuple[str, Any]]:
    value = document.value
    key = ""
    if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List"):
        key, value = "items", value.get("items") or []
    elif isinstance(value, Mapping) and set(value) == {"nodes"}:
        key, value = "nodes", value["nodes"]
    if not isinstance(value, list):
        return [(document.where, value)]
    return [(f"{document.where}, {key}[{index}]", item) for index, item in enumerate(value)]


def _take(found: _Found, item: Any, where: str) -> None:
    if not isinstance(item, Mapping):
        raise InputError(where, f"{shown(item)} is no node", expected="a node", example=_EXAMPLE)
    kind = item.get("kind")
    name = item.get("name") if kind is None else _metadata(item, where).get("name")
    subject = f"{where}, node {shown(name)}"
    if kind == "Node":
        found.nodes[str(name)] = node_facts(item)
        return
    if kind not in (None, "GPUNode"):
        raise InputError(
            where,
            f"kind {shown(kind)} describes no node",
            expected="entries of an inventory file, GPUNode or Node manifests",
            example=_EXAMPLE,
        )
    if isinstance(name, str) and (name in found.entries or name in found.statuses):
        raise InputError(where, f"node {shown(name)} is there twice", fix="remove one of them")
    if kind == "GPUNode":
        found.statuses[str(name)] = parse_model(GpuNodeStatus, item.get("status") or {}, subject)
    else:
        entry = parse_model(NodeEntry, item, subject)
        found.entries[entry.name] = entry.to_inventory()


def node_facts(node: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    """Labels of a Node object, and whether it takes pods: Ready and not cordoned."""
    metadata, spec, status = (
        part if isinstance(part, Mapping) else {}
        for part in (node.get("metadata"), node.get("spec"), node.get("status"))
    )
    labels = metadata.get("labels")
    conditions = status.get("conditions")
    ready = any(
        isinstance(condition, Mapping)
        and condition.get("type") == "Ready"
        and condition.get("status") == "True"
        for condition in (conditions if isinstance(conditions, list) else ())
    )
    texts = labels.items() if isinstance(labels, Mapping) else ()
    return (
        {key: value for key, value in texts if isinstance(value, str)},
        ready and spec.get("unschedulable") is not True,
    )


def _metadata(item: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise InputError(where, "it has no metadata.name", fix="add it")
    return metadata
