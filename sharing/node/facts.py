"""A node as it is, from what a person has at hand: an inventory file, a simulator's, a GPUNode.

Each form tells less than the driver and the kubelet do; ``NodeFacts.unknown`` says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sharing import catalogue
from sharing.api.model import parse_model
from sharing.api.node import GpuNodeSpec, GpuNodeStatus, ObservedGpuStatus
from sharing.board import Board, Placement
from sharing.documents import Document, KubeObject, objects_of, read_file
from sharing.errors import InputError, shown
from sharing.layout import GpuLayout
from sharing.miglayout import place
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.held import Hold, Holder
from sharing.node.observed import GpuState, Instance, gpu_state
from sharing.node.wanted import Wanted
from sharing.nodefile import NodeEntry
from sharing.nvml.driver import Driver

_EXAMPLE: Final = "- {name: n1, gpus: 8xH100-80GB}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU, what it serves and who holds its shares."""

    gpu: GpuState
    served: GpuLayout
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node."""

    name: str
    gpus: tuple[GpuFacts, ...]
    unknown: str
    """What this form does not tell, in a sentence."""
    spec: Wanted | None = None
    """What a GPUNode wants of it; None for other forms."""


def read_facts(path: Path) -> tuple[NodeFacts, ...]:
    """The nodes that a file describes.

    Raises:
        InputError: It is no inventory file, no simulator's state and no GPUNode manifest.
        DriverError: The simulated driver does not answer.
    """
    documents = read_file(path)
    found: list[NodeFacts] = []
    for document in documents:
        value = document.value
        if isinstance(value, Mapping) and "format" in value and "gpus" in value:
            found.append(_of_simulator(path))
        elif isinstance(value, Mapping) and "kind" in value:
            found += [facts_of(one.value, one.where) for one in _gpu_nodes(document)]
        else:
            found += [_of_entry(one, str(path)) for one in _entries(value, str(path))]
    if not found:
        raise InputError(
            str(path),
            "describes no node",
            expected="an inventory file, a simulator's state file or GPUNode manifests",
            example=_EXAMPLE,
        )
    return tuple(found)


def facts_of(item: Mapping[str, Any], where: str) -> NodeFacts:
    """The node that a GPUNode describes.

    Raises:
        InputError: It is malformed, or has a board that the catalogue lacks.
    """
    name = str((item.get("metadata") or {}).get("name"))
    status = parse_model(GpuNodeStatus, item.get("status") or {}, where)
    spec = parse_model(GpuNodeSpec, item.get("spec") or {}, where)
    if not status.gpus:
        raise InputError(
            where, f"GPUNode {shown(name)} has no GPUs in its status", fix="start its agent"
        )
    return NodeFacts(
        name=name,
        gpus=tuple(_of_status(gpu) for gpu in status.gpus),
        unknown="processes without a pod, and MIG instances that are no shares",
        spec=Wanted.from_spec(spec) if spec.gpus else None,
    )


def _gpu_nodes(document: Document) -> Iterable[KubeObject]:
    for found in objects_of((document,)):
        if found.kind != "GPUNode":
            raise InputError(
                found.where,
                f"kind {shown(found.kind)} describes no node's GPUs",
                expected="a GPUNode, or an inventory file",
                example=_EXAMPLE,
            )
        yield found


def _entries(value: object, where: str) -> list[NodeEntry]:
    listed = value if isinstance(value, list) else [value]
    return [parse_model(NodeEntry, one, where) for one in listed]


def _of_entry(entry: NodeEntry, where: str) -> NodeFacts:
    if not entry.boards:
        raise InputError(where, f"node {shown(entry.name)} has no GPUs")
    return NodeFacts(
        name=entry.name,
        gpus=tuple(
            GpuFacts(gpu=_cut(gpu.index, gpu.uuid, board, layout), served=layout)
            for board, gpu, layout in entry.layouts()
        ),
        unknown="pods and processes: every share is taken for free",
    )


def _cut(index: int, uuid: str, board: Board, layout: GpuLayout) -> GpuState:
    """A GPU of a board that serves a layout."""
    places = place(board, layout.mig_profiles) if layout.mode is Mode.MIG else ()
    return GpuState(
        index=index,
        uuid=uuid,
        board=board,
        product=board.product_names[0],
        memory_mib=board.memory_mib,
        mig_enabled=layout.mode is Mode.MIG,
        mig_pending=layout.mode is Mode.MIG,
        instances=tuple(
            _instance(board, at.profile, at.placement.start, number, layout)
            for number, at in enumerate(places)
        ),
        mps=layout if layout.mode is Mode.MPS else None,
    )


def _instance(  # noqa: PLR0917 - what a place is made of
    board: Board, profile: MigProfile, start: int, number: int, layout: GpuLayout | None
) -> Instance:
    known = board.mig_profile(profile)
    return Instance(
        profile=profile,
        placement=Placement(start, known.length),
        gi_id=number,
        mig_uuid=f"MIG-{number}",
        memory_mib=known.memory_mib,
        mps=None if layout is None else layout.mps_of(profile),
    )


def _of_simulator(path: Path) -> NodeFacts:
    with Driver(path) as driver:
        node = driver.observe()
        gpus = [gpu_state(gpu, driver.processes(gpu.uuid)) for gpu in node.gpus if gpu.readable]
    return NodeFacts(
        name=path.stem,
        gpus=tuple(GpuFacts(gpu=gpu, served=gpu.as_found()) for gpu in gpus),
        unknown="pods and MPS; processes are known",
    )


def _of_status(status: ObservedGpuStatus) -> GpuFacts:
    board = catalogue.load().board(status.board)
    holds = tuple(
        Hold(
            device_id=share.id,
            resource=share.resource,
            holder=Holder(namespace=one.namespace, pod=one.pod, container=one.container),
        )
        for share in status.shares
        for one in share.holders
    )
    places = {
        place: None
        for share in status.shares
        if (place := Hold(device_id=share.id, resource=share.resource).mig_place) is not None
    }
    layout = None if status.layout is None else status.layout.to_layout()
    gpu = GpuState(
        index=status.index,
        uuid=status.uuid,
        board=board,
        product=status.product,
        memory_mib=status.memory_mib,
        pci_bus_id=status.pci_bus_id,
        numa_node=status.numa_node,
        mig_enabled=status.mig_enabled,
        mig_pending=status.mig_enabled,
        instances=tuple(
            _instance(board, profile, start, number, layout)
            for number, (profile, start) in enumerate(places)
        ),
        mps=layout if layout is not None and layout.mode is Mode.MPS else None,
    )
    return GpuFacts(gpu=gpu, served=layout or gpu.as_found(), holds=holds)
