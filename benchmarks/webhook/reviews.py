"""The reviews that are timed: what an API server sends for seven kinds of pod.

Pods look as the API server's defaulting leaves them, so that a server that decodes into types and
writes back has nothing to change that the policy did not ask for.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

NAMESPACE: Final = "team-0"
UID: Final = "00000000-0000-4000-8000-000000000000"
"""Stands in the bodies for the request's uid; the load generator writes another each time."""
_SUFFIX: Final = "x7k2p"
"""End of the name of the token's volume; the API server makes up another one for each pod."""
_SERIAL: Final = "no-two-alike"
"""Stands in pods that differ from each other for what differs."""
_FEW_VARIABLES: Final = 4
_MANY_VARIABLES: Final = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewInput:
    """One body, and what it is for."""

    name: str
    body: bytes
    meaning: str
    """For the table."""
    marks: tuple[str, ...] = ()
    """Texts in the body that the load generator replaces by others in each request."""

    @property
    def pod(self) -> dict[str, Any] | None:
        """The pod that it holds; None where it holds none."""
        try:
            decoded = json.loads(self.body)
        except json.JSONDecodeError:
            return None
        pod: dict[str, Any] = decoded["request"]["object"]
        return pod


def inputs() -> tuple[ReviewInput, ...]:
    """All reviews of the benchmark, the typical one first.

    Pods of one workload come in a row, and differ as its pods do that are made within a second: in
    the uid of the review and in the name of the token's volume. Those of ``unlike`` have no twin,
    but ask for GPUs as others do. Those of ``novel`` have new names of containers each, on which
    verdicts depend, so no server can gain by remembering anything.
    """
    typical = _typical(_FEW_VARIABLES)
    unlike = deepcopy(typical)
    unlike["metadata"]["annotations"]["example.com/serial"] = _SERIAL
    novel = _renamed(typical)
    foreign = _without_gpus(typical)
    many = _typical(_MANY_VARIABLES)
    denied = deepcopy(typical)
    denied["spec"]["containers"][1]["securityContext"] = {"privileged": True}
    listed = (
        ("typical", typical, "three containers, two of them with a GPU, managedFields"),
        ("unlike", unlike, "the same, but no pod is like another"),
        ("novel", novel, "the same, but no pod asks like another"),
        ("foreign", foreign, "the same pod without a GPU: allowed, no patch"),
        ("small", _small(), "one container, no managedFields"),
        ("env1500", many, "1,500 variables"),
        ("denied", denied, "a privileged container beside a share"),
    )
    made = [
        ReviewInput(name=name, body=review(pod), meaning=meaning, marks=(_SUFFIX, _SERIAL))
        for name, pod, meaning in listed
    ]
    broken = made[0].body[: len(made[0].body) // 2]
    made.append(ReviewInput(name="malformed", body=broken, meaning="half of a review"))
    return tuple(made)


def review(pod: dict[str, Any], namespace: str = NAMESPACE) -> bytes:
    """The API server's question about a pod that is created, in its compact JSON."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    account = "system:serviceaccount:kube-system:replicaset-controller"
    asked = {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": account,
                "uid": "5c1b4e3e-0d0c-4f0e-9a39-7d1f0c6a5e11",
                "groups": [
                    "system:serviceaccounts",
                    "system:serviceaccounts:kube-system",
                    "system:authenticated",
                ],
            },
            "object": pod | {"metadata": pod["metadata"] | {"namespace": namespace}},
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
    return json.dumps(asked, separators=(",", ":")).encode()


def _typical(variables: int) -> dict[str, Any]:
    main = _container("trainer", _variables(variables) | {"NVIDIA_VISIBLE_DEVICES": "all"})
    main["resources"] = {
        "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"},
    }
    main["volumeMounts"] += [
        {"name": "data", "mountPath": "/data"},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  a mount path of the pod
    ]
    main["livenessProbe"] = _probe("/healthz", delay_s=30)
    main["readinessProbe"] = _probe("/readyz", delay_s=5)
    evaluator = _container("evaluator", _variables(_FEW_VARIABLES))
    evaluator["resources"] = {
        "limits": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    evaluator["securityContext"] = _restricted()
    exporter = _container("metrics", {"PORT": "9400"})
    exporter["resources"] = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    exporter["securityContext"] = _restricted()
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "training-data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        {"name": "settings", "configMap": {"name": "settings", "defaultMode": 420}},
    ]
    pod = _pod([main, evaluator, exporter], volumes)
    pod["metadata"]["annotations"] = {
        "evaluator.gpu.sharing/fraction": "1/8",
        "prometheus.io/scrape": "true",
        "checksum/settings": "9f2c4d8e71b0a3f5c6d7e8f90112233445566778899aabbccddeeff001122334",
    }
    pod["metadata"]["managedFields"] = [_managed(pod)]
    return pod


def _without_gpus(pod: dict[str, Any]) -> dict[str, Any]:
    plain = deepcopy(pod)
    del plain["metadata"]["annotations"]["evaluator.gpu.sharing/fraction"]
    for container in plain["spec"]["containers"]:
        for amounts in container["resources"].values():
            amounts.pop("nvidia.com/gpu", None)
    return plain


def _renamed(pod: dict[str, Any]) -> dict[str, Any]:
    """The same with names of containers that no other pod has."""
    renamed = deepcopy(pod)
    annotations = renamed["metadata"]["annotations"]
    for container in renamed["spec"]["containers"]:
        old, new = container["name"], f"{container['name']}-{_SERIAL}"
        container["name"] = new
        key = f"{old}.gpu.sharing/fraction"
        if key in annotations:
            annotations[f"{new}.gpu.sharing/fraction"] = annotations.pop(key)
    renamed["metadata"]["managedFields"] = [_managed(renamed)]
    return renamed


def _small() -> dict[str, Any]:
    main = _container("main", _variables(_FEW_VARIABLES))
    main["resources"] = {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"nvidia.com/gpu": "1"},
    }
    return _pod([main], [])


def _pod(containers: list[dict[str, Any]], volumes: list[dict[str, Any]]) -> dict[str, Any]:
    token = {
        "name": f"kube-api-access-{_SUFFIX}",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {
                                    "apiVersion": "v1",
                                    "fieldPath": "metadata.namespace",
                                },
                            }
                        ]
                    }
                },
            ],
            "defaultMode": 420,
        },
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "trainer-6d4b75cb6d-",
            "labels": {"app": "trainer", "pod-template-hash": "6d4b75cb6d", "team": "research"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "trainer-6d4b75cb6d",
                    "uid": "0c5e9b2b-6f4e-4b0e-8a57-3f1d2c9b7a44",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "volumes": [*volumes, token],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "trainer",
            "serviceAccount": "trainer",
            "securityContext": {"fsGroup": 2000},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{condition}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for condition in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def _container(name: str, variables: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example.com/research/{name}:2.4.1",
        "command": ["python", "-m", f"research.{name}"],
        "args": ["--config", "/etc/settings/run.yaml", "--checkpoint-every", "15m"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {},
        "volumeMounts": [
            {
                "name": f"kube-api-access-{_SUFFIX}",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _variables(count: int) -> dict[str, str]:
    return {
        f"SETTING_{index:04}": f"https://settings.example.com/{index:04}/value"
        for index in range(count)
    }


def _restricted() -> dict[str, Any]:
    return {
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
    }


def _probe(path: str, *, delay_s: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "initialDelaySeconds": delay_s,
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def _managed(pod: dict[str, Any]) -> dict[str, Any]:
    """What server-side apply keeps about who wrote which field; a few kilobytes in practice."""
    fields: dict[str, Any] = {
        f"f:{key}": {} for key in pod["spec"] if key not in ("containers", "volumes")
    }
    fields["f:containers"] = {
        f'k:{{"name":"{container["name"]}"}}': {
            ".": {},
            **{f"f:{key}": _owned(value) for key, value in container.items()},
        }
        for container in pod["spec"]["containers"]
    }
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-08-20T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": fields},
    }


def _owned(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return {".": {}, **{f"f:{key}": _owned(inner) for key, inner in value.items()}}
    if isinstance(value, list) and value and isinstance(value[0], dict) and "name" in value[0]:
        return {
            ".": {},
            **{
                f'k:{{"name":"{one["name"]}"}}': {".": {}, "f:name": {}}
                for one in value[:_FEW_VARIABLES]
            },
        }
    return {}
