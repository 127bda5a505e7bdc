"""Plugins of any name that offer our GPUs, by what the kubelet counts (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharing.errors import ResourceNameError
from sharing.names import MILLI_GPU
from sharing.node.rivals import TWICE
from sharing.node.target import Offered
from sharing.shareclass import parse_resource_name


def foreign_plugin(offered: Iterable[Offered], gpus: Iterable[str]) -> str:
    """Which resource of somebody else's has our GPUs as its devices; empty if none has.

    Args:
        offered: Everything that the kubelet may hand out, whoever listed it.
        gpus: The node's GPUs by UUID.
    """
    uuids = tuple(gpus)
    found = sorted(
        {
            one.resource
            for one in offered
            if not _is_ours(one.resource) and any(uuid in one.device_id for uuid in uuids)
        }
    )
    if not found:
        return ""
    return (
        f"another device plugin offers GPUs of this node as {', '.join(found)}, {TWICE}: keep "
        "that plugin off the Node"
    )


def others_offered(allocatable: Mapping[str, object]) -> tuple[str, ...]:
    """Extended resources of a Node that others offer: a reason to ask whose devices they are."""
    return tuple(
        sorted(
            name
            for name, amount in allocatable.items()
            if "/" in name and name != MILLI_GPU and not _is_ours(name) and str(amount) != "0"
        )
    )


def _is_ours(resource: str) -> bool:
    try:
        return parse_resource_name(resource) is not None
    except ResourceNameError:
        return False
