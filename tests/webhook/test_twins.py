"""A body whose twin was read is answered as if nothing were remembered."""

from __future__ import annotations

import itertools
import uuid
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.admission import MPS, pod, review
from tests.support.judging import policies, profile
from tests.support.pods import PODS
from webhook import twins
from webhook.answer import Answered, answer_body, answer_review
from webhook.facts import facts_of
from webhook.policies import Policies
from webhook.review import parse_review
from webhook.snapshot import Snapshot
from webhook.twins import Twins

TOKEN = "kube-api-access-"
SUFFIXES = ("x7k2p", "bcdfg", "99999", "zzzzz")
KNOWN = policies(
    profile("shares", mode="mps", nodeSelector={"pool": "a"}),
    profile("hides", modes=["mig", "mps"], hideGPUs=True, enforcement="warn"),
    nowhere={"gpu.sharing/profile": "gone"},
)
NAMESPACES = st.sampled_from(["shares", "hides", "nowhere", "free"])


def body_of(made: Any, uid: str = "", namespace: str = "team-a", **request: Any) -> bytes:
    """A review as an API server writes it."""
    asked = review(made, uid=uid or str(uuid.uuid4()), namespace=namespace, **request)
    kind, version = asked.pop("kind"), asked.pop("apiVersion")
    return orjson.dumps({"kind": kind, "apiVersion": version, **asked})


def with_token(suffix: str, made: Any | None = None) -> Any:
    """A pod as the API server's own admission leaves it."""
    made = deepcopy(made) or pod()
    name = TOKEN + suffix
    made["spec"]["volumes"] = [{"name": name, "projected": {"sources": []}}]
    mount = {"name": name, "readOnly": True, "mountPath": "/var/run/secrets"}
    for container in made["spec"]["containers"]:
        container["volumeMounts"] = [mount]
    return made


def plainly(body: bytes, snapshot: Snapshot) -> Answered:
    """The answer with nothing remembered."""
    return answer_review(parse_review(orjson.loads(body)), snapshot)


def check_answers(bodies: list[bytes], snapshot: Snapshot = MPS) -> None:
    """That each of these gets the answer, and the line of the log, that it would get alone."""
    for body in bodies:
        found, wanted = answer_body(body, snapshot), plainly(body, snapshot)
        assert found.answer == wanted.answer
        assert facts_of(found) == facts_of(wanted)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PODS, NAMESPACES)
def test_twins_are_answered_as_each_would_be_alone(made: Any, namespace: str) -> None:
    made["spec"]["containers"] = [c for c in made["spec"]["containers"] if isinstance(c, dict)]
    bodies = [body_of(with_token(suffix, made), namespace=namespace) for suffix in SUFFIXES]

    check_answers(bodies, Snapshot(policies=KNOWN))


def test_a_body_is_read_once_its_kind_has_come_before() -> None:
    known = Twins()
    bodies = [body_of(with_token(suffix)) for suffix in SUFFIXES]

    found = [known.recall(body) for body in bodies]

    assert found[0] is None
    assert found[1] is not None
    assert found[2] is not None
    assert found[2][1] is found[1][1]
    uids = [orjson.loads(body)["request"]["uid"] for body in bodies]
    assert [found[1][0], found[2][0]] == uids[1:3]


def test_names_of_volumes_inside_managed_fields_make_no_difference() -> None:
    known, found = Twins(), None
    for suffix in SUFFIXES[:2]:
        made = with_token(suffix)
        key = f'k:{{"name":"{TOKEN}{suffix}"}}'
        made["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": {key: {}}}}]
        found = known.recall(body_of(made))

    assert found is not None


@pytest.mark.parametrize(
    "place",
    [
        lambda made, name: made["spec"]["containers"][0].update(name=name),
        lambda made, name: made["spec"].update(nodeSelector={"name": name, "projected": "x"}),
        lambda made, name: made["spec"].update(schedulerName=name),
        lambda made, name: made["spec"].update(nodeName=name),
        lambda made, name: made["metadata"].update(annotations={"gpu.sharing/mode": name}),
        lambda made, name: made["metadata"].update(annotations={name: "x"}),
        lambda made, name: made["metadata"].update(name=name),
        lambda made, name: made["metadata"].update(name=f'"{name}'),
        lambda made, name: made["spec"]["containers"].append({"name": name}),
    ],
)
def test_a_text_that_only_looks_like_a_volumes_name_is_not_passed_over(place: Any) -> None:
    bodies = []
    for suffix in (*SUFFIXES, *SUFFIXES):
        made = pod()
        made["spec"]["hostPID"] = suffix == SUFFIXES[1]
        place(made, TOKEN + suffix)
        bodies.append(body_of(made))

    check_answers(bodies)


def test_a_namespace_that_looks_like_a_volumes_name_is_not_passed_over() -> None:
    names = [TOKEN + suffix for suffix in SUFFIXES]
    modes = itertools.cycle(["mps", "time-slicing"])
    known = Policies(namespaces={name: {"gpu.sharing/mode": next(modes)} for name in names})

    bodies = [body_of(pod(), namespace=name) for name in (*names, *names)]

    check_answers(bodies, Snapshot(policies=known))


def test_a_second_uid_is_the_one_that_is_answered() -> None:
    uids = [str(uuid.uuid4()) for _ in range(4)]
    bodies = [
        body_of(pod(), uid).replace(b'"operation"', b'"uid":"%b","operation"' % second.encode())
        for uid in uids
        for second in (uids[0], "\\u0030")
    ]

    check_answers(bodies)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"operation":"CREATE"', b'"operation":"UPDATE"'),
        (b'"operation":"CREATE"', b'"operation":"KEEP"'),
        (b'"kind":"Pod"', b'"kind":"Binding"'),
        (b'"namespace":"team-a"', b'"namespace":7'),
        (b'"system:authenticated"', b'"system:nodes"'),
        (b'"spec":{', b'"spec":7,"x":{'),
        (b"}", b""),
        (b'"oldObject":null', b'"oldObject":null,"request":{}'),
        (b'"oldObject":null}', b'"oldObject":null},"request":{"uid":"x"}'),
    ],
)
def test_other_reviews_are_answered_as_ever(old: bytes, new: bytes) -> None:
    answers = []
    for number in range(4):
        uid = str(uuid.UUID(int=number))
        answered = answer_body(body_of(pod(), uid).replace(old, new), MPS)
        assert answered.fault is None
        answers.append((answered.answer.outcome, answered.answer.body.replace(uid.encode(), b"")))

    assert len(set(answers)) == 1


@pytest.mark.parametrize("uid", ["u-1", "x" * 36, "0" * 35, "\u00e9" * 18, '\\"' + "0" * 34])
def test_a_uid_that_no_api_server_makes_up_is_read_as_it_is(uid: str) -> None:
    known = Twins()
    body = body_of(pod(), uid)

    assert known.recall(body) is None
    assert known.recall(body) is None
    check_answers([body, body, body])


def test_another_policy_is_another_answer_for_a_twin() -> None:
    bodies = [body_of(with_token(suffix)) for suffix in SUFFIXES]
    sliced = Policies(namespaces={"team-a": {"gpu.sharing/mode": "time-slicing"}})

    check_answers(bodies)
    check_answers(bodies, Snapshot(policies=sliced))
    check_answers(bodies, Snapshot())


def test_what_is_remembered_is_bounded() -> None:
    known = Twins(most=4, most_met=8, cold=10**9)
    for number in range(12):
        body = body_of(pod({"note": str(number)}))
        known.recall(body)
        if number < 6:
            known.recall(body)
    long = body_of(pod({"note": "x" * twins._LONGEST}))

    assert known.recall(long) is None
    assert known.recall(long) is None
    assert len(known._readings) == 4
    assert len(known._met) == 8


def test_twins_are_found_soon_among_bodies_that_have_none() -> None:
    known = Twins()
    for number in range(200):
        assert known.recall(body_of(pod({"note": str(number)}))) is None

    found = [known.recall(body_of(with_token(SUFFIXES[0]))) is not None for _ in range(20)]

    assert found.index(True) <= 2 * twins._COLD_PACE
    assert all(found[found.index(True) :])


def test_only_ends_that_an_api_server_makes_up_are_passed_over() -> None:
    known = Twins()

    found = [known.recall(body_of(with_token(suffix))) for suffix in ("CUDA1", "CUDA2", "gpu22")]

    assert found == [None, None, None]
