"""Workloads: early warnings, and fractions that the API server would refuse in a template."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from sharing.errors import InputError
from tests.support.judging import H100S, apply, container, pod, policies, profile
from webhook.admission import admit
from webhook.review import Review
from webhook.templatepaths import parse_template_paths
from webhook.verdict import Verdict
from webhook.workload import FRACTIONS_ANNOTATION

QUARTER = {"nvidia.com/gpu": "250m"}


def deployment(template: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    body = {key: value for key, value in template.items() if key in ("metadata", "spec")}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **metadata},
        "spec": {"template": body},
    }


def judge_workload(
    manifest: dict[str, Any], namespace: str = "mps", operation: str = "UPDATE", **known: Any
) -> tuple[Verdict, dict[str, Any]]:
    before = copy.deepcopy(manifest)
    review = Review(
        uid="u",
        operation=operation,
        kind=manifest["kind"],
        namespace=namespace,
        object=manifest,
    )
    verdict = admit(review, known.get("policies", policies()), H100S)
    assert manifest == before
    assert verdict.allowed, "a workload is never refused"
    assert all(len(warning) < 120 for warning in verdict.warnings)
    return verdict, apply(verdict, manifest)


def template_of(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]
    return found


def test_what_the_pods_will_become_is_told_when_the_workload_is_applied() -> None:
    verdict, _ = judge_workload(deployment(pod(container(limits={"nvidia.com/gpu": 1}))))
    assert verdict.operations == ()
    assert "nvidia.com/gpu: 1 -> gpu.sharing/mps-1of4" in verdict.warnings[0]
    assert verdict.grants[0].resource == "gpu.sharing/mps-1of4"


def test_what_the_pods_would_be_refused_for_is_told_but_not_refused() -> None:
    verdict, _ = judge_workload(deployment(pod(container(limits={"nvidia.com/gpu": "-1"}))))
    assert verdict.warnings == ("pods would be denied: '-1' is negative",)


def test_a_fraction_becomes_legal_in_a_template() -> None:
    main = container(limits={"cpu": "1", **QUARTER}, requests={**QUARTER})
    verdict, after = judge_workload(deployment(pod(main)), operation="CREATE")
    template = template_of(after)
    resources = template["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "1", "nvidia.com/gpu": "1"}
    assert resources["requests"] == {"nvidia.com/gpu": "1"}
    assert template["metadata"]["annotations"] == {"main.gpu.sharing/fraction": "0.25"}
    assert verdict.grants[0].resource == "gpu.sharing/mps-1of4"
    again, _ = judge_workload(after)
    assert again.operations == ()
    assert again.grants[0].resource == "gpu.sharing/mps-1of4"


def applied_again(live: dict[str, Any], limits: dict[str, Any] | None) -> dict[str, Any]:
    """What the webhook sees when kubectl applies the author's file on top of our result.

    A three-way merge writes what the file says, keeps what only we wrote, and removes what the
    file no longer says.
    """
    merged = copy.deepcopy(live)
    main = template_of(merged)["spec"]["containers"][0]
    main.pop("resources")
    if limits is not None:
        main["resources"] = {"limits": limits}
    return merged


def test_the_same_file_applied_again_is_the_same_request() -> None:
    _, live = judge_workload(deployment(pod(container(limits=dict(QUARTER)))))
    verdict, after = judge_workload(applied_again(live, dict(QUARTER)))
    assert after == live
    assert verdict.grants[0].resource == "gpu.sharing/mps-1of4"


def test_a_changed_file_outranks_what_we_wrote() -> None:
    _, live = judge_workload(deployment(pod(container(limits=dict(QUARTER)))))
    verdict, after = judge_workload(applied_again(live, {"nvidia.com/gpu": "500m"}))
    assert template_of(after)["metadata"]["annotations"] == {"main.gpu.sharing/fraction": "0.5"}
    assert verdict.grants[0].resource == "gpu.sharing/mps-1of2"


def test_a_gpu_that_left_the_file_leaves_nothing_behind() -> None:
    _, live = judge_workload(deployment(pod(container(limits=dict(QUARTER)))))
    verdict, after = judge_workload(applied_again(live, None))
    assert template_of(after)["metadata"]["annotations"] == {}
    assert FRACTIONS_ANNOTATION not in after["metadata"]["annotations"]
    assert verdict.grants == ()


def test_the_author_s_own_annotation_is_never_overwritten() -> None:
    own = pod(container(limits=dict(QUARTER)), annotations={"main.gpu.sharing/fraction": "0.5"})
    verdict, after = judge_workload(deployment(own))
    assert template_of(after) == template_of(deployment(own))
    assert "stands beside" in verdict.warnings[0]
    same = pod(container(limits=dict(QUARTER)), annotations={"main.gpu.sharing/fraction": "1/4"})
    _, after = judge_workload(deployment(same))
    assert template_of(after)["metadata"]["annotations"] == {"main.gpu.sharing/fraction": "1/4"}
    assert template_of(after)["spec"]["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "1"
    }
    assert "annotations" not in after["metadata"], "what we did not write is not recorded as ours"


@pytest.mark.parametrize(
    ("amount", "text"), [("1m", "0.001"), (".5", "0.5"), ("999999999n", "0.999999999")]
)
def test_fractions_are_written_exactly(amount: str, text: str) -> None:
    _, after = judge_workload(deployment(pod(container(limits={"nvidia.com/gpu": amount}))))
    assert template_of(after)["metadata"]["annotations"] == {"main.gpu.sharing/fraction": text}


@pytest.mark.parametrize("amount", ["1", 2, "0", "1500m", "junk", "-250m", None, [1]])
def test_other_amounts_are_left_to_the_api_server(amount: Any) -> None:
    manifest = deployment(pod(container(limits={"nvidia.com/gpu": amount})))
    assert judge_workload(manifest)[1] == manifest


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("StatefulSet", ["spec", "template"]),
        ("DaemonSet", ["spec", "template"]),
        ("ReplicaSet", ["spec", "template"]),
        ("Job", ["spec", "template"]),
        ("CronJob", ["spec", "jobTemplate", "spec", "template"]),
        ("PyTorchJob", ["spec", "pytorchReplicaSpecs", "Worker/0", "template"]),
        ("RayCluster", ["spec", "headGroupSpec", "template"]),
        ("JobSet", ["spec", "replicatedJobs", 0, "template", "spec", "template"]),
    ],
)
def test_templates_of_many_kinds_are_found(kind: str, path: list[Any]) -> None:
    body: Any = {"spec": pod(container(limits=dict(QUARTER)))["spec"]}
    for key in reversed(path[1:]):
        body = [body] if key == 0 else {key: body}
    manifest = {"kind": kind, "metadata": {"name": "x", "annotations": None}, "spec": body}
    _, after = judge_workload(manifest)
    found: Any = after
    for key in path:
        found = found[key]
    assert found["metadata"]["annotations"] == {"main.gpu.sharing/fraction": "0.25"}
    assert judge_workload(after)[0].operations == ()


def test_kinds_without_templates_and_free_namespaces_are_left_alone() -> None:
    manifest = deployment(pod(container(limits=dict(QUARTER))))
    assert judge_workload(manifest, "free")[1] == manifest
    assert judge_workload({"kind": "ConfigMap", "data": {}})[0].kind == "allow"
    assert judge_workload({"kind": "Deployment", "spec": {"template": "x"}})[0].kind == "allow"


def test_without_enforcement_templates_stay_as_they_are() -> None:
    manifest = deployment(pod(container(limits=dict(QUARTER))))
    known = policies(profile(mode="mps", enforcement="warn"))
    verdict, after = judge_workload(manifest, "policy", policies=known)
    assert after == manifest
    assert "would be" in verdict.warnings[0]


def test_a_forged_record_of_fractions_is_read_with_care() -> None:
    for record in ("junk", "[]", '{"/spec/template":{"main":7}}', '{"/spec/template":[]}'):
        manifest = deployment(
            pod(container(limits={"nvidia.com/gpu": 1})), annotations={FRACTIONS_ANNOTATION: record}
        )
        _, after = judge_workload(manifest)
        assert FRACTIONS_ANNOTATION not in after["metadata"]["annotations"]


DENYING = policies(profile(mode="mps", workloads="deny"))
BAD = pod(container(limits={"nvidia.com/gpu": "-1"}))


def review_of(manifest: dict[str, Any], before: dict[str, Any] | None = None) -> Review:
    return Review(
        uid="u",
        operation="CREATE" if before is None else "UPDATE",
        kind=manifest["kind"],
        namespace="policy",
        object=manifest,
        old_object=before,
    )


def test_a_workload_itself_is_refused_where_the_profile_says_so() -> None:
    verdict = admit(review_of(deployment(BAD)), DENYING, H100S)
    assert (verdict.code, verdict.operations) == (422, ())
    assert verdict.message.startswith("Deployment policy/web: container main: ")
    good = deployment(pod(container(limits={"nvidia.com/gpu": 1})))
    assert admit(review_of(good), DENYING, H100S).allowed


def test_only_templates_that_a_request_brings_are_refused() -> None:
    """KAI: rules that became stricter must not block what exists, nor finalizers."""
    live = deployment(BAD)
    scaled = copy.deepcopy(live)
    scaled["spec"]["replicas"] = 3
    scaled["metadata"]["finalizers"] = []
    assert admit(review_of(scaled, live), DENYING, H100S).allowed
    changed = deployment(pod(container(limits={"nvidia.com/gpu": "-2"})))
    assert admit(review_of(changed, live), DENYING, H100S).code == 422
    owner = [{"kind": "Deployment", "name": "web", "controller": True}]
    assert admit(review_of(deployment(BAD, ownerReferences=owner)), DENYING, H100S).allowed
    going = deployment(BAD, deletionTimestamp="2026-01-01T00:00:00Z")
    assert admit(review_of(going, deployment(pod(container()))), DENYING, H100S).allowed


def test_without_enforcement_no_workload_is_refused() -> None:
    known = policies(profile(mode="mps", workloads="deny", enforcement="audit"))
    verdict = admit(review_of(deployment(BAD)), known, H100S)
    assert verdict.allowed
    assert verdict.warnings == ()
    assert verdict.audit_annotations["would"] == "deny"


def test_an_operator_can_say_where_other_kinds_keep_their_templates() -> None:
    paths = parse_template_paths({"Job.batch.volcano.sh": ["spec.tasks.*.template"]})
    known = replace(policies(), template_paths=paths)
    template = {"spec": pod(container(limits=dict(QUARTER)))["spec"]}
    volcano = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {"tasks": [{"template": template}]},
    }
    verdict, after = judge_workload(volcano, policies=known)
    found = after["spec"]["tasks"][0]["template"]
    assert found["metadata"]["annotations"] == {"main.gpu.sharing/fraction": "0.25"}
    assert verdict.grants[0].resource == "gpu.sharing/mps-1of4"
    assert judge_workload(volcano)[1] == volcano
    plain = {**deployment(pod(container(limits=dict(QUARTER)))), "kind": "Job"}
    assert judge_workload(plain, policies=known)[0].grants


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "is no mapping"),
        ({"job": ["spec"]}, "'job' is no kind"),
        ({7: ["spec"]}, "7 is no kind"),
        ({"Job": "spec.template"}, "is no list"),
        ({"Job": []}, "is no list"),
        ({"Job": ["spec..template"]}, "'spec..template' is no path"),
        ({"Job": ["/spec/template"]}, "is no path"),
        ({"Job": ["a.*.*.*"]}, "is no path"),
        ({"Job": [7]}, "7 is no path"),
        ({"Job": [".".join("a" * 40)]}, "is no path"),
    ],
)
def test_a_malformed_list_of_paths_is_refused_with_an_example(value: Any, words: str) -> None:
    with pytest.raises(InputError, match="for example: PyTorchJob") as caught:
        parse_template_paths(value)
    assert words in str(caught.value)


def test_a_workload_of_thousands_of_templates_is_answered_soon() -> None:
    template = {"spec": pod(container(limits={"nvidia.com/gpu": 1}))["spec"]}
    jobs = [{"template": {"spec": {"template": template}}}] * 5000
    manifest = {"kind": "JobSet", "metadata": {"name": "x"}, "spec": {"replicatedJobs": jobs}}
    assert len(judge_workload(manifest)[0].grants) == 64


def applied_file(limits: dict[str, Any], **annotations: str) -> str:
    file = deployment(pod(container(limits=limits), annotations=annotations))
    return json.dumps(file)


def filed(live: dict[str, Any], file: str) -> dict[str, Any]:
    """The live object with what kubectl keeps of an applied file."""
    changed = copy.deepcopy(live)
    annotations = changed["metadata"].setdefault("annotations", {})
    annotations["kubectl.kubernetes.io/last-applied-configuration"] = file
    return changed


def test_a_whole_gpu_in_a_newly_applied_file_outranks_the_fraction_before() -> None:
    """A three-way merge shows no change: the amount is the one that we had written."""
    _, live = judge_workload(
        filed(deployment(pod(container(limits=dict(QUARTER)))), applied_file(QUARTER))
    )
    verdict, after = judge_workload(filed(live, applied_file({"nvidia.com/gpu": 1})))
    assert template_of(after)["metadata"]["annotations"] == {}
    assert FRACTIONS_ANNOTATION not in after["metadata"]["annotations"]
    assert verdict.grants[0].request == "nvidia.com/gpu: 1"


@pytest.mark.parametrize(
    "file",
    [
        applied_file(QUARTER),
        applied_file({"nvidia.com/gpu": "junk"}),
        applied_file({}),
        applied_file({"nvidia.com/gpu": 1}, **{"main.gpu.sharing/fraction": "0.25"}),
        applied_file({"nvidia.com/gpu": 1}, **{"gpu.sharing/fraction": "0.25"}),
        "junk",
        "[]",
        '{"spec": 7}',
    ],
)
def test_only_a_file_that_asks_for_a_whole_gpu_takes_a_fraction_off(file: str) -> None:
    _, live = judge_workload(deployment(pod(container(limits=dict(QUARTER)))))
    _, after = judge_workload(filed(live, file))
    assert template_of(after) == template_of(live)


def test_a_file_from_before_the_fraction_takes_nothing_off() -> None:
    """kubectl edit and replace leave the applied file as it was."""
    live = filed(
        deployment(pod(container(limits=dict(QUARTER)))), applied_file({"nvidia.com/gpu": 1})
    )
    _, after = judge_workload(live)
    scaled = {**after, "spec": {**after["spec"], "replicas": 3}}
    assert judge_workload(scaled)[0].operations == ()
