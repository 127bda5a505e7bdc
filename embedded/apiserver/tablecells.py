"""The cells of printed tables: one small function each (pure but for ages)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from embedded.apiserver.objects import Json, entries, meta, parse_timestamp, section

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_ROLE: Final = "node-role.kubernetes.io/"


def as_text(value: Any) -> str:
    """A value as one line."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def at(path: str, default: Any = "") -> Callable[[Json], Any]:
    """A cell that shows the value at a dotted path."""
    *outer, last = path.split(".")

    def cell(obj: Json) -> Any:
        value = section(obj, *outer).get(last)
        return default if value in {None, ""} else value

    return cell


def fixed(text: str) -> Callable[[Json], str]:
    """A cell that always shows the same."""
    return lambda _: text


def count(path: str) -> Callable[[Json], int]:
    """A cell that counts the entries of a list."""
    *outer, last = path.split(".")
    return lambda obj: len(section(obj, *outer).get(last) or ())


def name(obj: Json) -> Any:
    """The object's name."""
    return meta(obj).get("name")


def duration(span: timedelta) -> str:
    """duration.HumanDuration: 95s, 4m10s, 3h, 2d4h, 12d."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    minutes = seconds // _MINUTE
    if minutes < 10:  # noqa: PLR2004 - where upstream stops to show seconds
        rest = seconds % _MINUTE
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:  # noqa: PLR2004 - upstream: three hours in minutes
        return f"{minutes}m"
    hours = seconds // _HOUR
    if hours < 8:  # noqa: PLR2004 - where upstream stops to show minutes
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:  # noqa: PLR2004 - upstream: two days in hours
        return f"{hours}h"
    days = seconds // _DAY
    if days < 8:  # noqa: PLR2004 - where upstream stops to show hours
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"  # noqa: PLR2004 - two years


def since(path: str, default: str = "<unknown>") -> Callable[[Json], str]:
    """A cell that shows how long ago a moment was."""
    read = at(path)

    def cell(obj: Json) -> str:
        moment = parse_timestamp(str(read(obj)))
        return duration(datetime.now(UTC) - moment) if moment else default

    return cell


age: Final = since("metadata.creationTimestamp")


def _statuses(pod: Json) -> list[Json]:
    return entries(pod, "status", "containerStatuses")


def pod_ready(pod: Json) -> str:
    """Ready containers of all, sidecars included."""
    sidecars = [
        c for c in entries(pod, "spec", "initContainers") if c.get("restartPolicy") == "Always"
    ]
    running = {str(c.get("name")) for c in sidecars}
    counted = _statuses(pod) + [
        s for s in entries(pod, "status", "initContainerStatuses") if s.get("name") in running
    ]
    total = len(entries(pod, "spec", "containers")) + len(sidecars)
    return f"{sum(bool(s.get('ready')) for s in counted)}/{total}"


def pod_restarts(pod: Json) -> str:
    """Restarts of all containers."""
    return str(sum(int(status.get("restartCount") or 0) for status in _statuses(pod)))


def pod_status(pod: Json) -> str:
    """The reason that kubectl shows: of the pod, of its gates, of a container, or the phase."""
    status = section(pod, "status")
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    for condition in entries(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    waiting = _init_reason(pod)
    reason = waiting or _container_reason(pod, reason)
    if meta(pod).get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _init_reason(pod: Json) -> str:
    for index, status in enumerate(entries(pod, "status", "initContainerStatuses")):
        state = section(status, "state")
        ended = section(state, "terminated")
        if ended and int(ended.get("exitCode") or 0) == 0:
            continue
        if status.get("started") and status.get("ready"):
            continue
        if ended:
            return f"Init:{ended.get('reason') or 'ExitCode:' + str(ended.get('exitCode'))}"
        why = section(state, "waiting").get("reason")
        if why and why != "PodInitializing":
            return f"Init:{why}"
        return f"Init:{index}/{len(entries(pod, 'spec', 'initContainers'))}"
    return ""


def _container_reason(pod: Json, reason: str) -> str:
    for status in reversed(_statuses(pod)):
        state = section(status, "state")
        for part in ("waiting", "terminated"):
            if found := section(state, part).get("reason"):
                reason = str(found)
    return reason


def readiness_gates(pod: Json) -> str:
    """Gates that hold, of all."""
    gates = [g.get("conditionType") for g in entries(pod, "spec", "readinessGates")]
    if not gates:
        return "<none>"
    true = {
        c.get("type") for c in entries(pod, "status", "conditions") if c.get("status") == "True"
    }
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"


def node_status(node: Json) -> str:
    """Ready, NotReady or Unknown, and whether the node is cordoned."""
    found = {str(c.get("type")): c.get("status") for c in entries(node, "status", "conditions")}
    shown = {"True": "Ready", "False": "NotReady"}.get(str(found.get("Ready")), "Unknown")
    cordoned = section(node, "spec").get("unschedulable")
    return f"{shown},SchedulingDisabled" if cordoned else shown


def node_roles(node: Json) -> str:
    """Roles that labels name."""
    labels = meta(node).get("labels") or {}
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    return ",".join(roles) or "<none>"


def node_address(kind: str) -> Callable[[Json], str]:
    """The node's address of a kind."""

    def cell(node: Json) -> str:
        for address in entries(node, "status", "addresses"):
            if address.get("type") == kind:
                return str(address.get("address"))
        return "<none>"

    return cell


event_first: Final = since("firstTimestamp")


def event_seen(event: Json) -> str:
    """How long ago an event was last seen."""
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        moment = parse_timestamp(str(event.get(field) or ""))
        if moment:
            return duration(datetime.now(UTC) - moment)
    return "<unknown>"


def event_object(event: Json) -> str:
    """kind/name of what an event is about."""
    about = section(event, "involvedObject")
    return f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}"


def data_count(obj: Json) -> int:
    """Entries of a ConfigMap or Secret."""
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def service_ports(service: Json) -> str:
    """80/TCP,443:30443/TCP."""
    shown = []
    for port in entries(service, "spec", "ports"):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}")
    return ",".join(shown) or "<none>"


def _pairs(labels: Json) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def plain_selector(service: Json) -> str:
    """A selector that is a mapping."""
    return _pairs(section(service, "spec", "selector"))


def selector(obj: Json) -> str:
    """A label selector's equalities."""
    return _pairs(section(obj, "spec", "selector", "matchLabels"))


def node_selector(obj: Json) -> str:
    """The node selector of a DaemonSet's pods."""
    return _pairs(section(obj, "spec", "template", "spec", "nodeSelector"))


def containers(obj: Json) -> str:
    """Names of the template's containers."""
    return ",".join(
        str(c.get("name")) for c in entries(obj, "spec", "template", "spec", "containers")
    )


def images(obj: Json) -> str:
    """Images of the template's containers."""
    return ",".join(
        str(c.get("image")) for c in entries(obj, "spec", "template", "spec", "containers")
    )


def quota(part: str, *, others: bool) -> Callable[[Json], str]:
    """``key: used/hard`` of a quota's keys that begin with a part."""

    def cell(obj: Json) -> str:
        hard, used = section(obj, "spec", "hard"), section(obj, "status", "used")
        names = [
            key
            for key in sorted(hard)
            if key.startswith(f"{part}.") or (others and not key.startswith("limits."))
        ]
        return ", ".join(f"{key}: {used.get(key, '0')}/{hard[key]}" for key in names)

    return cell


def ready_of_replicas(obj: Json) -> str:
    """Ready replicas of the wanted ones."""
    ready = section(obj, "status").get("readyReplicas") or 0
    return f"{ready}/{section(obj, 'spec').get('replicas') or 0}"


def job_status(job: Json) -> str:
    """The condition that ended a job, or Running."""
    for condition in entries(job, "status", "conditions"):
        if condition.get("status") == "True" and condition.get("type") in {
            "Complete",
            "Failed",
            "Suspended",
        }:
            return str(condition["type"])
    return "Running"


def job_completions(job: Json) -> str:
    """Finished pods of the wanted ones."""
    done = section(job, "status").get("succeeded") or 0
    return f"{done}/{section(job, 'spec').get('completions') or 1}"


def suspend(obj: Json) -> str:
    """True or False."""
    return str(bool(section(obj, "spec").get("suspend")))
