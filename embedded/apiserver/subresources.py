"""Parts of an object with a path of their own: binding, eviction, scale, finalize."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedded.apiserver.admission.attributes import Attributes, Operation
from embedded.apiserver.calls import Options
from embedded.apiserver.codec import to_typed
from embedded.apiserver.deletion import DeleteOptions, delete, parse_options
from embedded.apiserver.objects import (
    Json,
    deep_copy,
    entries,
    labels_of,
    meta,
    name_of,
    own_meta,
    section,
    timestamp,
)
from embedded.apiserver.registry import Registry
from embedded.apiserver.requests import Request
from embedded.apiserver.selectors import labels_from_object
from embedded.apiserver.status import (
    StatusError,
    bad_request,
    conflict,
    not_supported,
    success,
    too_many_requests,
)
from embedded.apiserver.store import RevisionConflictError


async def bind(registry: Registry, request: Request) -> Json:
    """POST pods/NAME/binding (or bindings): puts a pod on a node, once.

    Annotations and labels of the Binding are copied to the pod (pod BindingREST).

    Raises:
        StatusError: 404, 409 where the pod is bound or ending, 422 without a target.
    """
    pods = registry.kinds.named("pods")
    binding = to_typed(request.body(), "V1Binding", "Binding", request.call)
    name = request.path.name or name_of(binding)
    own_meta(binding).setdefault("name", name)
    own_meta(binding)["namespace"] = request.namespace
    binding.setdefault("apiVersion", "v1")
    binding.setdefault("kind", "Binding")
    target = section(binding, "target")
    if target.get("kind") not in {None, "", "Node"}:
        wrong = not_supported("target.kind", target["kind"], ("Node", "<empty>"))
        raise StatusError(500, "", f"{wrong.field}: {wrong.message}")
    if not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")
    attributes = Attributes(
        operation=Operation.CREATE,
        kind=pods if request.path.name else request.kind,
        subresource="binding" if request.path.name else "",
        namespace=request.namespace,
        name=name,
        call=request.call,
        options=Options(kind="CreateOptions"),
        obj=binding,
        body_kind=("", "v1", "Binding"),
        type_name="V1Binding",
    )
    await registry.admission.mutate(attributes)
    await registry.admission.validate(attributes)
    _assign(registry, request, name, attributes.obj or binding)
    return success(code=201)


def _assign(registry: Registry, request: Request, name: str, binding: Json) -> None:
    pods = registry.kinds.named("pods")
    pod = registry.get(pods, request.namespace, name)
    binds = replace(pods, plural="pods/binding")
    node = str(section(binding, "target").get("name"))
    if (wanted := meta(binding).get("uid")) and wanted != meta(pod)["uid"]:
        raise conflict(
            pods,
            name,
            f"Precondition failed: UID in precondition: {wanted}, "
            f"UID in object meta: {meta(pod)['uid']}",
        )
    if meta(pod).get("deletionTimestamp"):
        raise conflict(binds, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if current := section(pod, "spec").get("nodeName"):
        raise conflict(binds, name, f'pod {name} is already assigned to node "{current}"')
    if section(pod, "spec").get("schedulingGates"):
        raise conflict(binds, name, f"pod {name} has non-empty .spec.schedulingGates")
    if request.call.dry_run:
        return
    new: Json = deep_copy(pod)
    new["spec"]["nodeName"] = node
    for part in ("annotations", "labels"):
        if copied := meta(binding).get(part):
            new["metadata"][part] = {**(meta(pod).get(part) or {}), **copied}
    conditions = [
        c for c in entries(new, "status", "conditions") if c.get("type") != "PodScheduled"
    ]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(),
    }
    new["status"]["conditions"] = [*conditions, scheduled]
    registry.mark(pods, new, pod)


async def evict(registry: Registry, request: Request) -> Json:
    """POST pods/NAME/eviction: a deletion that disruption budgets may refuse.

    Raises:
        StatusError: 404; 429 where a budget allows no disruption.
    """
    pods, call = registry.kinds.named("pods"), request.call
    eviction = to_typed(request.body(), "V1Eviction", "Eviction", call)
    eviction.setdefault("apiVersion", "policy/v1")
    eviction.setdefault("kind", "Eviction")
    name = request.path.name
    if name_of(eviction) != name:
        raise bad_request("name in URL does not match name in Eviction object")
    pod = registry.get(pods, request.namespace, name)
    attributes = Attributes(
        operation=Operation.CREATE,
        kind=pods,
        subresource="eviction",
        namespace=request.namespace,
        name=name,
        call=call,
        options=Options(kind="CreateOptions"),
        obj=eviction,
        body_kind=("policy", "v1", "Eviction"),
        type_name="V1Eviction",
    )
    await registry.admission.mutate(attributes)
    await registry.admission.validate(attributes)
    _respect_budgets(registry, pod)
    parsed = parse_options(section(eviction, "deleteOptions") or None, None, None)
    options = DeleteOptions(grace_s=parsed.grace_s, uid=parsed.uid, revision=parsed.revision)
    await delete(registry, call, pods, request.namespace, name, options)
    return success(code=201)


def _respect_budgets(registry: Registry, pod: Json) -> None:
    if meta(pod).get("deletionTimestamp") or section(pod, "status").get("phase") != "Running":
        return
    namespace = str(meta(pod)["namespace"])
    for budget in registry.store.objects("poddisruptionbudgets.policy", namespace):
        selector = labels_from_object(section(budget, "spec").get("selector"))
        if not selector.matches(labels_of(pod)):
            continue
        covered = [
            other
            for other in registry.store.objects("pods", namespace)
            if selector.matches(labels_of(other)) and not meta(other).get("deletionTimestamp")
        ]
        healthy = [other for other in covered if section(other, "status").get("phase") == "Running"]
        if len(healthy) - 1 < _must_stay(section(budget, "spec"), len(covered)):
            raise too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                [
                    {
                        "reason": "DisruptionBudget",
                        "message": f"The disruption budget {name_of(budget)} needs "
                        f"{_must_stay(section(budget, 'spec'), len(covered))} healthy pods and "
                        f"has {len(healthy)} currently",
                    }
                ],
            )


def _must_stay(spec: Json, covered: int) -> int:
    """How many of the covered pods have to stay healthy."""
    if "maxUnavailable" in spec:
        return covered - _share(spec["maxUnavailable"], covered)
    return _share(spec.get("minAvailable", 1), covered)


def _share(value: Any, of: int) -> int:
    """An int-or-percent, rounded up as the disruption controller does."""
    text = str(value)
    if text.endswith("%") and text[:-1].isdecimal():
        return -(-of * int(text[:-1]) // 100)
    return int(text) if text.isdecimal() else 0


def scale_of(obj: Json) -> Json:
    """The Scale of a workload."""
    labels = section(obj, "spec", "selector").get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            key: meta(obj)[key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in meta(obj)
        },
        "spec": {"replicas": section(obj, "spec").get("replicas", 0)},
        "status": {
            "replicas": section(obj, "status").get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


async def set_scale(registry: Registry, request: Request, change: Any) -> Json:
    """PUT or PATCH of a Scale.

    Args:
        registry: The resources.
        request: What the client sent.
        change: From the Scale as it is to the wanted one.

    Raises:
        StatusError: 400, replicas is no whole number.
    """

    def resize(old: Json) -> Json:
        scale = to_typed(change(scale_of(old)), "V1Scale", "Scale", request.call)
        replicas = section(scale, "spec").get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            raise bad_request("spec.replicas: must be a whole number of at least 0")
        new: Json = deep_copy(old)
        new["spec"]["replicas"] = replicas
        return new

    updated = await registry.update(
        request.call, request.kind, request.namespace, request.path.name, resize
    )
    return scale_of(updated)


def finalize_namespace(registry: Registry, request: Request) -> Json:
    """PUT namespaces/NAME/finalize: replaces the namespace's own finalizers.

    Raises:
        StatusError: 404 or 409.
    """
    body = request.body()
    old = registry.get(request.kind, "", request.path.name)
    new: Json = deep_copy(old)
    wanted = section(body if isinstance(body, dict) else {}, "spec").get("finalizers") or []
    new["spec"] = {"finalizers": [str(item) for item in wanted]} if wanted else {}
    try:
        return registry.mark(request.kind, new, old)
    except RevisionConflictError as error:
        raise conflict(request.kind, request.path.name) from error
