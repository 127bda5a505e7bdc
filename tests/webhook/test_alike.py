"""What is remembered of a pod's twin is what the pod itself would get."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharing.inventory import Inventory
from tests.support.admission import MPS, pod, review
from tests.support.judging import H100S, policies, profile
from tests.support.pods import JSON, PODS
from webhook import alike
from webhook.admission import admit
from webhook.alike import rule
from webhook.answer import answer_body, answer_review
from webhook.essence import essence
from webhook.policies import Policies
from webhook.reading import LONGEST, reading_of
from webhook.review import Review, parse_review
from webhook.snapshot import Snapshot
from webhook.verdict import Verdict, render

PROFILES = (
    profile("shares", mode="mps", accounting=True, nodeSelector={"pool": "a"}),
    profile("falls", modes=["mig", "mps", "exclusive"], hideGPUs=True, onUnsatisfiable="admit"),
    profile("warns", mode="mps", enforcement="warn", allowedModes=["mig", "exclusive"]),
    profile("audits", mode="time-slicing", enforcement="audit", multiGPU="exclusive"),
    profile("keeps", mode="mig", wholeGPU="keep", privileged="allow", schedulerName="gang"),
    profile("moves", mode="mps", compatibility=["hami", "kai", "nos", "nvidia-shared"]),
)
KNOWN = policies(*PROFILES, nowhere={"gpu.sharing/profile": "gone"})
NAMESPACES = st.sampled_from([*(one.name for one in PROFILES), "nowhere", "free", "kube-system"])
VOLUMES: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "b-0"}},
        {"name": "c", "hostPath": {"path": "/dev"}},
        {"name": "d", "hostPath": {"path": "/data"}, "emptyDir": {}},
        {"name": "e", "hostPath": {"path": "/dev/nvidia0", "type": "CharDevice"}},
        {"name": "f", "hostPath": None, "secret": {}},
        {"name": "g"},
        None,
        "odd",
    ]
)
MOUNTS = st.sampled_from(
    [
        {"name": "a", "mountPath": "/data", "readOnly": True},
        {"name": "b", "mountPath": "/var/run/nvidia-container-devices/all"},
        {"mountPath": None},
        {"name": "c"},
        "odd",
    ]
)
VARIABLES = st.sampled_from(
    [
        {"name": "PATH", "value": "/bin"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {}},
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"},
        {"name": "CUDA_VERSION", "value": "12"},
        {"name": ["PATH"]},
        {"value": "x"},
        None,
        "odd",
    ]
)
BESIDE_CONTAINER = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["app:1", "app:2"]),
        "command": JSON,
        "env": st.lists(VARIABLES, max_size=6) | JSON,
        "envFrom": st.just([{"secretRef": {"name": "s"}}]),
        "volumeMounts": st.lists(MOUNTS, max_size=3) | JSON,
        "livenessProbe": JSON,
        "securityContext": st.sampled_from([None, {"capabilities": {"add": ["SYS_ADMIN"]}}, []]),
    },
)
BESIDE_SPEC = st.fixed_dictionaries(
    {},
    optional={
        "volumes": st.lists(VOLUMES, max_size=4) | JSON,
        "hostPID": st.booleans(),
        "nodeName": st.sampled_from(["n1", "", None]),
        "hostname": JSON,
        "serviceAccountName": st.just("trainer"),
        "priority": JSON,
        "containers": JSON,
        "initContainers": JSON,
    },
)
BESIDE_METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["pod", "", "web-0", None]),
        "generateName": st.just("web-"),
        "managedFields": JSON,
        "ownerReferences": JSON,
        "labels": st.sampled_from([{"kai.scheduler/queue": "q"}, {"gpu.sharing/mode": "mps"}])
        | JSON,
    },
)
KEYS = st.sampled_from(
    [
        "cdi.k8s.io/x",
        "devices.nri.io",
        "example.com/serial",
        "gpu-sharing/fraction",
        "main.GPU.sharing/mode",
        "mps",
        "nvidia.com/use-gputype",
        "nvidia.cdi.k8s.io/main.gpu-memory.limit",
    ]
)


@st.composite
def odd_pods(draw: st.DrawFn) -> Any:
    """A pod with things beside it that may matter or not."""
    made: dict[str, Any] = deepcopy(draw(PODS))
    listed = made["spec"]["containers"]
    for container in listed if draw(st.booleans()) else listed[:1]:
        container.update(draw(BESIDE_CONTAINER))
    made["spec"] |= {
        key: value
        for key, value in draw(BESIDE_SPEC).items()
        if key not in ("containers", "initContainers") or draw(st.integers(0, 9)) == 0
    }
    annotations = made["metadata"].get("annotations")
    if isinstance(annotations, dict):
        annotations |= draw(
            st.dictionaries(KEYS, st.sampled_from(["", "x", "1Gi", "a/b=c"]), max_size=1)
        )
    made["metadata"] |= draw(BESIDE_METADATA)
    if draw(st.integers(0, 19)) == 0:
        made[draw(st.sampled_from(["metadata", "spec"]))] = draw(JSON)
    return made


LAW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def created(made: Any, **request: Any) -> Review:
    return parse_review(orjson.loads(orjson.dumps(review(made, **request))))


def ruled(asked: Review, known: Policies = MPS.policies) -> Verdict:
    return rule(reading_of(asked), known, None).verdict


def remembered() -> Any:
    """What is remembered where no nodes are known."""
    return alike._memory(None)


def with_token(suffix: str) -> dict[str, Any]:
    """A pod as the API server's own admission leaves it."""
    name = f"kube-api-access-{suffix}"
    made = pod()
    made["spec"]["volumes"] = [{"name": name, "projected": {"sources": []}}]
    mount = {
        "name": name,
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    made["spec"]["containers"][0] |= {"volumeMounts": [mount]}
    return made


@LAW
@given(odd_pods(), NAMESPACES, st.sampled_from([H100S, Inventory(), None]))
def test_a_remembered_answer_is_the_one_that_a_fresh_look_gives(
    made: Any, namespace: str, nodes: Inventory | None
) -> None:
    asked = created(made, namespace=namespace) if isinstance(made, dict) else None
    if asked is None or asked.object is None:
        return
    fresh = admit(asked, KNOWN, nodes)

    for _ in range(2):
        ruling = rule(reading_of(asked), KNOWN, nodes)
        assert ruling.verdict == fresh
        assert ruling.answer(asked.uid) == orjson.dumps(render(fresh, asked.uid))


@settings(LAW, max_examples=25)
@given(odd_pods())
def test_an_essence_has_itself_as_its_essence(made: Any) -> None:
    first = essence(orjson.loads(orjson.dumps(made)))

    assert essence(orjson.loads(first)) == first


def beside(**fields: Any) -> dict[str, Any]:
    """A pod with a second container that asks for no GPU and has these fields."""
    made = pod()
    made["spec"]["containers"].append({"name": "side", "image": "app:1", **fields})
    return made


def with_spec(**fields: Any) -> dict[str, Any]:
    made = beside()
    made["spec"] |= fields
    return made


def with_metadata(**fields: Any) -> dict[str, Any]:
    made = beside()
    made["metadata"] |= fields
    return made


CUDA = {"name": "CUDA_VERSION", "value": "12"}
SEEN = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
DRIVER = {"name": "c", "mountPath": "/var/run/nvidia-container-devices/all"}
DEVICES = {"hostPath": {"path": "/dev"}}


@pytest.mark.parametrize(
    "made",
    [
        beside(envFrom=[{"secretRef": {"name": "s"}}]),
        beside(env=[CUDA]),
        beside(env=[{"name": "PATH"}, SEEN]),
        beside(env=[None, SEEN]),
        beside(env=[{"value": "x"}, SEEN]),
        beside(env=[{"name": ["x"]}, SEEN]),
        beside(env="x"),
        beside(volumeMounts=[DRIVER]),
        beside(volumeMounts=[None, DRIVER]),
        beside(volumeMounts=[{"name": "a"}, DRIVER]),
        beside(volumeMounts={}),
        beside(securityContext={"privileged": True}),
        beside(securityContext=[]),
        beside(resources={"limits": {"nvidia.com/gpu": "1"}}),
        beside(resources={"limits": {"gpu.sharing/milli-gpu": "1"}}),
        beside(resources=[]),
        beside(resources={"limits": [], "claims": []}),
        with_spec(hostPID=True),
        with_spec(nodeName="n1"),
        with_spec(nodeSelector=[]),
        with_spec(nodeSelector={"pool": "b"}),
        with_spec(schedulerName="mine"),
        with_spec(tolerations=[]),
        with_spec(volumes=[{}, DEVICES]),
        with_spec(volumes=[{"emptyDir": {}, **DEVICES}]),
        with_spec(volumes=["odd", DEVICES]),
        with_spec(volumes={}),
        with_spec(initContainers=[{"name": "main"}]),
        with_spec(containers=["odd", *pod()["spec"]["containers"]]),
        with_metadata(annotations=None),
        with_metadata(annotations={"cdi.k8s.io/x": "y"}),
        with_metadata(annotations={"devices.nri.io/container.main": "y"}),
        with_metadata(annotations={"gpu.sharing/fraction": "1/8"}),
        with_metadata(annotations={"status.gpu.sharing/grants": "[]"}),
        with_metadata(annotations=[]),
    ],
    ids=lambda made: str(made["spec"])[-60:] + str(made["metadata"])[-40:],
)
def test_what_a_verdict_rests_on_is_part_of_the_essence(made: Any) -> None:
    one = profile("placing", mode="mps", schedulerName="gang", nodeSelector={"pool": "a"})
    one_more = profile("tolerant", mode="mps", tolerations=[{"operator": "Exists"}])
    known = policies(one, one_more)
    asked = {name: created(made, namespace=name) for name in ("placing", "tolerant")}
    plain = {name: created(beside(), namespace=name) for name in asked}

    assert [ruled(each, known) for each in asked.values()] == [
        admit(each, known, None) for each in asked.values()
    ]
    assert [ruled(each, known) for each in asked.values()] != [
        ruled(each, known) for each in plain.values()
    ]


def test_pods_of_one_template_are_judged_once() -> None:
    first = rule(reading_of(created(with_token("aaaaa"), uid="1")), MPS.policies, None)
    before = remembered().cache_info().hits

    made = with_token("bbbbb")
    made["metadata"] |= {"managedFields": [{"manager": "x"}], "ownerReferences": [{"uid": "other"}]}
    second = rule(reading_of(created(made, uid="2")), MPS.policies, None)

    assert second is first
    assert remembered().cache_info().hits == before + 1
    assert first.verdict.grants
    assert b'"uid":"2"' in second.answer("2")


def test_what_changes_nothing_about_shares_makes_no_pod_unlike() -> None:
    def numbered(number: str) -> dict[str, Any]:
        made = with_token(f"aaaa{number}")
        made["metadata"] |= {
            "name": f"job-{number}",
            "labels": {"job": number},
            "annotations": {"example.com/index": number, "gpu.sharing/fraction": "1/8"},
        }
        made["spec"] |= {"hostname": f"job-{number}", "serviceAccountName": f"job-{number}"}
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        made["spec"]["volumes"].append(claim)
        made["spec"]["containers"][0] |= {
            "image": f"app:{number}",
            "args": [f"--shard={number}"],
            "env": [{"name": "SHARD", "value": number}],
            "livenessProbe": {"periodSeconds": int(number)},
        }
        made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = number
        return made

    first = rule(reading_of(created(numbered("1"))), MPS.policies, None)

    assert [grant.resource for grant in first.verdict.grants] == ["gpu.sharing/mps-1of8"]
    assert rule(reading_of(created(numbered("2"))), MPS.policies, None) is first


def test_any_difference_that_a_verdict_may_rest_on_is_judged_anew() -> None:
    plain = ruled(created(pod()))
    changed = deepcopy(pod())
    changed["spec"]["hostPID"] = True

    assert plain.allowed
    assert not ruled(created(changed)).allowed
    assert ruled(created(pod(), namespace="team-b")) != plain


def test_another_policy_is_another_verdict() -> None:
    asked = created(pod())
    other = Policies(namespaces={"team-a": {"gpu.sharing/mode": "time-slicing"}})

    assert [g.resource for g in ruled(asked).grants] == ["gpu.sharing/mps-1of4"]
    assert [g.resource for g in ruled(asked, other).grants] == ["gpu.sharing/timeslice-1of4"]


def test_what_was_said_of_nodes_goes_when_they_do() -> None:
    asked = created(pod())

    for nodes in (Inventory(), H100S, Inventory(), H100S):
        assert rule(reading_of(asked), MPS.policies, nodes).verdict == admit(
            asked, MPS.policies, nodes
        )

    assert alike._memory.cache_info().currsize <= 2


@pytest.mark.parametrize("more", [False, True])
def test_only_what_is_short_is_kept(*, more: bool) -> None:
    key = "main.gpu.sharing/fraction" if not more else f"{'x' * LONGEST}.gpu.sharing/fraction"
    body = orjson.dumps(review(pod({key: "1/4"})))
    before = remembered().cache_info()

    answer = answer_body(body, MPS).answer.body

    assert (b'"patch":' in answer) is not more
    assert (remembered().cache_info() == before) is more


def test_a_pod_nested_too_deeply_to_be_kept_is_judged_all_the_same() -> None:
    made = pod()
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    made["spec"]["futureField"] = "DEEP"
    nested = b"[" * 300 + b"]" * 300
    body = orjson.dumps(review(made)).replace(b'"DEEP"', nested)

    answered = answer_body(body, MPS)

    assert answered.fault is None
    assert answered.verdict is not None
    assert answered.verdict.grants


@pytest.mark.parametrize("enforcement", ["enforce", "warn"])
def test_a_message_names_the_pod_that_it_is_about(enforcement: str) -> None:
    one = profile("strict", mode="mps", enforcement=enforcement)
    for name in ("one", "two"):
        made = pod()
        made["metadata"]["name"], made["spec"]["hostPID"] = name, True
        verdict = ruled(created(made, namespace="strict"), policies(one))

        message = verdict.message or verdict.audit_annotations["message"]
        assert message.startswith(f"pod strict/{name}: spec.hostPID: ")


def test_both_ways_give_the_same_bytes() -> None:
    asked = created(with_token("ccccc"))
    body = orjson.dumps(review(with_token("ccccc")))

    assert (
        answer_body(body, MPS).answer
        == answer_review(asked, Snapshot(policies=MPS.policies)).answer
    )
