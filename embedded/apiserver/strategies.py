"""What each kind adds to a write: preparation, completion, rules (pure but for addresses).

The names follow the registry strategies upstream: prepare before validation, status kept
apart from spec, generation counted, updates checked against the old object.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from embedded.apiserver import (
    classrules,
    configrules,
    definitionrules,
    noderules,
    podrules,
    podupdates,
    recordrules,
    schemarules,
)
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.metadata import immutable_metadata_causes
from embedded.apiserver.objects import Json, deep_copy, entries, meta, own_meta, section
from embedded.apiserver.status import (
    Cause,
    field_forbidden,
    invalid_value,
    not_supported,
    required,
)

_SERVICE_NETWORK: Final = ipaddress.ip_network("10.96.0.0/16")

# Kinds whose status a creation through the resource itself may set.
_STATUS_AT_CREATION: Final = frozenset({"nodes"})


def prepare_create(kind: ResourceKind, obj: Json) -> None:
    """Put aside what a creation may not say and start what the server keeps."""
    if kind.has_status and kind.qualified not in _STATUS_AT_CREATION:
        obj.pop("status", None)
    if kind.has_generation or kind.custom:
        own_meta(obj)["generation"] = 1
    preparation = _PREPARE.get(kind.qualified)
    if preparation is not None:
        preparation(obj)


def finish_create(kind: ResourceKind, obj: Json) -> None:
    """What can only be filled in when name and uid are known."""
    completion = _FINISH.get(kind.qualified)
    if completion is not None:
        completion(obj)


def create_causes(kind: ResourceKind, obj: Json) -> list[Cause]:
    """What is wrong with a new object."""
    if kind.custom:
        return schemarules.causes_of(obj, None, kind.json_schema)
    rules = _CREATE_RULES.get(kind.qualified)
    return rules(obj) if rules is not None else []


def prepare_update(kind: ResourceKind, new: Json, old: Json, subresource: str) -> None:
    """Keep the part of the object that this way of writing does not reach."""
    if subresource == "status":
        _keep_all_but_status(kind, new, old)
    elif subresource == "ephemeralcontainers":
        _keep_all_but_ephemeral(new, old)
    elif kind.has_status:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)


def _keep_all_but_status(kind: ResourceKind, new: Json, old: Json) -> None:
    for key in (new.keys() | old.keys()) - {"status", "metadata"}:
        if key in old:
            new[key] = old[key]
        else:
            del new[key]
    before, metadata = meta(old), own_meta(new)
    kept = {"ownerReferences", "finalizers"}
    if kind.custom:
        # A custom resource's metadata cannot be written through its status at all.
        kept |= (metadata.keys() | before.keys()) - {"managedFields", "resourceVersion"}
    for key in kept:
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)


def _keep_all_but_ephemeral(new: Json, old: Json) -> None:
    wanted = section(new, "spec").get("ephemeralContainers")
    managed = meta(new).get("managedFields")
    new["metadata"] = dict(meta(old)) | {"resourceVersion": meta(new).get("resourceVersion", "")}
    if not new["metadata"]["resourceVersion"]:
        del new["metadata"]["resourceVersion"]
    if managed:
        new["metadata"]["managedFields"] = managed
    new["spec"] = dict(section(old, "spec"))
    new["status"] = section(old, "status")
    new["spec"].pop("ephemeralContainers", None)
    if wanted:
        new["spec"]["ephemeralContainers"] = wanted


def count_generation(kind: ResourceKind, new: Json, old: Json) -> None:
    """One generation more where anything but metadata and status changed."""
    if not (kind.has_generation or kind.custom):
        return
    ignored = {"metadata", "status"} if kind.has_status else {"metadata"}

    def body(obj: Json) -> Json:
        return {key: value for key, value in obj.items() if key not in ignored}

    before = int(meta(old).get("generation") or 1)
    started_to_end = meta(new).get("deletionTimestamp") != meta(old).get("deletionTimestamp")
    changed = body(new) != body(old) or started_to_end
    own_meta(new)["generation"] = before + 1 if changed else before


def update_causes(kind: ResourceKind, new: Json, old: Json, subresource: str) -> list[Cause]:
    """What is wrong with a changed object."""
    causes = immutable_metadata_causes(new, old)
    if kind.custom:
        found = schemarules.causes_of(new, old, kind.json_schema)
        return causes + [_of_status(each) if subresource == "status" else each for each in found]
    if subresource == "ephemeralcontainers":
        return causes + _ephemeral_update_causes(new, old)
    if subresource == "status":
        amounts = noderules.status_causes(new) if kind.qualified == "nodes" else []
        return causes + amounts
    rules = _UPDATE_RULES.get(kind.qualified)
    return causes + (rules(new, old) if rules is not None else create_causes(kind, new))


def _of_status(cause: Cause) -> Cause:
    """The status alone was looked at, so that texts name fields from there."""
    own = cause.field.removeprefix("status.")
    text = cause.message.replace(f": {cause.field} in body", f": {own} in body")
    return replace(cause, message=text)


def _ephemeral_update_causes(new: Json, old: Json) -> list[Cause]:
    spec = section(new, "spec")
    taken = [
        str(container.get("name"))
        for group in ("containers", "initContainers")
        for container in entries(spec, group)
    ]
    causes = podrules.ephemeral_causes(spec, "spec", taken)
    after = entries(spec, "ephemeralContainers")
    for index, before in enumerate(entries(old, "spec", "ephemeralContainers")):
        if before not in after:
            causes.append(
                field_forbidden(
                    f"spec.ephemeralContainers[{index}]",
                    "existing ephemeral containers may not be removed or changed",
                )
            )
    return causes


def _prepare_pod(pod: Json) -> None:
    spec = section(pod, "spec")
    if int(spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}


def _qos_class(spec: Json) -> str:
    """v1qos.ComputePodQOS, over cpu and memory only."""
    containers = entries(spec, "containers") + entries(spec, "initContainers")
    if spec.get("resources"):
        containers = [spec]
    named = False
    guaranteed = True
    for container in containers:
        limits = section(container, "resources", "limits")
        requests = section(container, "resources", "requests")
        for resource in ("cpu", "memory"):
            named = named or resource in limits or resource in requests
            same = resource in limits and limits[resource] == requests.get(resource)
            guaranteed = guaranteed and same
    if not named:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _prepare_namespace(namespace: Json) -> None:
    namespace["status"] = {"phase": "Active"}
    namespace["spec"] = {"finalizers": ["kubernetes"]}


def _label_namespace(namespace: Json) -> None:
    labels = own_meta(namespace).setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = meta(namespace)["name"]


def _prepare_definition(definition: Json) -> None:
    definition["status"] = {"conditions": [], "storedVersions": [], "acceptedNames": {}}


def _finish_service(service: Json) -> None:
    """A cluster address derived from the uid: unique enough, and needs no allocator."""
    spec = section(service, "spec")
    if spec.get("type") == "ExternalName" or spec.get("clusterIP"):
        return
    offset = int(str(meta(service)["uid"]).replace("-", "")[:8], 16) % (2**16 - 2) + 1
    spec["clusterIP"] = str(_SERVICE_NETWORK[offset])
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _finish_job(job: Json) -> None:
    """The selector that the job strategy makes from the job's uid."""
    spec = section(job, "spec")
    if spec.get("manualSelector"):
        return
    uid, name = meta(job)["uid"], meta(job)["name"]
    labels = own_meta(spec.setdefault("template", {})).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"], labels[f"{prefix}job-name"] = uid, name
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _workload_causes(obj: Json) -> list[Cause]:
    template = section(obj, "spec", "template")
    causes = podrules.template_causes(template, "spec.template")
    selector = section(obj, "spec", "selector")
    wanted = selector.get("matchLabels") or {}
    labels = section(template, "metadata").get("labels") or {}
    if not selector:
        causes.append(required("spec.selector"))
    elif any(labels.get(key) != value for key, value in wanted.items()):
        causes.append(
            invalid_value(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            )
        )
    return causes


def _job_causes(obj: Json) -> list[Cause]:
    causes = podrules.template_causes(section(obj, "spec", "template"), "spec.template")
    return causes + _job_policy(section(obj, "spec", "template", "spec"), "spec.template.spec")


def _cron_job_causes(obj: Json) -> list[Cause]:
    template = section(obj, "spec", "jobTemplate", "spec", "template")
    where = "spec.jobTemplate.spec.template"
    causes = podrules.template_causes(template, where)
    return causes + _job_policy(section(template, "spec"), f"{where}.spec")


def _job_policy(spec: Json, field: str) -> list[Cause]:
    if spec.get("restartPolicy") in {"OnFailure", "Never"}:
        return []
    return [
        not_supported(f"{field}.restartPolicy", spec.get("restartPolicy"), ("OnFailure", "Never"))
    ]


def _workload_update_causes(new: Json, old: Json) -> list[Cause]:
    causes = _workload_causes(new)
    if section(new, "spec").get("selector") != section(old, "spec").get("selector"):
        causes.append(
            invalid_value("spec.selector", section(new, "spec", "selector"), "field is immutable")
        )
    return causes


def _secret_update_causes(new: Json, old: Json) -> list[Cause]:
    causes = []
    if new.get("type") != old.get("type"):
        causes.append(invalid_value("type", new.get("type"), "field is immutable"))
    if old.get("immutable") and new.get("data") != old.get("data"):
        causes.append(field_forbidden("data", "field is immutable when `immutable` is set"))
    return causes


_CauseRules = Callable[[Json], list[Cause]]

_PREPARE: Final[dict[str, Callable[[Json], Any]]] = {
    "pods": _prepare_pod,
    "namespaces": _prepare_namespace,
    "customresourcedefinitions.apiextensions.k8s.io": _prepare_definition,
}
_FINISH: Final[dict[str, Callable[[Json], Any]]] = {
    "namespaces": _label_namespace,
    "services": _finish_service,
    "jobs.batch": _finish_job,
}
_CREATE_RULES: Final[dict[str, _CauseRules]] = {
    "nodes": noderules.node_causes,
    "events": recordrules.event_causes,
    "leases.coordination.k8s.io": recordrules.lease_causes,
    "pods": podrules.pod_causes,
    "runtimeclasses.node.k8s.io": classrules.runtime_class_causes,
    "deployments.apps": _workload_causes,
    "replicasets.apps": _workload_causes,
    "statefulsets.apps": _workload_causes,
    "daemonsets.apps": _workload_causes,
    "jobs.batch": _job_causes,
    "cronjobs.batch": _cron_job_causes,
    "customresourcedefinitions.apiextensions.k8s.io": definitionrules.causes_of,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": configrules.webhook_causes,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": configrules.webhook_causes,
    "validatingadmissionpolicies.admissionregistration.k8s.io": configrules.policy_causes,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": configrules.binding_causes,
}
_UPDATE_RULES: Final[dict[str, Callable[[Json, Json], list[Cause]]]] = {
    "pods": podupdates.pod_update_causes,
    "runtimeclasses.node.k8s.io": classrules.runtime_class_update_causes,
    "deployments.apps": _workload_update_causes,
    "replicasets.apps": _workload_update_causes,
    "statefulsets.apps": _workload_update_causes,
    "daemonsets.apps": _workload_update_causes,
    "secrets": _secret_update_causes,
}


def copy_for_change(obj: Json) -> Json:
    """A copy of a stored object that may be changed."""
    copied: Json = deep_copy(obj)
    return copied
