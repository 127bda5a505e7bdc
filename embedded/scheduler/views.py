"""Nodes and pods as the scheduler sees them: parsed once, then only compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from embedded.scheduler.amounts import Amounts, amounts_of
from embedded.scheduler.demand import demand_of, scored_demand_of

TERMINAL: Final = ("Succeeded", "Failed")
UNSCHEDULABLE_TAINT: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node: what pods are placed by.

    Attributes:
        name: Its name.
        labels: Its labels.
        taints: Its taints, raw.
        unschedulable: Whether it is cordoned.
        allocatable: What it offers to pods; cpu in millicores.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    unschedulable: bool = False
    allocatable: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Node:
        """The view of a Node object.

        Raises:
            QuantityError: If an amount is no quantity.
        """
        metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
        status = item.get("status") or {}
        return cls(
            name=str(metadata.get("name") or ""),
            labels=metadata.get("labels") or {},
            taints=tuple(spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            allocatable=amounts_of(status.get("allocatable")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod: what it needs, what it insists on, where it is.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        labels: Its labels.
        spec: Its spec, for selectors, affinity and tolerations; raw.
        node: The node that it is bound to; empty for none.
        finished: Whether it has ended for good and holds nothing any more.
        deleted: Whether it is on its way out.
        demand: What it needs, see ``demand``.
        scored: Its cpu and memory as scores count them.
        priority: Its priority.
        created: When it was created, as the API server wrote it.
        conditions: Its conditions, raw.
    """

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    node: str = ""
    finished: bool = False
    deleted: bool = False
    demand: Amounts = field(default_factory=dict)
    scored: Amounts = field(default_factory=dict)
    priority: int = 0
    created: str = ""
    conditions: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Pod:
        """The view of a Pod object.

        Raises:
            QuantityError: If an amount is no quantity.
        """
        metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
        status = item.get("status") or {}
        return cls(
            namespace=str(metadata.get("namespace") or ""),
            name=str(metadata.get("name") or ""),
            uid=str(metadata.get("uid") or ""),
            labels=metadata.get("labels") or {},
            spec=spec,
            node=str(spec.get("nodeName") or ""),
            finished=status.get("phase") in TERMINAL,
            deleted=bool(metadata.get("deletionTimestamp")),
            demand=demand_of(spec),
            scored=scored_demand_of(spec),
            priority=int(spec.get("priority") or 0),
            created=str(metadata.get("creationTimestamp") or ""),
            conditions=tuple(status.get("conditions") or ()),
        )

    @property
    def title(self) -> str:
        """Namespace and name, as logs and messages say it."""
        return f"{self.namespace}/{self.name}"
