"""Renders objects as the tables that kubectl prints (pure but for ages).

Columns of the built-in kinds are those of ``pkg/printers/internalversion``; custom resources
bring their own (``additionalPrinterColumns``, simple JSON paths).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from embedded.apiserver import tablecells as cells
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, meta, parse_timestamp


@dataclass(frozen=True, slots=True)
class Column:
    """One column: heading, JSON type, whether only wide output shows it, and its cell."""

    name: str
    cell: Callable[[Json], Any]
    type: str = "string"
    wide: bool = False


_NAME: Final = Column("Name", cells.name)
_AGE: Final = Column("Age", cells.age)
_WORKLOAD_TAIL: Final = (
    Column("Containers", cells.containers, wide=True),
    Column("Images", cells.images, wide=True),
    Column("Selector", cells.selector, wide=True),
)

_COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "pods": (
        _NAME,
        Column("Ready", cells.pod_ready),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.pod_restarts),
        _AGE,
        Column("IP", cells.at("status.podIP", "<none>"), wide=True),
        Column("Node", cells.at("spec.nodeName", "<none>"), wide=True),
        Column("Nominated Node", cells.at("status.nominatedNodeName", "<none>"), wide=True),
        Column("Readiness Gates", cells.readiness_gates, wide=True),
    ),
    "nodes": (
        _NAME,
        Column("Status", cells.node_status),
        Column("Roles", cells.node_roles),
        _AGE,
        Column("Version", cells.at("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", cells.node_address("InternalIP"), wide=True),
        Column("External-IP", cells.node_address("ExternalIP"), wide=True),
        Column("OS-Image", cells.at("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", cells.at("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column(
            "Container-Runtime",
            cells.at("status.nodeInfo.containerRuntimeVersion", "<unknown>"),
            wide=True,
        ),
    ),
    "namespaces": (_NAME, Column("Status", cells.at("status.phase")), _AGE),
    "events": (
        Column("Last Seen", cells.event_seen),
        Column("Type", cells.at("type")),
        Column("Reason", cells.at("reason")),
        Column("Object", cells.event_object),
        Column("Subobject", cells.at("involvedObject.fieldPath"), wide=True),
        Column("Source", cells.at("source.component"), wide=True),
        Column("Message", cells.at("message")),
        Column("First Seen", cells.event_first, wide=True),
        Column("Count", cells.at("count", 1), type="integer", wide=True),
        Column("Name", cells.name, wide=True),
    ),
    "secrets": (
        _NAME,
        Column("Type", cells.at("type")),
        Column("Data", cells.data_count, "integer"),
        _AGE,
    ),
    "configmaps": (_NAME, Column("Data", cells.data_count), _AGE),
    "serviceaccounts": (_NAME, Column("Secrets", cells.count("secrets"), "integer"), _AGE),
    "services": (
        _NAME,
        Column("Type", cells.at("spec.type")),
        Column("Cluster-IP", cells.at("spec.clusterIP", "<none>")),
        Column("External-IP", cells.fixed("<none>")),
        Column("Port(s)", cells.service_ports),
        _AGE,
        Column("Selector", cells.plain_selector, wide=True),
    ),
    "resourcequotas": (
        _NAME,
        Column("Request", cells.quota("requests", others=True)),
        Column("Limit", cells.quota("limits", others=False)),
        _AGE,
    ),
    "deployments.apps": (
        _NAME,
        Column("Ready", cells.ready_of_replicas),
        Column("Up-to-date", cells.at("status.updatedReplicas", 0), "integer"),
        Column("Available", cells.at("status.availableReplicas", 0), "integer"),
        _AGE,
        *_WORKLOAD_TAIL,
    ),
    "replicasets.apps": (
        _NAME,
        Column("Desired", cells.at("spec.replicas", 0), "integer"),
        Column("Current", cells.at("status.replicas", 0), "integer"),
        Column("Ready", cells.at("status.readyReplicas", 0), "integer"),
        _AGE,
        *_WORKLOAD_TAIL,
    ),
    "statefulsets.apps": (
        _NAME,
        Column("Ready", cells.ready_of_replicas),
        _AGE,
        *_WORKLOAD_TAIL[:2],
    ),
    "daemonsets.apps": (
        _NAME,
        Column("Desired", cells.at("status.desiredNumberScheduled", 0), "integer"),
        Column("Current", cells.at("status.currentNumberScheduled", 0), "integer"),
        Column("Ready", cells.at("status.numberReady", 0), "integer"),
        Column("Up-to-date", cells.at("status.updatedNumberScheduled", 0), "integer"),
        Column("Available", cells.at("status.numberAvailable", 0), "integer"),
        Column("Node Selector", cells.node_selector),
        _AGE,
        *_WORKLOAD_TAIL,
    ),
    "jobs.batch": (
        _NAME,
        Column("Status", cells.job_status),
        Column("Completions", cells.job_completions),
        Column("Duration", cells.fixed("")),
        _AGE,
        *_WORKLOAD_TAIL,
    ),
    "cronjobs.batch": (
        _NAME,
        Column("Schedule", cells.at("spec.schedule")),
        Column("Timezone", cells.at("spec.timeZone", "<none>")),
        Column("Suspend", cells.suspend),
        Column("Active", cells.count("status.active"), "integer"),
        Column("Last Schedule", cells.since("status.lastScheduleTime", "<none>")),
        _AGE,
    ),
    "leases.coordination.k8s.io": (_NAME, Column("Holder", cells.at("spec.holderIdentity")), _AGE),
    "poddisruptionbudgets.policy": (
        _NAME,
        Column("Min Available", cells.at("spec.minAvailable", "N/A")),
        Column("Max Unavailable", cells.at("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", cells.at("status.disruptionsAllowed", 0), "integer"),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (
        _NAME,
        Column("Value", cells.at("value", 0), "integer"),
        Column("Global-Default", cells.at("globalDefault", False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", cells.at("preemptionPolicy")),
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (
        _NAME,
        Column("Webhooks", cells.count("webhooks"), "integer"),
        _AGE,
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (
        _NAME,
        Column("Webhooks", cells.count("webhooks"), "integer"),
        _AGE,
    ),
    "validatingadmissionpolicies.admissionregistration.k8s.io": (
        _NAME,
        Column("Validations", cells.count("spec.validations"), "integer"),
        Column("ParamKind", cells.at("spec.paramKind.kind", "<unset>")),
        _AGE,
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": (
        _NAME,
        Column("PolicyName", cells.at("spec.policyName")),
        Column("ParamRef", cells.at("spec.paramRef.name", "<unset>")),
        _AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        _NAME,
        Column("Created At", cells.at("metadata.creationTimestamp")),
    ),
}


def columns_of(kind: ResourceKind) -> tuple[Column, ...]:
    """The columns of a kind."""
    if kind.custom:
        own = tuple(_custom(column) for column in kind.columns)
        named = {column.name.lower() for column in own}
        return (_NAME, *own) if own or "age" in named else (_NAME, _AGE)
    return _COLUMNS.get(kind.qualified, (_NAME, _AGE))


def _custom(column: Mapping[str, Any]) -> Column:
    path, kind = str(column.get("jsonPath") or ""), str(column.get("type") or "string")

    def cell(obj: Json) -> Any:
        value = json_path(obj, path)
        if kind == "date":
            moment = parse_timestamp(value) if isinstance(value, str) else None
            return cells.duration(datetime.now(UTC) - moment) if moment else "<unknown>"
        if kind == "string" and value is not None and not isinstance(value, str):
            return cells.as_text(value)
        return value

    wide = int(column.get("priority") or 0) > 0
    return Column(str(column.get("name")), cell, kind, wide)


_STEP: Final = re.compile(
    r"\.(?P<field>(?:[^.\[\\]|\\.)+)"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
    r"|\[(?P<index>\d+|\*)\]"
    r"|\[['\"](?P<quoted>[^'\"]+)['\"]\]"
)


def json_path(obj: Any, path: str) -> Any:
    """The value at a simple JSON path; a list where the path names several, None for nothing."""
    found, several = [obj], False
    for step in _STEP.finditer(path):
        if step["field"] is not None or step["quoted"] is not None:
            name = step["quoted"] or step["field"].replace("\\.", ".")
            found = [v[name] for v in found if isinstance(v, dict) and name in v]
        elif step["key"] is not None:
            several = True
            found = [
                item
                for v in found
                if isinstance(v, list)
                for item in v
                if isinstance(item, dict) and str(item.get(step["key"])) == step["value"]
            ]
        elif step["index"] == "*":
            several = True
            found = [item for v in found if isinstance(v, list) for item in v]
        else:
            at = int(step["index"])
            found = [v[at] for v in found if isinstance(v, list) and at < len(v)]
    if not found:
        return None
    return found if several and len(found) > 1 else found[0]


def table(
    kind: ResourceKind,
    objects: Sequence[Json],
    *,
    revision: str = "",
    more: Json | None = None,
    include: str = "Metadata",
) -> Json:
    """A meta.k8s.io/v1 Table.

    Args:
        kind: Whose columns are used.
        objects: One row each.
        revision: ``metadata.resourceVersion``.
        more: Further metadata (continue).
        include: What each row carries: Metadata, Object or None.
    """
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision, **(more or {})},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column is _NAME else "",
                "description": column.name,
                "priority": 1 if column.wide else 0,
            }
            for column in columns
        ],
        "rows": [_row(columns, obj, include) for obj in objects],
    }


def _row(columns: Sequence[Column], obj: Json, include: str) -> Json:
    row: Json = {"cells": [column.cell(obj) for column in columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial(obj)
    return row


def partial(obj: Json) -> Json:
    """The PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta(obj),
    }
