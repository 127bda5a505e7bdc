"""What is remembered of a pod's twin is what the pod itself would get."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admission import MPS, pod, review
from tests.support.pods import PODS
from webhook import alike
from webhook.admission import admit
from webhook.alike import admit_alike
from webhook.answer import answer_body
from webhook.policies import Policies
from webhook.review import Review, parse_review

MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def created(made: Any, **request: Any) -> Review:
    return parse_review(orjson.loads(orjson.dumps(review(made, **request))))


def with_token(suffix: str, container: str = "main") -> dict[str, Any]:
    """A pod as the API server's own admission leaves it."""
    name = f"kube-api-access-{suffix}"
    made = pod()
    made["spec"]["volumes"] = [{"name": name, "projected": {"sources": []}}]
    mount = {"name": name, "readOnly": True, "mountPath": MOUNT}
    made["spec"]["containers"][0] |= {"name": container, "volumeMounts": [mount]}
    return made


def hits() -> int:
    return alike._remembered.cache_info().hits


@given(PODS, st.sampled_from(["team-a", "team-b"]))
def test_a_remembered_verdict_is_the_one_that_a_fresh_look_gives(made: Any, namespace: str) -> None:
    asked = created(made, namespace=namespace)
    fresh = admit(asked, MPS.policies, MPS.inventory)

    assert admit_alike(asked, MPS.policies, MPS.inventory) == fresh
    assert admit_alike(asked, MPS.policies, MPS.inventory) == fresh


def test_pods_of_one_template_are_judged_once() -> None:
    first = admit_alike(created(with_token("aaaaa"), uid="1"), MPS.policies, None)
    before = hits()

    made = with_token("bbbbb")
    made["metadata"]["managedFields"] = [{"manager": "x"}]
    made["metadata"]["ownerReferences"] = [{"uid": "another"}]
    second = admit_alike(created(made, uid="2"), MPS.policies, None)

    assert second is first
    assert hits() == before + 1
    assert first.grants


def test_what_only_looks_like_a_token_volume_stays_as_it_is() -> None:
    for container in ("kube-api-access-aaaaa", "kube-api-access-bbbbb"):
        verdict = admit_alike(created(with_token("ccccc", container)), MPS.policies, None)

        assert [grant.container for grant in verdict.grants] == [container]


def test_any_difference_that_a_verdict_may_rest_on_is_judged_anew() -> None:
    plain = admit_alike(created(pod()), MPS.policies, None)
    changed = deepcopy(pod())
    changed["spec"]["hostPID"] = True

    assert plain.allowed
    assert not admit_alike(created(changed), MPS.policies, None).allowed
    assert admit_alike(created(pod(), namespace="team-b"), MPS.policies, None) != plain


def test_another_policy_is_another_verdict() -> None:
    asked = created(pod())
    other = Policies(namespaces={"team-a": {"gpu.sharing/mode": "time-slicing"}})

    first = admit_alike(asked, MPS.policies, None)
    second = admit_alike(asked, other, None)

    assert [g.resource for g in first.grants] == ["gpu.sharing/mps-1of4"]
    assert [g.resource for g in second.grants] == ["gpu.sharing/timeslice-1of4"]


@pytest.mark.parametrize("more", [False, True])
def test_only_what_is_short_is_kept(*, more: bool) -> None:
    body = orjson.dumps(review(pod({"note": "x" * (alike.LONGEST if more else 10)})))
    before = alike._remembered.cache_info()

    answer = answer_body(body, MPS).answer.body

    assert b'"patch":' in answer
    assert (alike._remembered.cache_info() == before) is more


def test_a_message_names_the_pod_that_it_is_about() -> None:
    for name in ("one", "two"):
        made = pod()
        made["metadata"]["name"], made["spec"]["hostPID"] = name, True

        assert f"pod team-a/{name}:" in admit_alike(created(made), MPS.policies, None).message
