"""GPUNode: one per node. Spec is what its GPUs shall be, status what they are and who holds them.

Cluster scoped, named as the node. The controller writes spec, the agent writes status.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from sharing.api.layout import LayoutSpec
from sharing.api.model import ApiModel, StatusModel
from sharing.inventory import NodeInventory, node_offers
from sharing.shareclass import parse_resource_name


class WantedGpu(ApiModel):
    """One GPU's wanted layout."""

    uuid: Annotated[str, Field(min_length=1, max_length=63)]
    layout: LayoutSpec
    cordoned: bool = False
    """Offers no share; what runs goes on."""


class GpuNodeSpec(ApiModel):
    """Spec of a GPUNode."""

    gpus: Annotated[tuple[WantedGpu, ...], Field(max_length=64)] = ()


class Holder(StatusModel):
    """Who holds a share, from the kubelet's PodResources."""

    namespace: str
    pod: str
    container: str


STILL_IN_USE: Final = "StillInUse"
"""Reason of a share that a process of an ended pod still uses."""


class Health(StatusModel):
    """How a GPU, or one MIG instance of it, is."""

    healthy: bool = True
    """Whether it takes new work."""
    state: str = "healthy"
    """healthy, suspect, unhealthy, probing or recovered."""
    reason: str = ""
    """One word: ``Xid79``, ``GpuLost``, ``Cordoned``."""
    message: str = ""
    xid: int | None = None
    action: str = ""
    """What is to be done about it, as NVIDIA's XID catalogue says."""
    since: str | None = None


class ObservedShare(StatusModel):
    """One share as it is advertised to the kubelet."""

    id: str
    """The device id at the kubelet."""
    resource: str
    memory_mib: Annotated[int, Field(ge=0, alias="memoryMiB")]
    milli: Annotated[int, Field(ge=0, le=1000)] = 0
    """Worth in thousandths of a GPU."""
    healthy: bool = True
    mig_uuid: str | None = None
    holders: tuple[Holder, ...] = ()
    fault: Health | None = None
    """Where it is a MIG instance that is ill by itself, or still used by an ended pod."""
    over_budget_since: str | None = None
    """Since when its holder uses more memory than the share has, where nothing keeps it within."""


class ObservedGpuStatus(StatusModel):
    """One GPU as the driver shows it."""

    index: int
    uuid: str
    board: str
    product: str
    memory_mib: Annotated[int, Field(ge=0, alias="memoryMiB")]
    pci_bus_id: str = ""
    numa_node: int | None = None
    mig_enabled: bool = False
    health: Health = Field(default_factory=Health)
    layout: LayoutSpec | None = None
    """What is served; None while it is being changed."""
    shares: tuple[ObservedShare, ...] = ()


class Condition(StatusModel):
    """A Kubernetes status condition."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: int | None = None


class PlanStatus(StatusModel):
    """The plan under way, if any."""

    steps: tuple[str, ...] = ()
    done: int = 0
    blocked_by: tuple[str, ...] = ()


class GpuNodeStatus(StatusModel):
    """Status of a GPUNode."""

    observed_generation: int | None = None
    driver_version: str = ""
    gpus: tuple[ObservedGpuStatus, ...] = ()
    plan: PlanStatus | None = None
    conditions: tuple[Condition, ...] = ()


def node_inventory(
    name: str, status: GpuNodeStatus, *, labels: dict[str, str], ready: bool
) -> NodeInventory:
    """What a node offers, as its agent reports it. Unhealthy shares are no offer."""
    shares = []
    for gpu in status.gpus:
        for share in gpu.shares:
            share_class = parse_resource_name(share.resource)
            if share_class is not None and share.healthy and gpu.health.healthy:
                shares.append((share_class, share.memory_mib, share.milli))
    return NodeInventory(name=name, offers=node_offers(shares), labels=labels, ready=ready)
