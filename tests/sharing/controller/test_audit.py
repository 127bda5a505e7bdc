"""Pods that slipped past admission, silent nodes, and saying things once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.controller.audit import Slip, lost_namespaces, rewritten, slipped
from sharing.controller.pods import PodSeen, seen_pod
from sharing.controller.reading import seen_profile
from sharing.controller.silence import Silence
from sharing.names import GRANTS_ANNOTATION, MODE_LABEL, PROFILE_LABEL

NAMESPACES = {
    "team": {PROFILE_LABEL: "shared"},
    "mode": {MODE_LABEL: "mps"},
    "watched": {PROFILE_LABEL: "watching"},
    "free": {},
    "kube-system": {},
}
PROFILES = [
    seen_profile({"metadata": {"name": "shared"}, "spec": {"mode": "mps"}}),
    seen_profile(
        {"metadata": {"name": "watching"}, "spec": {"mode": "mps", "enforcement": "audit"}}
    ),
]
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "o",
    "controller": True,
}


def pod(
    namespace: str, resource: str, *, grant: dict[str, str] | None = None, **metadata: Any
) -> PodSeen:
    annotations = {} if grant is None else {GRANTS_ANNOTATION: json.dumps([grant])}
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    return seen_pod(
        {
            "metadata": {
                "namespace": namespace,
                "name": "p",
                "uid": "u",
                "annotations": annotations,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **metadata,
            },
            "spec": {"containers": [container], "nodeName": "n1"},
        }
    )


@pytest.mark.parametrize(
    ("namespace", "resource", "slip"),
    [
        ("team", "nvidia.com/gpu", Slip.GPU),
        ("team", "nvidia.com/mig-1g.10gb", Slip.GPU),
        ("team", "gpu.sharing/mps-1of4", Slip.SHARE),
        ("mode", "nvidia.com/gpu", Slip.GPU),
        ("free", "gpu.sharing/mps-1of4", Slip.SHARE),
        ("free", "team-a.gpu.sharing/timeslice-1of2", Slip.SHARE),
        ("free", "gpu.sharing/nonsense", Slip.SHARE),
        ("free", "nvidia.com/gpu", None),
        ("free", "gpu.sharing/milli-gpu", None),
        ("team", "cpu", None),
        ("watched", "nvidia.com/gpu", None),
        ("kube-system", "gpu.sharing/mps-1of4", None),
    ],
)
def test_a_gpu_that_nobody_granted_is_found(
    namespace: str, resource: str, slip: Slip | None
) -> None:
    found = slipped([pod(namespace, resource)], NAMESPACES, PROFILES)

    assert [one.slip for one in found] == ([slip] if slip else [])


def test_a_grant_of_the_container_and_its_resource_is_enough() -> None:
    grant = {"container": "c", "resource": "gpu.sharing/mps-1of4", "profile": "shared"}

    assert slipped([pod("team", "gpu.sharing/mps-1of4", grant=grant)], NAMESPACES, PROFILES) == ()
    (found,) = slipped([pod("team", "gpu.sharing/mps-1of2", grant=grant)], NAMESPACES, PROFILES)
    assert found.resource == "gpu.sharing/mps-1of2"
    other = {**grant, "container": "other"}
    assert slipped([pod("team", "gpu.sharing/mps-1of4", grant=other)], NAMESPACES, PROFILES)


def test_it_is_told_on_the_pod_and_on_its_owner() -> None:
    (found,) = slipped(
        [pod("team", "nvidia.com/gpu", ownerReferences=[OWNER])], NAMESPACES, PROFILES
    )

    assert [one.about["kind"] for one in found.tellings] == ["Pod", "ReplicaSet"]
    assert found.tellings[1].about["namespace"] == "team"
    for telling in found.tellings:
        assert telling.warning
        assert "team/p, container c, holds nvidia.com/gpu" in telling.message


def test_finished_pods_are_nobodys_business() -> None:
    gone = pod("team", "nvidia.com/gpu", deletionTimestamp="2026-01-01T00:00:00Z")

    assert slipped([gone], NAMESPACES, PROFILES) == ()


def test_what_became_of_a_request_is_told_once_on_what_controls_the_pods() -> None:
    grant = {
        "container": "c",
        "resource": "gpu.sharing/mps-1of4",
        "profile": "shared",
        "request": "nvidia.com/gpu: 1",
    }
    pods = [
        pod("team", "gpu.sharing/mps-1of4", grant=grant, ownerReferences=[OWNER], name=name)
        for name in ("a", "b")
    ]
    (telling,) = rewritten(pods, "2026-01-01T00:00:00Z")
    assert "asked for nvidia.com/gpu: 1 and has gpu.sharing/mps-1of4" in telling.message
    assert rewritten(pods, "2026-01-02T00:00:00Z") == ()
    same = {**grant, "resource": "nvidia.com/gpu"}
    kept = pod("team", "nvidia.com/gpu", grant=same, ownerReferences=[OWNER])
    assert rewritten([kept], "") == ()


def test_a_namespace_whose_profile_does_not_exist_is_told_of() -> None:
    labels = {**NAMESPACES, "typo": {PROFILE_LABEL: "shard"}, "built-in": {PROFILE_LABEL: "mps"}}

    (telling,) = lost_namespaces(labels, PROFILES)
    assert (telling.about["name"], telling.reason) == ("typo", "ProfileNotFound")
    assert "shard" in telling.message


KEYS = st.sampled_from(["resources", "limits", "requests", "name", "controller", "kind"])
HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(HOSTILE, HOSTILE)
def test_a_pod_of_any_shape_is_read_without_a_fault(containers: object, record: object) -> None:
    seen = seen_pod(
        {
            "metadata": {"annotations": {GRANTS_ANNOTATION: record}, "ownerReferences": record},
            "spec": {"containers": containers, "initContainers": record},
        }
    )
    assert slipped([seen], NAMESPACES, PROFILES) == ()


def test_a_node_is_silent_after_its_own_deadline() -> None:
    silence = Silence(patience_s=60)

    assert silence.note({"a": 1}, 0.0) == {}
    assert silence.note({"a": 1, "b": 4}, 50.0) == {}
    assert silence.next_s(50.0) == 10.0
    assert silence.note({"a": 2, "b": 4}, 60.0) == {"a": 60.0}  # a newer spec is no excuse
    assert silence.note({"b": 4}, 110.0) == {"b": 60.0}
    assert silence.note({"a": 3}, 111.0) == {}  # it had answered meanwhile
