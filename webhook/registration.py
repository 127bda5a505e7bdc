"""How the API server is told to ask us: the MutatingWebhookConfiguration (pure).

Reviews are sent only for what names a GPU resource or one of our keys, another sharing system's
(``webhook.foreign``) or nearly ours (``webhook.nearmiss``), so that our absence makes nothing else
wait. Kubelets' own pods and system namespaces are never sent.

Kinds of other projects keep their pod templates in places that no condition can name for all of
them, so objects of kinds that an operator lists are sent whatever they hold, and pass while the
webhook is away: it only speaks about them early, their pods are reviewed in any case.

Source: Kubernetes API reference, ``admissionregistration.k8s.io/v1``; the expressions use CEL's
optional access throughout, which Kubernetes has since 1.28, and cannot fail.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from webhook.nearmiss import DOMAINS, RESOURCES

NAME: Final = "gpu-sharing"
SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease", "gpu-sharing")
TIMEOUT_S: Final = 5
_WORKLOADS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("apps", ("deployments", "statefulsets", "daemonsets", "replicasets")),
    ("batch", ("jobs", "cronjobs")),
    ("", ("replicationcontrollers", "podtemplates")),
)
TEMPLATE_SYSTEMS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "argo": {"argoproj.io": ("rollouts",)},
    "jobset": {"jobset.x-k8s.io": ("jobsets",)},
    "kubeflow": {
        "kubeflow.org": (
            "pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs",
        ),
    },
    "leaderworkerset": {"leaderworkerset.x-k8s.io": ("leaderworkersets",)},
    "ray": {"ray.io": ("rayclusters", "rayjobs", "rayservices")},
}  # fmt: skip
"""Other projects whose kinds hold pod templates at places that we know (``workload``): resources
by API group."""

_NOT_A_KUBELET: Final = '!("system:nodes" in request.?userInfo.?groups.orValue([]))'
_NAMES_A_GPU: Final = """
{o}.?metadata.?annotations.orValue({{}}).exists(k,
  k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/")
  || k in ["gpu-fraction", "gpu-memory"] || k.startsWith("nvidia.cdi.k8s.io/")
  || k.matches("{domains}"))
|| {o}.?metadata.?labels.orValue({{}}).exists(k, {ours})
|| ({o}.?spec.?containers.orValue([]) + {o}.?spec.?initContainers.orValue([])).exists(c,
  [c.?resources.?limits.orValue({{}}), c.?resources.?requests.orValue({{}})].exists(m, m.exists(k,
    k.startsWith("nvidia.com/gpu") || k.startsWith("nvidia.com/mig-")
    || k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/")
    || k.startsWith("aliyun.com/gpu-") || k.startsWith("volcano.sh/vgpu-")
    || k.matches("{resources}") || k.matches("{domains}"))))
""".strip()
_OURS: Final = 'k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/")'
_PODS: Final = _NAMES_A_GPU.format(o="object", domains=DOMAINS, resources=RESOURCES, ours=_OURS)
_TEMPLATE: Final = _NAMES_A_GPU.format(o="t", domains=DOMAINS, resources=RESOURCES, ours=_OURS)
_TEMPLATES: Final = (
    "[object.?spec.?template, object.?spec.?jobTemplate.?spec.?template, object.?template]"
    f".exists(t, t.hasValue() && ({_TEMPLATE}))"
    " || [object.?metadata, object.?spec.?jobTemplate.?metadata]"
    f".exists(m, m.?annotations.orValue({{}}).exists(k, {_OURS}))"
)
"""Keys above a template too: they were meant for its pods, and their author is told."""


def client_by_url(url: str, ca_pem: bytes) -> dict[str, Any]:
    """How the webhook is reached at an address of its own."""
    return {"url": url, "caBundle": base64.b64encode(ca_pem).decode()}


def client_by_service(namespace: str, name: str, path: str, port: int = 443) -> dict[str, Any]:
    """How the webhook is reached through a Service; ``caBundle`` is set by the rotation."""
    return {"service": {"namespace": namespace, "name": name, "path": path, "port": port}}


def template_rules(
    known: Iterable[str] = (), others: Iterable[tuple[str, str]] = ()
) -> list[dict[str, Any]]:
    """Rules for objects of other projects that hold pod templates, one for each API group.

    Args:
        known: Projects that we know, out of ``TEMPLATE_SYSTEMS``.
        others: Further kinds, as API group and plural; where they keep their templates is said by
            a list of paths (``templatepaths``).
    """
    listed: dict[str, list[str]] = {}
    for system in known:
        for group, resources in TEMPLATE_SYSTEMS[system].items():
            listed.setdefault(group, []).extend(resources)
    for group, resource in others:
        listed.setdefault(group, []).append(resource)
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "resources": list(dict.fromkeys(listed[group])),
            "operations": ["CREATE", "UPDATE"],
            "scope": "Namespaced",
        }
        for group in sorted(listed)
    ]


def configuration(
    client: Mapping[str, Any],
    *,
    exempt: Sequence[str] = SYSTEM_NAMESPACES,
    hide_gpus: bool = False,
    templates: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The whole configuration.

    Args:
        client: ``client_by_url`` or ``client_by_service``.
        exempt: Namespaces whose pods are never sent, by name: a label could be set by tenants.
        hide_gpus: Send the pods of governed namespaces that name no GPU too, so that profiles
            with ``hideGPUs`` reach them; then those pods wait while the webhook is away.
        templates: Rules for kinds of other projects (``template_rules``).
    """
    not_system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(exempt)}
    common = {
        "admissionReviewVersions": ["v1"],
        "clientConfig": dict(client),
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
    }
    workloads = [
        {"apiGroups": [group], "apiVersions": ["v1"], "resources": list(resources),
         "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"}
        for group, resources in _WORKLOADS
    ]  # fmt: skip
    pods = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
             "operations": ["CREATE"], "scope": "Namespaced"}]  # fmt: skip
    debug = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/ephemeralcontainers"],
              "operations": ["UPDATE"], "scope": "Namespaced"}]  # fmt: skip
    selector = {"matchExpressions": [not_system]}
    entries = [
        _entry("pods", common, rules=pods, selector=selector, condition=_PODS),
        _entry("workloads", common, rules=workloads, selector=selector, condition=_TEMPLATES),
        _entry("debug", common, rules=debug, selector=selector, condition=_PODS),
    ]
    if hide_gpus:
        governed = [not_system, {"key": "gpu.sharing/profile", "operator": "Exists"}]
        rest = {"matchExpressions": governed}
        entries.append(_entry("hide", common, rules=pods, selector=rest, condition=f"!({_PODS})"))
    rules = list(templates)
    if rules:
        lenient = {**common, "failurePolicy": "Ignore"}
        entries.append(_entry("templates", lenient, rules=rules, selector=selector))
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": NAME}},
        "webhooks": entries,
    }


def _entry(
    name: str,
    common: Mapping[str, Any],
    *,
    rules: Sequence[Mapping[str, Any]],
    selector: Mapping[str, Any],
    condition: str = "",
) -> dict[str, Any]:
    conditions = [{"name": "not-a-kubelet", "expression": _NOT_A_KUBELET}]
    if condition:
        conditions.append({"name": "concerns-gpus", "expression": " ".join(condition.split())})
    return {
        "name": f"{name}.gpu.sharing", **common, "namespaceSelector": dict(selector),
        "rules": list(rules), "matchConditions": conditions,
    }  # fmt: skip
