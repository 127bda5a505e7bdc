"""Odd requests to an API server: what programs get wrong, and what servers answer then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.support import odd_class_requests, odd_cluster_requests
from tests.support.replay import Step, Story

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
CORE: Final = "/api/v1"
PROFILES: Final = "/apis/gpu.sharing/v1alpha1/sharingprofiles"
LAYOUTS: Final = "/apis/gpu.sharing/v1alpha1/gpulayouts"
NODES: Final = "/apis/gpu.sharing/v1alpha1/gpunodes"


def pod(name: str = "p", **changes: Any) -> dict[str, Any]:
    """A pod with one container; changes go over its spec.

    It names its service account: the plugin that fills it in is off where nothing makes one.
    """
    container = {"name": "main", "image": "registry.example/app:1"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [container], "serviceAccountName": "default", **changes},
    }  # fmt: skip


def asking(**resources: Any) -> dict[str, Any]:
    """A pod whose container has these resources."""
    container = {"name": "main", "image": "registry.example/app:1", "resources": resources}
    return pod(containers=[container])


def custom(kind: str, name: str, spec: Any, **more: Any) -> dict[str, Any]:
    """An object of ours."""
    return {
        "apiVersion": "gpu.sharing/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": spec, **more,
    }  # fmt: skip


def config_map(name: str = "c", **metadata: Any) -> dict[str, Any]:
    """A plain object."""
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata},
        "data": {"a": "1"},
    }  # fmt: skip


def _story(name: str, *steps: Step) -> Story:
    """In a namespace of its own, which is called as the story is."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    first = Step(method="POST", path=f"{CORE}/namespaces", body=space, silent=True)
    return Story(name=name, steps=(first, *steps))


def stories() -> Iterator[Story]:
    """All of them."""
    yield from _objects()
    yield from _patches()
    yield from _pods()
    yield from _lists()
    yield from _watches()
    yield from _applies()
    yield from _customs()
    yield from _ends()
    yield from odd_cluster_requests.stories()
    yield from odd_class_requests.stories()


def _objects() -> Iterator[Story]:
    maps = f"{CORE}/namespaces/objects/configmaps"
    yield _story(
        "objects",
        Step(method="POST", path=maps, body=config_map()),
        Step(method="POST", path=maps, body=config_map()),
        Step(method="POST", path=maps, body=config_map("Upper_Case")),
        Step(method="POST", path=maps, body={"kind": "ConfigMap", "apiVersion": "v1"}),
        Step(method="POST", path=maps, body=config_map("d", labels={"a b": "c"})),
        Step(method="POST", path=maps, body=config_map("d", namespace="elsewhere")),
        Step(method="POST", path=maps, body=config_map("d", resourceVersion="1")),
        Step(method="POST", path=maps, body=config_map("d", annotations={"Bad Key": "x"})),
        Step(method="POST", path=maps, body={**config_map("d"), "kind": "Secret", "data": {}}),
        Step(method="POST", path=maps, body={**config_map("d"), "apiVersion": "v2"}),
        Step(method="POST", path=maps, body={**config_map("d"), "data": {"a": 1}}),
        Step(method="POST", path=maps, body="{not json"),
        Step(method="POST", path=maps, body="[]"),
        Step(method="POST", path=maps, body="null"),
        Step(method="POST", path=maps, body=""),
        Step(method="POST", path=maps, body=config_map("d"), media="text/plain"),
        Step(method="POST", path=f"{maps}?dryRun=Some", body=config_map("d")),
        Step(method="POST", path=f"{maps}?dryRun=All", body=config_map("d")),
        Step(method="GET", path=f"{maps}/d"),
        Step(method="POST", path=f"{maps}?fieldValidation=Strict",
             body={**config_map("d"), "dat": {}}),
        Step(method="POST", path=f"{maps}?fieldValidation=Warn&dryRun=All",
             body={**config_map("d"), "dat": {}}),
        Step(method="POST", path=f"{maps}?fieldValidation=Maybe", body=config_map("d")),
        Step(method="GET", path=f"{maps}/c", accept="text/html"),
        Step(method="GET", path=f"{maps}/c", accept="application/json;as=PartialObjectMetadata;"
             "g=meta.k8s.io;v=v1"),
        Step(method="GET", path=f"{CORE}/namespaces/objects/nothings"),
        Step(method="GET", path="/apis/nowhere.example/v1/things"),
        Step(method="PUT", path=maps, body=config_map()),
        Step(method="DELETE", path=f"{maps}/nobody"),
        Step(method="POST", path=f"{CORE}/namespaces/nobody-here/configmaps", body=config_map()),
    )  # fmt: skip
    maps = f"{CORE}/namespaces/conflicts/configmaps"
    yield _story(
        "conflicts",
        Step(method="POST", path=maps, body=config_map(), keep={"rv": "metadata.resourceVersion",
                                                                "uid": "metadata.uid"}),
        Step(method="PUT", path=f"{maps}/c", body=config_map(labels={"a": "1"})),
        Step(method="PUT", path=f"{maps}/c", body=config_map(resourceVersion="$rv")),
        Step(method="PUT", path=f"{maps}/c", body=config_map(resourceVersion="$rv")),
        Step(method="PUT", path=f"{maps}/c", body=config_map(resourceVersion="words")),
        Step(method="PUT", path=f"{maps}/c", body=config_map("other")),
        Step(method="PUT", path=f"{maps}/c", body=config_map(uid="other")),
        Step(method="PUT", path=f"{maps}/nobody", body=config_map("nobody")),
        Step(method="PATCH", path=f"{maps}/c", media=MERGE,
             body={"metadata": {"resourceVersion": "1"}}),
        Step(method="PATCH", path=f"{maps}/c", media=MERGE, body={"metadata": {"uid": "other"}}),
        Step(method="PATCH", path=f"{maps}/c", media=MERGE, body={"metadata": {"name": "other"}}),
        Step(method="DELETE", path=f"{maps}/c", body={"preconditions": {"uid": "other"}}),
        Step(method="DELETE", path=f"{maps}/c", body={"preconditions": {"resourceVersion": "1"}}),
        Step(method="DELETE", path=f"{maps}/c", body={"propagationPolicy": "Sometimes"}),
        Step(method="DELETE", path=f"{maps}/c", body={"preconditions": {"uid": "$uid"}}),
    )  # fmt: skip
    maps = f"{CORE}/namespaces/generated/configmaps"
    generated = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}}
    yield _story(
        "generated",
        Step(method="POST", path=maps, body=generated),
        Step(method="POST", path=maps, body={**generated, "metadata": {"generateName": "G-"}}),
        Step(method="POST", path=f"{maps}?dryRun=All", body=generated),
    )


def _patches() -> Iterator[Story]:
    maps = f"{CORE}/namespaces/patches/configmaps"
    one = f"{maps}/c"
    yield _story(
        "patches",
        Step(method="POST", path=maps, body=config_map(), silent=True),
        Step(method="PATCH", path=one, media="application/json", body={}),
        Step(method="PATCH", path=one, media="text/plain", body="x"),
        Step(method="PATCH", path=one, media=MERGE, body="{"),
        Step(method="PATCH", path=one, media=MERGE, body="[]"),
        Step(method="PATCH", path=one, media=MERGE, body={"data": None}),
        Step(method="PATCH", path=one, media=MERGE, body={"data": {"a": 1}}),
        Step(method="PATCH", path=one, media=MERGE, body={"data": "words"}),
        Step(method="PATCH", path=one, media=MERGE, body={"kind": "Secret"}),
        Step(method="PATCH", path=one, media=MERGE, body={"unknown": 1}),
        Step(method="PATCH", path=one, media=JSON_PATCH, body="{}"),
        Step(method="PATCH", path=one, media=JSON_PATCH,
             body=[{"op": "remove", "path": "/data/z"}]),
        Step(method="PATCH", path=one, media=JSON_PATCH, body=[{"op": "rub", "path": "/data"}]),
        Step(method="PATCH", path=one, media=JSON_PATCH,
             body=[{"op": "test", "path": "/metadata/name", "value": "x"}]),
        Step(method="PATCH", path=one, media=JSON_PATCH,
             body=[{"op": "add", "path": "/data", "value": {"b": "2"}}]),
        Step(method="PATCH", path=one, media=JSON_PATCH,
             body=[{"op": "replace", "path": "/data/zz", "value": "2"}]),
        Step(method="PATCH", path=one, media=STRATEGIC,
             body={"data": {"$patch": "replace", "c": "3"}}),
        Step(method="PATCH", path=one, media=STRATEGIC, body={"$patch": "delete"}),
        Step(method="PATCH", path=f"{one}?fieldValidation=Strict", media=MERGE,
             body={"unknown": 1}),
        Step(method="PATCH", path=f"{maps}/nobody", media=MERGE, body={}),
        Step(method="PATCH", path=f"{one}?dryRun=All", media=MERGE, body={"data": {"dry": "1"}}),
        Step(method="GET", path=one),
    )  # fmt: skip


def _pods() -> Iterator[Story]:
    pods = f"{CORE}/namespaces/resources/pods"
    gpu, share = "nvidia.com/gpu", "gpu.sharing/mps-1of4"
    bodies = [
        asking(limits={gpu: "1"}),
        asking(requests={gpu: "1"}),
        asking(limits={gpu: "2"}, requests={gpu: "1"}),
        asking(limits={gpu: "0.5"}),
        asking(limits={gpu: "250m"}),
        asking(limits={gpu: "-1"}),
        asking(limits={gpu: "one"}),
        asking(limits={gpu: 1}),
        asking(limits={gpu: 1.5}),
        asking(limits={gpu: None}),
        asking(limits={gpu: "1e3"}),
        asking(limits={"gpu": "1"}),
        asking(limits={"requests.nvidia.com/gpu": "1"}),
        asking(limits={"requests.gpu.sharing/mps-1of4": "1"}),
        asking(limits={"gpu.sharing/": "1"}),
        asking(limits={"gpu.sharing/" + "x" * 64: "1"}),
        asking(limits={"UPPER.example/x": "1"}),
        asking(limits={"kubernetes.io/x": "1"}),
        asking(limits={share: "1"}, requests={share: "2"}),
        asking(limits={share: "1"}, requests={}),
        asking(limits={"cpu": "1"}, requests={"cpu": "2"}),
        asking(limits={"hugepages-2Mi": "3Mi"}),
        asking(limits=[]),
        pod(resources={"limits": {gpu: "1"}}),
        pod(resources={"limits": {"cpu": "1"}}),
        pod(initContainers=[{"name": "i", "image": "a", "resources": {"limits": {gpu: "500m"}}}]),
        pod(initContainers=[{"name": "i", "image": "a", "restartPolicy": "Never"}]),
        pod(containers=[]),
        pod(containers=[{"name": "a"}]),
        pod(containers=[{"name": "A_b", "image": "x"}]),
        pod(containers=[{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]),
        pod(containers=[{"name": "a", "image": "x", "env": [{"name": "", "value": "1"}]}]),
        pod(containers=[{"name": "a", "image": "x", "env": [{"name": "A", "value": 1}]}]),
        pod(restartPolicy="Sometimes"),
        pod(nodeName="Not A Node"),
        pod(schedulerName=""),
        pod(tolerations=[{"key": "a", "operator": "Like"}]),
        pod(nodeSelector={"a": "b c"}),
        pod(priorityClassName="nobody"),
        pod(terminationGracePeriodSeconds=-5),
        pod(activeDeadlineSeconds=0),
        pod(volumes=[{"name": "v"}]),
        pod(volumes=[{"name": "v", "hostPath": {"path": "/dev"}, "emptyDir": {}}]),
        pod(ephemeralContainers=[{"name": "e", "image": "x"}]),
    ]
    yield _story(
        "resources",
        *(Step(method="POST", path=f"{pods}?dryRun=All", body=body) for body in bodies),
    )
    pods = f"{CORE}/namespaces/pods/pods"
    one = f"{pods}/p"
    yield _story(
        "pods",
        Step(method="POST", path=pods, body=asking(limits={gpu: "1"})),
        Step(method="PATCH", path=one, media=MERGE, body={"spec": {"nodeName": "n"}}),
        Step(method="PATCH", path=one, media=STRATEGIC,
             body={"spec": {"containers": [{"name": "main", "image": "registry.example/b:1"}]}}),
        Step(method="PATCH", path=one, media=STRATEGIC, body={
            "spec": {"containers": [{"name": "main", "resources": {"limits": {gpu: "2"}}}]}}),
        Step(method="PATCH", path=one, media=MERGE, body={"spec": {"hostname": "h"}}),
        Step(method="PATCH", path=one, media=STRATEGIC,
             body={"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}),
        Step(method="PATCH", path=one, media=MERGE, body={"status": {"phase": "Running"}}),
        Step(method="PATCH", path=f"{one}/status", media=MERGE, body={"status": {"phase": "Odd"}}),
        Step(method="PATCH", path=f"{one}/status", media=MERGE,
             body={"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Running"}}),
        Step(method="PATCH", path=f"{one}/status", media=MERGE,
             body={"spec": {"nodeName": "n"}, "status": {}}),
        Step(method="PATCH", path=f"{one}/ephemeralcontainers", media=STRATEGIC, body={
            "spec": {"ephemeralContainers": [{"name": "e", "image": "x",
                                              "resources": {"limits": {gpu: "1"}}}]}}),
        Step(method="PATCH", path=f"{one}/ephemeralcontainers", media=STRATEGIC, body={
            "spec": {"ephemeralContainers": [{"name": "main", "image": "x"}]}}),
        Step(method="POST", path=f"{one}/binding", body={
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {}}),
        Step(method="POST", path=f"{one}/binding", body={
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"kind": "Pod", "name": "n"}}),
        Step(method="POST", path=f"{one}/binding", body={
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "p", "annotations": {"bound": "1"}},
            "target": {"kind": "Node", "name": "n"}}),
        Step(method="POST", path=f"{one}/binding", body={
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"kind": "Node", "name": "n2"}}),
        Step(method="POST", path=f"{one}/eviction", body={
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}),
        Step(method="GET", path=one),
        Step(method="GET", path=f"{one}/nothing"),
        Step(method="DELETE", path=f"{one}?gracePeriodSeconds=0"),
        Step(method="GET", path=one),
    )  # fmt: skip


def _lists() -> Iterator[Story]:
    maps = f"{CORE}/namespaces/lists/configmaps"
    pods = f"{CORE}/namespaces/lists/pods"
    made = [
        Step(method="POST", path=maps, body=config_map(name, labels={"n": name}), silent=True)
        for name in ("a", "b", "d")
    ]
    yield _story(
        "lists",
        *made,
        Step(method="POST", path=pods, body=pod(nodeName="n1"), silent=True),
        Step(method="GET", path=f"{maps}?limit=2", keep={"token": "metadata.continue"}),
        Step(method="GET", path=f"{maps}?limit=2&continue=$token"),
        Step(method="GET", path=f"{maps}?limit=2&continue=nonsense"),
        Step(method="GET", path=f"{maps}?limit=-1"),
        Step(method="GET", path=f"{maps}?limit=words"),
        Step(method="GET", path=f"{maps}?labelSelector=n%3Da"),
        Step(method="GET", path=f"{maps}?labelSelector=n+in+(a,b)&limit=1"),
        Step(method="GET", path=f"{maps}?labelSelector=%21n"),
        Step(method="GET", path=f"{maps}?labelSelector=a%3D%3D%3Db"),
        Step(method="GET", path=f"{maps}?labelSelector=n+like+a"),
        Step(method="GET", path=f"{maps}?fieldSelector=metadata.name%3Da"),
        Step(method="GET", path=f"{maps}?fieldSelector=metadata.name%21%3Da"),
        Step(method="GET", path=f"{maps}?fieldSelector=data.a%3D1"),
        Step(method="GET", path=f"{maps}?fieldSelector=nonsense"),
        Step(method="GET", path=f"{pods}?fieldSelector=spec.nodeName%3Dn1,status.phase%3DPending"),
        Step(method="GET", path=f"{pods}?fieldSelector=spec.hostname%3Dx"),
        Step(method="GET", path=f"{maps}?resourceVersion=words"),
        Step(method="GET", path=f"{maps}?resourceVersion=0&resourceVersionMatch=Sometimes"),
        Step(method="GET", path=f"{maps}?resourceVersionMatch=Exact"),
        Step(method="GET", path=f"{maps}?resourceVersion=0&resourceVersionMatch=Exact"),
        Step(method="GET", path=f"{maps}?limit=1",
             accept="application/json;as=Table;g=meta.k8s.io;v=v1"),
        Step(method="DELETE", path=f"{maps}?labelSelector=n%3Da"),
        Step(method="GET", path=f"{CORE}/namespaces/nobody-here/configmaps"),
    )  # fmt: skip


def _watches() -> Iterator[Story]:
    maps = f"{CORE}/namespaces/watches/configmaps"
    one = f"{maps}/c"
    selected = f"{maps}?watch=1&timeoutSeconds=5&labelSelector=n%3D1&resourceVersion=$rv"
    yield _story(
        "watches",
        Step(method="POST", path=maps, body=config_map(labels={"n": "0"}),
             keep={"rv": "metadata.resourceVersion"}, silent=True),
        Step(method="PATCH", path=one, media=MERGE, body={"metadata": {"labels": {"n": "1"}}},
             silent=True),
        Step(method="PATCH", path=one, media=MERGE, body={"data": {"b": "2"}}, silent=True),
        Step(method="PATCH", path=one, media=MERGE, body={"metadata": {"labels": {"n": "0"}}},
             silent=True),
        Step(method="DELETE", path=one, silent=True),
        Step(method="GET", path=selected, events=3),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=5&resourceVersion=$rv", events=4),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=1&resourceVersion=words"),
        Step(method="GET", path=f"{maps}?watch=words&timeoutSeconds=1"),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=words"),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=1&sendInitialEvents=true"),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=5&sendInitialEvents=true&"
             "resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", events=1),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=1&labelSelector=a%3D%3D%3Db"),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=1&fieldSelector=data.a%3D1"),
        Step(method="GET", path=f"{maps}?watch=1&timeoutSeconds=1&resourceVersion=$rv&limit=1",
             events=1),
    )  # fmt: skip


def _applies() -> Iterator[Story]:
    maps = f"{CORE}/namespaces/applies/configmaps"
    one = f"{maps}/c"

    def apply(body: Any, query: str = "fieldManager=one") -> Step:
        return Step(method="PATCH", path=f"{one}?{query}", media=APPLY, body=body)

    first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    other = {**first, "data": {"a": "2"}}
    yield _story(
        "applies",
        apply(first, ""),
        apply(first),
        apply(first),
        apply(other, "fieldManager=two"),
        apply(other, "fieldManager=two&force=true"),
        apply({**first, "data": {"b": "1"}}),
        apply({**first, "data": {}}, "fieldManager=two"),
        apply({**first, "metadata": {"name": "other"}}),
        apply({**first, "metadata": {"name": "c", "managedFields": []}}),
        apply({**first, "metadata": {"name": "c", "resourceVersion": "1"}}),
        apply({"kind": "ConfigMap", "metadata": {"name": "c"}}),
        apply({**first, "dat": {}}, "fieldManager=one&fieldValidation=Strict"),
        apply("a: [", "fieldManager=one"),
        Step(method="PATCH", path=f"{one}?force=true", media=MERGE, body={}),
        Step(method="PATCH", path=f"{one}?fieldManager={'x' * 129}", media=MERGE, body={}),
        Step(method="GET", path=one),
    )


def _customs() -> Iterator[Story]:
    layout = custom("GPULayout", "customs", {"gpus": [{"gpus": "all", "mode": "exclusive"}]})
    one = f"{LAYOUTS}/customs"
    node = custom("GPUNode", "customs", {})
    yield Story(
        name="customs",
        steps=(
            Step(method="POST", path=LAYOUTS, body={**layout, "kind": "GPUNode"}),
            Step(method="POST", path=LAYOUTS, body={**layout, "apiVersion": "gpu.sharing/v1"}),
            Step(method="POST", path=LAYOUTS, body={"metadata": {"name": "x"}}),
            Step(method="POST", path=LAYOUTS, body={**layout, "spec": None}),
            Step(method="POST", path=LAYOUTS, body={**layout, "spec": "words"}),
            Step(method="POST", path=LAYOUTS, body="[]"),
            Step(method="POST", path=f"{LAYOUTS}?fieldValidation=Strict",
                 body={**layout, "spec": {"gpus": [], "surprise": 1}}),
            Step(method="POST", path=f"{LAYOUTS}?fieldValidation=Warn&dryRun=All",
                 body={**layout, "spec": {"gpus": [], "surprise": 1}}),
            Step(method="POST", path=LAYOUTS, body={**layout, "status": {"conditions": []}}),
            Step(method="PATCH", path=one, media=STRATEGIC, body={"spec": {}}),
            Step(method="PATCH", path=one, media=MERGE, body={"spec": {"gpus": "words"}}),
            Step(method="PATCH", path=one, media=MERGE, body={"spec": {"gpus": [{}]}}),
            Step(method="PATCH", path=one, media=MERGE, body={"spec": None}),
            Step(method="PATCH", path=one, media=MERGE, body={"kind": "Other"}),
            Step(method="PATCH", path=one, media=MERGE, body={"status": {"observedGeneration": 5}}),
            Step(method="PATCH", path=f"{one}/status", media=MERGE,
                 body={"status": {"observedGeneration": "five"}}),
            Step(method="PATCH", path=f"{one}/status", media=MERGE,
                 body={"spec": {"gpus": []}, "status": {"observedGeneration": 5}}),
            Step(method="PATCH", path=f"{one}/status", media=MERGE, body={
                "status": {"conditions": [{"type": "Ready"}]}}),
            Step(method="PATCH", path=one, media=MERGE, body={"spec": {"priority": 5}}),
            Step(method="PATCH", path=one, media=JSON_PATCH,
                 body=[{"op": "remove", "path": "/spec/gpus/5"}]),
            Step(method="PATCH", path=f"{one}/scale", media=MERGE, body={}),
            Step(method="GET", path=f"{LAYOUTS}?fieldSelector=spec.priority%3D5"),
            Step(method="GET", path=f"{LAYOUTS}?fieldSelector=metadata.name%3Dcustoms",
                 accept="application/json;as=Table;g=meta.k8s.io;v=v1"),
            Step(method="PATCH", path=f"{one}?fieldManager=m", media=APPLY,
                 body={**layout, "kind": "GPUNode"}),
            Step(method="PATCH", path=f"{one}?fieldManager=m", media=APPLY, body=layout),
            Step(method="PUT", path=one, body=layout),
            Step(method="PUT", path=one, body={**layout, "metadata": {"name": "customs",
                                                                      "resourceVersion": "1"}}),
            Step(method="DELETE", path=one),
            Step(method="POST", path=NODES, body=node),
            Step(method="DELETE", path=f"{NODES}/customs"),
            Step(method="DELETE", path=f"{NODES}/customs"),
        ),
    )  # fmt: skip


def _ends() -> Iterator[Story]:
    maps = f"{CORE}/namespaces/ends/configmaps"
    one = f"{maps}/c"
    held = config_map(finalizers=["example.com/hold"])
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
    yield _story(
        "ends",
        Step(method="POST", path=maps, body=config_map("x", finalizers=["Bad Name"])),
        Step(method="POST", path=maps, body=config_map("x", finalizers=["nodomain"])),
        Step(method="POST", path=maps, body=held),
        Step(method="DELETE", path=one),
        Step(method="DELETE", path=one),
        Step(method="PATCH", path=one, media=MERGE, body={"metadata": {"finalizers": ["a.b/c",
                                                                     "example.com/hold"]}}),
        Step(method="PATCH", path=one, media=MERGE, body={"data": {"still": "there"}}),
        Step(method="PATCH", path=one, media=MERGE, body={"metadata": {"finalizers": None}}),
        Step(method="GET", path=one),
        Step(method="POST", path=maps, body=config_map("o", ownerReferences=[{"kind": "X"}])),
        Step(method="POST", path=maps, body=config_map("o", ownerReferences=[
            {**owner, "controller": True}, {**owner, "name": "d", "controller": True}])),
        Step(method="POST", path=maps, body={**held, "metadata": {
            "name": "stays", "finalizers": ["example.com/hold"]}}, silent=True),
        Step(method="DELETE", path=f"{CORE}/namespaces/ends"),
        Step(method="POST", path=maps, body=config_map("late")),
        Step(method="DELETE", path=f"{CORE}/namespaces/kube-system"),
        Step(method="DELETE", path=f"{CORE}/namespaces/default"),
    )  # fmt: skip
