"""Odd requests about runtime classes, and the pods that name one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.support.replay import Step, Story

CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
PODS: Final = "/api/v1/namespaces/classes/pods"
DRY: Final = f"{PODS}?dryRun=All"


def _class(name: str = "odd-gpu", **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
        "handler": "nvidia", **changes,
    }  # fmt: skip


def _pod(**changes: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app:1"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [container], "serviceAccountName": "default", **changes},
    }  # fmt: skip


def stories() -> Iterator[Story]:
    """All of them."""
    yield Story(name="classes", steps=tuple(_classes()))


def _classes() -> Iterator[Step]:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "classes"}}
    yield Step(method="POST", path="/api/v1/namespaces", body=space, silent=True)
    bad: tuple[dict[str, Any], ...] = (
        {"handler": ""},
        {"handler": "Upper_Case"},
        {"overhead": {"podFixed": {"cpu": "-1"}}},
        {"overhead": {"podFixed": {"cpu": "much"}}},
        {"scheduling": {"nodeSelector": {"a": "b c"}}},
        {"scheduling": {"tolerations": [{"key": "a", "operator": "Like"}]}},
    )
    for changes in bad:
        yield Step(method="POST", path=f"{CLASSES}?dryRun=All", body=_class(**changes))
    yield Step(method="POST", path=CLASSES, body=_class())
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    scheduling = {"nodeSelector": {"gpu": "h100"}, "tolerations": [toleration]}
    heavy = _class("odd-heavy", overhead={"podFixed": {"cpu": "250m"}}, scheduling=scheduling)
    yield Step(method="POST", path=CLASSES, body=heavy)
    specs: tuple[dict[str, Any], ...] = (
        {"runtimeClassName": "odd-nobody"},
        {"runtimeClassName": "Odd_Name"},
        {"runtimeClassName": ""},
        {"runtimeClassName": "odd-gpu"},
        {"runtimeClassName": "odd-gpu", "overhead": {"cpu": "1"}},
        {"overhead": {"cpu": "1"}},
        {"runtimeClassName": "odd-heavy"},
        {"runtimeClassName": "odd-heavy", "overhead": {"cpu": "0.25"}},
        {"runtimeClassName": "odd-heavy", "overhead": {"cpu": "1"}},
        {"runtimeClassName": "odd-heavy", "nodeSelector": {"gpu": "h100", "zone": "a"}},
        {"runtimeClassName": "odd-heavy", "nodeSelector": {"gpu": "a100"}},
        {"runtimeClassName": "odd-heavy", "tolerations": [toleration]},
        {"runtimeClassName": "odd-heavy", "tolerations": [{"operator": "Exists"}]},
    )
    for spec in specs:
        yield Step(method="POST", path=DRY, body=_pod(**spec))
    one = f"{CLASSES}/odd-gpu"
    merge = "application/merge-patch+json"
    yield Step(method="PATCH", path=one, media=merge, body={"handler": "other"})
    yield Step(method="PATCH", path=one, media=merge, body={"overhead": {"podFixed": {"cpu": "1"}}})
    yield Step(method="DELETE", path=one)
    yield Step(method="DELETE", path=f"{CLASSES}/odd-heavy", silent=True)
