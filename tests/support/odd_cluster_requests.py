"""Odd requests about what our programs write besides pods: nodes, leases, events, registrations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.support.replay import Step, Story

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
NODES: Final = "/api/v1/nodes"
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
COORDINATION: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS: Final = "/api/v1/namespaces/default/events"


def stories() -> Iterator[Story]:
    """All of them."""
    yield Story(name="nodes", steps=tuple(_nodes()))
    yield Story(name="leases", steps=tuple(_leases()))
    yield Story(name="events", steps=tuple(_events()))
    yield Story(name="registrations", steps=tuple(_registrations()))


def _nodes() -> Iterator[Step]:
    one, milli = f"{NODES}/odd-node", "gpu.sharing/milli-gpu"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "odd-node"}}

    def status(amounts: Any, *, media: str = STRATEGIC) -> Step:
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        return Step(method="PATCH", path=f"{one}/status", media=media, body=body)

    yield Step(method="POST", path=NODES, body=node)
    yield status({milli: "8000"})
    yield status({milli: "0.5"})
    yield status({milli: "-1"})
    yield status({milli: "many"})
    yield status({milli: None})
    yield status({"gpu.sharing/mps-1of4": "4", "cpu": "1500m"})
    yield Step(
        method="PATCH",
        path=f"{one}/status",
        media=STRATEGIC,
        body={"status": {"conditions": [{"type": "GPUHealthy", "status": "True"}]}},
    )
    yield Step(
        method="PATCH",
        path=f"{one}/status",
        media=STRATEGIC,
        body={"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    )
    yield Step(
        method="PATCH",
        path=f"{one}/status",
        media=STRATEGIC,
        body={"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}},
    )
    yield Step(
        method="PATCH",
        path=one,
        media=MERGE,
        body={"metadata": {"labels": {"gpu.sharing/modes": "mig_mps", "x" * 64: "y"}}},
    )
    yield Step(
        method="PATCH",
        path=one,
        media=MERGE,
        body={"metadata": {"labels": {"gpu.sharing/modes": "mig mps"}}},
    )
    yield Step(
        method="PATCH",
        path=one,
        media=MERGE,
        body={"metadata": {"labels": {"gpu.sharing/modes": "mig_mps"}}},
    )
    yield Step(method="PATCH", path=one, media=MERGE, body={"status": {"capacity": {milli: "1"}}})
    yield Step(
        method="PATCH",
        path=one,
        media=MERGE,
        body={"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}},
    )
    yield Step(
        method="PATCH",
        path=one,
        media=STRATEGIC,
        body={"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    )
    yield Step(method="GET", path=f"{NODES}?fieldSelector=spec.unschedulable%3Dfalse")
    yield Step(method="DELETE", path=one)
    yield Step(method="PATCH", path=f"{one}/status", media=STRATEGIC, body={})


def _leases() -> Iterator[Step]:
    one = f"{COORDINATION}/odd"
    lease = {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "odd"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }  # fmt: skip
    yield Step(
        method="POST", path=COORDINATION, body={**lease, "spec": {"leaseDurationSeconds": 0}}
    )
    yield Step(
        method="POST", path=COORDINATION, body=lease, keep={"rv": "metadata.resourceVersion"}
    )
    yield Step(method="PUT", path=one, body=lease)
    yield Step(
        method="PUT",
        path=one,
        body={
            **lease,
            "metadata": {"name": "odd", "resourceVersion": "$rv"},
            "spec": {"holderIdentity": "b"},
        },
    )
    yield Step(
        method="PUT",
        path=one,
        body={**lease, "metadata": {"name": "odd", "resourceVersion": "$rv"}},
    )
    yield Step(method="PATCH", path=one, media=MERGE, body={"spec": {"leaseTransitions": -1}})
    yield Step(method="DELETE", path=one)


def _events() -> Iterator[Step]:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "odd.1"},
        "involvedObject": about, "reason": "Odd", "message": "m", "type": "Warning",
    }  # fmt: skip
    yield Step(method="POST", path=EVENTS, body=event)
    yield Step(
        method="POST",
        path=EVENTS,
        body={
            **event,
            "metadata": {"name": "odd.2"},
            "involvedObject": {**about, "namespace": "elsewhere"},
        },
    )
    yield Step(
        method="POST",
        path=EVENTS,
        body={
            **event,
            "metadata": {"name": "odd.3"},
            "involvedObject": {"kind": "Node", "name": "n"},
        },
    )
    yield Step(method="PATCH", path=f"{EVENTS}/odd.1", media=MERGE, body={"count": 2})
    yield Step(method="GET", path=f"{EVENTS}?fieldSelector=involvedObject.name%3Dp,reason%3DOdd")
    yield Step(method="DELETE", path=f"{EVENTS}/odd.1")
    yield Step(method="DELETE", path=f"{EVENTS}/odd.3")


def _hook(**changes: Any) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"]}  # fmt: skip
    hook = {
        "name": "odd.example.com", "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "clientConfig": {"url": "https://127.0.0.1:1/mutate"},
        "namespaceSelector": {"matchLabels": {"odd": "true"}}, **changes,
    }  # fmt: skip
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "odd"}, "webhooks": [hook],
    }  # fmt: skip


def _registrations() -> Iterator[Step]:
    changes: tuple[dict[str, Any], ...] = (
        {"name": "odd"},
        {"sideEffects": "Some"},
        {"sideEffects": None},
        {"admissionReviewVersions": []},
        {"admissionReviewVersions": ["v2"]},
        {"timeoutSeconds": 31},
        {"timeoutSeconds": 0},
        {"failurePolicy": "Perhaps"},
        {"matchPolicy": "Roughly"},
        {"reinvocationPolicy": "Always"},
        {"clientConfig": {}},
        {"clientConfig": {"url": "http://127.0.0.1/mutate"}},
        {"clientConfig": {"url": "https://127.0.0.1/", "service": {"name": "s", "namespace": "n"}}},
        {"clientConfig": {"service": {"name": "s"}}},
        {"clientConfig": {"url": "https://127.0.0.1/", "caBundle": "bm90IGEgY2VydA=="}},
        {"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}]},
        {"rules": [{"operations": ["MAKE"], "apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["pods"]}]},
        {"matchConditions": [{"name": "a", "expression": "object.x +"}]},
        {"matchConditions": [{"name": "a", "expression": "true"},
                             {"name": "a", "expression": "true"}]},
        {"matchConditions": [{"name": "", "expression": "true"}]},
        {"matchConditions": [{"name": "a", "expression": ""}]},
        {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
    )  # fmt: skip
    for bad in changes:
        yield Step(method="POST", path=f"{HOOKS}?dryRun=All", body=_hook(**bad))
    yield Step(method="POST", path=HOOKS, body=_hook())
    yield Step(method="DELETE", path=f"{HOOKS}/odd")
