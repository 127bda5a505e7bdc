"""Values that the API server fills in when it decodes an object (pure; changes its argument).

Source: ``zz_generated.defaults.go`` and ``defaults.go`` of k8s.io/kubernetes/pkg/apis/*/v1.
Defaults are applied before admission and again after each webhook's patch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from embedded.apiserver.objects import Json, entries, own_meta, section

_MODE: Final = 0o644


def _set(obj: Json, **values: object) -> None:
    for key, value in values.items():
        obj.setdefault(key, value)


def _child(obj: Json, key: str) -> Json:
    found = obj.get(key)
    if not isinstance(found, dict):
        found = obj[key] = {}
    return found


def _probe(probe: Json) -> None:
    _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        _set(probe["httpGet"], path="/", scheme="HTTP")


def _pull_policy(image: str) -> str:
    tail = image.rsplit("/", 1)[-1]
    pinned = "@" in tail or (":" in tail and not tail.endswith(":latest"))
    return "IfNotPresent" if pinned else "Always"


def _container(container: Json) -> None:
    if container.get("image"):
        _set(container, imagePullPolicy=_pull_policy(str(container["image"])))
    _set(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    for port in entries(container, "ports"):
        _set(port, protocol="TCP")
    for variable in entries(container, "env"):
        reference = section(variable, "valueFrom", "fieldRef")
        if reference:
            _set(reference, apiVersion="v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])


def _volume(volume: Json) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            _set(volume[source], defaultMode=_MODE)
    if "hostPath" in volume:
        _set(volume["hostPath"], type="")
    for projection in entries(volume, "projected", "sources"):
        if "serviceAccountToken" in projection:
            _set(projection["serviceAccountToken"], expirationSeconds=3600)


def pod_spec(spec: Json) -> None:
    """Defaults of a pod spec, in a pod or a template."""
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in entries(spec, group):
            _container(container)
    for volume in entries(spec, "volumes"):
        _volume(volume)
    for name in ("restartPolicy", "dnsPolicy", "schedulerName"):
        if spec.get(name) == "":
            del spec[name]
    _set(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _pod(pod: Json) -> None:
    spec = _child(pod, "spec")
    pod_spec(spec)
    _set(spec, enableServiceLinks=True)
    shared = {
        name: amount
        for name, amount in section(spec, "resources", "limits").items()
        if name in {"cpu", "memory"} or name.startswith("hugepages-")
    }
    if shared:
        _set(_child(spec["resources"], "requests"), **shared)
    for group in ("initContainers", "containers"):
        for container in entries(spec, group):
            limits = section(container, "resources", "limits")
            if limits:
                requests = _child(container["resources"], "requests")
                _set(requests, **limits)
    if spec.get("hostNetwork"):
        for container in entries(spec, "containers"):
            for port in entries(container, "ports"):
                if "containerPort" in port:
                    _set(port, hostPort=port["containerPort"])


def _event(event: Json) -> None:
    """What Go writes although it is empty."""
    _set(event, source={}, firstTimestamp=None, lastTimestamp=None, eventTime=None)
    _set(event, reportingComponent="", reportingInstance="")


_NODE_FACTS: Final = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
    "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


def _node(node: Json) -> None:
    """Structs that Go writes although they are empty."""
    _set(node, spec={}, status={})
    status = node["status"]
    _set(status, daemonEndpoints={"kubeletEndpoint": {"Port": 0}}, nodeInfo={})
    _set(status["nodeInfo"], **dict.fromkeys(_NODE_FACTS, ""))
    for condition in entries(status, "conditions"):
        _set(condition, lastHeartbeatTime=None, lastTransitionTime=None)


def _template(holder: Json) -> None:
    template = holder.get("template")
    if isinstance(template, dict):
        pod_spec(_child(template, "spec"))


def _deployment(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = _child(spec, "strategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_child(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    _template(spec)


def _replicas(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(spec, replicas=1)
    _template(spec)


def _stateful_set(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    strategy = _child(spec, "updateStrategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_child(strategy, "rollingUpdate"), partition=0)
    _template(spec)


def _daemon_set(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(spec, revisionHistoryLimit=10)
    strategy = _child(spec, "updateStrategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_child(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    _template(spec)


def _job_spec(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _set(
        spec,
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="TerminatingOrFailed",
    )
    _template(spec)


def _job(obj: Json) -> None:
    _job_spec(_child(obj, "spec"))


def _cron_job(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(
        spec,
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    )
    _template(section(spec, "jobTemplate", "spec"))


def _service(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(spec, type="ClusterIP", sessionAffinity="None")
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster")
    for port in entries(spec, "ports"):
        _set(port, protocol="TCP")
        if "port" in port:
            _set(port, targetPort=port["port"])


def _secret(obj: Json) -> None:
    _set(obj, type="Opaque")
    written = obj.pop("stringData", None)
    if written:
        data = _child(obj, "data")
        for key, value in written.items():
            data[key] = base64.b64encode(str(value).encode()).decode()


def _namespace(obj: Json) -> None:
    name = own_meta(obj).get("name")
    if name:
        # The label is the API server's own; whatever a client says is overwritten.
        _child(own_meta(obj), "labels")["kubernetes.io/metadata.name"] = name


def _webhooks(obj: Json) -> None:
    mutating = obj.get("kind") == "MutatingWebhookConfiguration"
    for webhook in entries(obj, "webhooks"):
        _set(
            webhook,
            failurePolicy="Fail",
            matchPolicy="Equivalent",
            namespaceSelector={},
            objectSelector={},
            timeoutSeconds=10,
        )
        if mutating:
            _set(webhook, reinvocationPolicy="Never")
        for rule in entries(webhook, "rules"):
            _set(rule, scope="*")
        service = section(webhook, "clientConfig", "service")
        if service:
            _set(service, port=443)


def _match_resources(match: Json) -> None:
    _set(match, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for group in ("resourceRules", "excludeResourceRules"):
        for rule in entries(match, group):
            _set(rule, scope="*")


def _policy(obj: Json) -> None:
    spec = _child(obj, "spec")
    _set(spec, failurePolicy="Fail")
    if "matchConstraints" in spec:
        _match_resources(spec["matchConstraints"])


def _policy_binding(obj: Json) -> None:
    match = section(obj, "spec", "matchResources")
    if match:
        _match_resources(match)


def _definition(obj: Json) -> None:
    spec = _child(obj, "spec")
    names = _child(spec, "names")
    kind = str(names.get("kind") or "")
    if kind:
        _set(names, singular=kind.lower(), listKind=f"{kind}List")
    _set(_child(spec, "conversion"), strategy="None")


def _priority_class(obj: Json) -> None:
    _set(obj, preemptionPolicy="PreemptLowerPriority")


_BY_KIND: Final[dict[str, Callable[[Json], None]]] = {
    "Pod": _pod,
    "Node": _node,
    "Event": _event,
    "PodTemplate": _template,
    "ReplicationController": _replicas,
    "Deployment": _deployment,
    "ReplicaSet": _replicas,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "CronJob": _cron_job,
    "Service": _service,
    "Secret": _secret,
    "Namespace": _namespace,
    "MutatingWebhookConfiguration": _webhooks,
    "ValidatingWebhookConfiguration": _webhooks,
    "ValidatingAdmissionPolicy": _policy,
    "ValidatingAdmissionPolicyBinding": _policy_binding,
    "CustomResourceDefinition": _definition,
    "PriorityClass": _priority_class,
}


def fill(obj: Json) -> None:
    """Fill in the defaults of an object of a built-in kind."""
    filler = _BY_KIND.get(str(obj.get("kind")))
    if filler is not None:
        filler(obj)
