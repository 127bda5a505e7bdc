"""The admission plug-ins inside the server that change or refuse pods and namespaces' content.

NamespaceLifecycle, ServiceAccount (the name alone: there are no tokens to mount), Priority and
DefaultTolerationSeconds run before the webhooks, and again after a webhook changed something.
"""

from __future__ import annotations

from typing import Final

from embedded.apiserver.admission.attributes import Attributes, Operation
from embedded.apiserver.kinds import KindTable
from embedded.apiserver.objects import Json, entries, meta, section
from embedded.apiserver.status import forbidden, not_found
from embedded.apiserver.store import Store

_TOLERATION_S: Final = 300
_EVICTING_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SYSTEM_PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def check_namespace(attributes: Attributes, store: Store, kinds: KindTable) -> None:
    """NamespaceLifecycle: nothing is created in a namespace that is absent or ending.

    Raises:
        StatusError: 404 or 403.
    """
    kind, name = attributes.kind, attributes.namespace
    if not kind.namespaced or attributes.operation is not Operation.CREATE:
        return
    namespace = store.get("namespaces", "", name)
    if namespace is None:
        raise not_found(kinds.named("namespaces"), name)
    if meta(namespace).get("deletionTimestamp") and not attributes.subresource:
        raise forbidden(
            kind,
            attributes.name,
            f"unable to create new content in namespace {name} because it is being terminated",
            [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {name} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )


def complete_pod(attributes: Attributes, store: Store) -> None:
    """What the server's own plug-ins write into a pod; the same when done twice.

    Raises:
        StatusError: 403, the pod names a priority class that does not exist.
    """
    pod = attributes.obj
    if (
        attributes.kind.qualified != "pods"
        or attributes.subresource
        or attributes.operation is Operation.DELETE
        or pod is None
    ):
        return
    spec = pod.setdefault("spec", {})
    if attributes.operation is Operation.UPDATE:
        _tolerations(spec)
        return
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    _priority(attributes, spec, store)
    _tolerations(spec)


def _priority(attributes: Attributes, spec: Json, store: Store) -> None:
    name = spec.get("priorityClassName")
    value, preemption = 0, "PreemptLowerPriority"
    if name in _SYSTEM_PRIORITIES:
        value = _SYSTEM_PRIORITIES[name]
    elif name:
        found = store.get("priorityclasses.scheduling.k8s.io", "", str(name))
        if found is None:
            raise forbidden(
                attributes.kind, attributes.name, f"no PriorityClass with name {name} was found"
            )
        value = int(found.get("value") or 0)
        preemption = str(found.get("preemptionPolicy") or preemption)
    else:
        value, preemption = _global_default(spec, store, preemption)
    if spec.get("priority") not in {None, value}:
        raise forbidden(
            attributes.kind,
            attributes.name,
            "the integer value of priority "
            f"({spec['priority']}) must not be provided in pod spec; priority admission controller "
            f"computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", preemption)


def _global_default(spec: Json, store: Store, preemption: str) -> tuple[int, str]:
    for found in store.objects("priorityclasses.scheduling.k8s.io"):
        if found.get("globalDefault"):
            spec["priorityClassName"] = meta(found)["name"]
            return int(found.get("value") or 0), str(found.get("preemptionPolicy") or preemption)
    return 0, preemption


def _tolerations(spec: Json) -> None:
    """DefaultTolerationSeconds."""
    present = entries(spec, "tolerations")
    for taint in _EVICTING_TAINTS:
        tolerated = any(
            t.get("key") in {taint, None, ""} and t.get("effect") in {"NoExecute", None, ""}
            for t in present
        )
        if not tolerated:
            spec.setdefault("tolerations", []).append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_S,
                }
            )


def namespace_labels(store: Store, name: str) -> dict[str, str]:
    """Labels of a namespace; none where it does not exist."""
    return section(store.get("namespaces", "", name), "metadata").get("labels") or {}
