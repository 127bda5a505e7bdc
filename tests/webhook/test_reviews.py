"""Reviews in, answers out: the contract with the API server."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.judging import H100S, container, pod, policies
from tests.support.pods import JSON
from webhook.admission import admit
from webhook.patch import Verb, add, escape, remove, replace, set_members
from webhook.review import MalformedReviewError, Review, parse_review
from webhook.rewrite import annotate
from webhook.verdict import ALLOWED, Verdict, render

GPU_POD = pod(container(limits={"nvidia.com/gpu": 1}))


def body(**request: Any) -> dict[str, Any]:
    asked = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "mps",
        "userInfo": {"username": "ada", "groups": ["team", 7]},
        "object": GPU_POD,
        "oldObject": None,
        "dryRun": True,
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def test_a_review_is_read_field_by_field() -> None:
    review = parse_review(body(subResource="status"))
    assert (review.uid, review.operation, review.kind) == ("u-1", "CREATE", "Pod")
    assert (review.resource, review.subresource, review.namespace) == ("pods", "status", "mps")
    assert (review.user, review.groups, review.dry_run) == ("ada", ("team",), True)
    assert review.object is GPU_POD, "never copied, never decoded into a model"


@pytest.mark.parametrize(
    ("broken", "uid"),
    [
        (None, ""),
        ([], ""),
        ("x", ""),
        ({}, ""),
        ({**body(), "apiVersion": "admission.k8s.io/v1beta1"}, "u-1"),
        ({**body(), "kind": "Pod"}, "u-1"),
        ({**body(), "request": []}, ""),
        (body(uid=""), ""),
        (body(uid=7), ""),
        (body(operation="PATCH"), "u-1"),
        (body(operation=["CREATE"]), "u-1"),
        (body(object="pod"), "u-1"),
        (body(kind="Pod"), "u-1"),
        (body(namespace=7), "u-1"),
        (body(userInfo=[]), "u-1"),
    ],
)
def test_a_body_that_is_no_review_is_told_apart_with_its_uid(broken: Any, uid: str) -> None:
    with pytest.raises(MalformedReviewError, match="AdmissionReview") as caught:
        parse_review(broken)
    assert caught.value.uid == uid


@settings(max_examples=150, deadline=None)
@given(JSON, st.dictionaries(st.sampled_from(list(body()["request"])), JSON, max_size=3))
def test_no_body_breaks_the_parser_and_no_review_the_decision(value: Any, parts: Any) -> None:
    for broken in (value, {**body(), "request": value}, body(**parts)):
        try:
            review = parse_review(broken)
        except MalformedReviewError:
            continue
        orjson.dumps(render(admit(review, policies(), H100S), review.uid))


def review(**fields: Any) -> Review:
    return Review(
        **{"uid": "u", "operation": "CREATE", "kind": "Pod", "namespace": "mps", "object": GPU_POD}
        | fields
    )


def test_the_uid_and_type_stand_in_every_answer() -> None:
    """controller-runtime#1272, autoscaler#4561, A1 and A2."""
    for verdict in (ALLOWED, Verdict(code=403, message="no"), Verdict(operations=(add("/a", 1),))):
        answer = render(verdict, "u-1")
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        assert answer["kind"] == "AdmissionReview"
        assert answer["response"]["uid"] == "u-1"


def test_patch_and_type_come_both_or_neither() -> None:
    """controller-runtime#1295, volcano#2225, A3."""
    answer = render(ALLOWED, "u")["response"]
    assert answer == {"uid": "u", "allowed": True}
    operations = (add("/a~1b", {"x": 1}), replace("/c", None), remove("/d"))
    answer = render(Verdict(operations=operations, warnings=("w",)), "u")["response"]
    assert answer["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(answer["patch"])) == [
        {"op": "add", "path": "/a~1b", "value": {"x": 1}},
        {"op": "replace", "path": "/c", "value": None},
        {"op": "remove", "path": "/d"},
    ]
    assert answer["warnings"] == ["w"]


def test_a_denial_carries_code_reason_and_message_and_no_patch() -> None:
    denied = Verdict(code=422, reason="Invalid", message="why", operations=(add("/a", 1),))
    answer = render(denied, "u")["response"]
    assert answer["allowed"] is False
    assert answer["status"] == {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "why",
    }
    assert "patch" not in answer


def test_pods_are_changed_at_creation_only() -> None:
    """gatekeeper#4121, kubernetes#62666, E1: an UPDATE that removes a finalizer."""
    assert admit(review(), policies(), H100S).kind == "patch"
    broken = pod(container(limits={"nvidia.com/gpu": "-1"}))
    for fields in (
        {"operation": "UPDATE"},
        {"operation": "UPDATE", "object": broken, "old_object": broken},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
        {"subresource": "binding"},
        {"operation": "UPDATE", "subresource": "resize"},
    ):
        assert admit(review(**fields), policies(), H100S) is ALLOWED


def test_pods_that_kubelets_make_pass_untouched() -> None:
    """kube-image-keeper#560, E4: mirror pods."""
    mirror = review(groups=("system:nodes", "system:authenticated"))
    assert admit(mirror, policies(), H100S) is ALLOWED


def test_the_annotation_of_a_mirror_pod_opens_nothing() -> None:
    forged = pod(
        container(limits={"nvidia.com/gpu": 1}), annotations={"kubernetes.io/config.mirror": "x"}
    )
    assert admit(review(object=forged), policies(), H100S).kind == "patch"


def test_the_request_s_namespace_counts_not_the_object_s() -> None:
    """TF PR#155, capsule#741."""
    astray = {**GPU_POD, "metadata": {"generateName": "web-", "namespace": "free"}}
    assert admit(review(object=astray), policies(), H100S).kind == "patch"
    assert admit(review(object=GPU_POD, namespace="free"), policies(), H100S).kind == "allow"


def test_pointers_are_escaped() -> None:
    """kyverno#532, B3: RFC 6901, section 3."""
    assert escape("a/b~c") == "a~1b~0c"
    assert escape("~1") == "~01"


def test_a_missing_parent_is_made_by_one_operation() -> None:
    """kubernetes#90623, network-resources-injector#104."""
    assert list(set_members("/m", None, {"a": 1, "b": 2})) == [add("/m", {"a": 1, "b": 2})]
    changed = list(set_members("/m", {"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 4}))
    assert [(o.op, o.path) for o in changed] == [(Verb.ADD, "/m/b"), (Verb.REPLACE, "/m/c")]
    assert list(set_members("/m", None, {})) == []
    assert list(annotate({}, {"a": "1"})) == [add("/metadata", {"annotations": {"a": "1"}})]
    assert list(annotate({}, {})) == []
