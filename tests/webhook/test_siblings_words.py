"""Kin of reported faults: words that do not reach their reader, and keys that nobody reads."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.judging import H100S, apply, container, judge, pod, policies, profile
from webhook.admission import admit_pod, admit_workload
from webhook.policies import EXEMPT_NAMESPACES
from webhook.registration import SYSTEM_NAMESPACES

LIMITS = {"nvidia.com/gpu": "1"}
LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("name", "key", "amount"),
    [
        ("web", "gpu.sharing/\x1b[31mred\n", "1"),
        ("web", f"gpu.sharing/{LONG}", "1"),
        (LONG, "team", "x"),
        ("web\x1b[2J", "team", "x"),
    ],
)
def test_a_refusal_is_one_bounded_line_that_steers_no_terminal(
    name: str, key: str, amount: str
) -> None:
    # Names and keys come before the API server has looked at them (kubernetes#92667).
    manifest = pod(container(limits={"nvidia.com/gpu": amount}), annotations={key: "1"})
    manifest["metadata"]["name"] = name
    verdict, _ = judge(manifest, "mps")
    assert verdict.code == 422
    assert verdict.message.isprintable()
    assert len(verdict.message) < 2000
    assert "for example: " in verdict.message


def test_a_refusal_that_lists_thousands_of_names_is_bounded() -> None:
    many = [container(f"{LONG[:60]}-{number}") for number in range(500)]
    verdict, _ = judge(pod(*many, annotations={"gpu.sharing/fraction": "1/2"}), "mps")
    assert len(verdict.message) < 5000


def test_a_warning_holds_no_character_for_which_api_servers_drop_it() -> None:
    verdict, _ = judge(pod(container("main\x1b[31m", limits=LIMITS)), "mps")
    assert verdict.warnings[0].isprintable()
    assert r"main\x1b[31m: nvidia.com/gpu: 1" in verdict.warnings[0]


def test_a_label_in_place_of_the_only_request_is_told() -> None:
    manifest = pod(container())
    manifest["metadata"]["labels"] = {"gpu.sharing/fraction": "0.5"}
    told = ("label gpu.sharing/fraction is not read: write it as an annotation",)
    assert judge(manifest, "mps")[0].warnings == told


def test_a_share_that_no_policy_grants_is_told_before_the_api_server_refuses_it() -> None:
    # The grants policy refuses the pod later on; its author reads why.
    verdict, _ = judge(pod(container(limits={"gpu.sharing/mps-1of4": "1"})), "free")
    assert verdict.operations == ()
    assert verdict.warnings == (
        "gpu.sharing/mps-1of4 is not granted: namespace free has no gpu.sharing/profile label",
    )
    assert judge(pod(container(limits={"gpu.sharing/mps-1of4": "0"})), "free")[0].warnings == ()


def test_what_no_policy_reads_is_told_when_the_workload_is_applied() -> None:
    # Its pods are made by a controller, whom warnings tell nothing.
    manifest = cron_job(container(limits={"gpu.sharing/mps-1of4": "1"}))
    template = manifest["spec"]["jobTemplate"]["spec"]["template"]
    template["metadata"] = {"annotations": {"gpu.sharing/mode": "mps"}}
    verdict = admit_workload(manifest, "free", policies(), H100S)
    assert verdict.operations == ()
    assert verdict.warnings == (
        "gpu.sharing/mode is not read: namespace free has no gpu.sharing/profile label",
        "gpu.sharing/mps-1of4 is not granted: namespace free has no gpu.sharing/profile label",
    )


def test_a_shared_mig_instance_is_no_misspelt_name() -> None:
    refused, _ = judge(pod(container(limits={"nvidia.com/mig-1g.10gb.shared": "1"})), "mig")
    assert "add nvidia-shared to the profile's compatibility" in refused.message


def cron_job(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [*containers]}}}}},
    }


def test_a_key_anywhere_above_a_template_is_told() -> None:
    # HAMi#2744's kin: the key stands on the Job, and its pod silently gets the default.
    manifest = cron_job(container(limits=LIMITS))
    manifest["spec"]["jobTemplate"]["metadata"] = {"annotations": {"gpu.sharing/fraction": "1/2"}}
    verdict = admit_workload(manifest, "mps", policies(), H100S)
    told = "gpu.sharing/fraction is not read here: write it below the pod template's metadata"
    assert verdict.warnings[0] == told


@pytest.mark.parametrize("renamed", [True, False])
def test_what_was_written_for_a_container_goes_with_it(*, renamed: bool) -> None:
    # kubernetes#64944: apply takes the container away, and leaves what a webhook wrote beside it.
    quarter = {"nvidia.com/gpu": "250m"}
    manifest = cron_job(container("a", limits=quarter), container("b", limits=quarter))
    stored = apply(admit_workload(manifest, "mps", policies(), H100S), manifest)
    template = stored["spec"]["jobTemplate"]["spec"]["template"]
    first = template["spec"]["containers"].pop(0)
    if renamed:
        template["spec"]["containers"].append({**first, "name": "c", "resources": {}})
    verdict = admit_workload(stored, "mps", policies(), H100S, before=copy.deepcopy(stored))
    after = apply(verdict, stored)["spec"]["jobTemplate"]["spec"]["template"]
    assert [*after["metadata"]["annotations"]] == ["b.gpu.sharing/fraction"]
    assert not any("denied" in warning for warning in verdict.warnings)


def test_a_forged_record_goes_where_the_profile_is_gone_too() -> None:
    # HAMi#3041: with it the accounting resource passes the grants policy, and quota is charged.
    forged = {"status.gpu.sharing/grants": '[{"container":"main","resource":"gpu.sharing/x"}]'}
    known = policies(lost={"gpu.sharing/profile": "gone"})
    for limits in ({"gpu.sharing/milli-gpu": "1000"}, {"cpu": "1"}):
        manifest = pod(container(limits=limits), annotations=forged)
        verdict = admit_pod(manifest, "lost", known, H100S)
        assert apply(verdict, manifest)["metadata"]["annotations"] == {}
        assert "only gpu-sharing writes it" in verdict.warnings[0]


def test_our_own_namespace_is_never_governed_wherever_that_is_asked() -> None:
    # uds-core#1509: what would be denied there is never sent, and the preview says so too.
    assert frozenset(SYSTEM_NAMESPACES) == EXEMPT_NAMESPACES
    labelled = policies(**{name: {"gpu.sharing/mode": "mps"} for name in SYSTEM_NAMESPACES})
    for name in SYSTEM_NAMESPACES:
        verdict = admit_pod(pod(container(limits=LIMITS)), name, labelled, H100S)
        assert (verdict.operations, verdict.warnings) == ((), ())


def job_set(*amounts: str) -> dict[str, Any]:
    jobs = [
        {"template": {"spec": {"template": {"spec": {"containers": [
            container(limits={"nvidia.com/gpu": amount})]}}}}}
        for amount in amounts
    ]  # fmt: skip
    return {"kind": "JobSet", "metadata": {"name": "x"}, "spec": {"replicatedJobs": jobs}}


def test_a_template_that_was_there_holds_no_other_up_and_is_named() -> None:
    # KAI PR#1556's kin: on UPDATE only what changed is refused, for each template by itself.
    known = policies(profile(mode="mps", workloads="deny"))
    before, after = job_set("2", "1"), job_set("2", "250m")
    assert admit_workload(after, "policy", known, H100S, before=before).allowed
    refused = admit_workload(job_set("2", "3"), "policy", known, H100S, before=before)
    field = "spec.replicatedJobs[1].template.spec.template"
    assert refused.message.startswith(f"JobSet policy/x: {field}: container main: ")
    stored = apply(admit_workload(after, "policy", known, H100S, before=before), after)
    assert admit_workload(after, "policy", known, H100S, before=stored).allowed


def test_a_reason_claims_nothing_of_nodes_that_decided_nothing() -> None:
    # autoscaler#8401's kin: a wrong reason sends its reader to the nodes.
    falling = profile(modes=["mig", "mps", "exclusive"], multiGPU="exclusive")
    two, _ = judge(pod(container(limits={"nvidia.com/gpu": "2"})), falling)
    assert two.grants[0].reason == "whole GPU by profile policy"
    one = pod(container(limits=LIMITS))
    assert judge(one, falling, None)[0].grants[0].reason.endswith("; only nodes can tell about mig")
    kept = profile(modes=["mps", "exclusive"], wholeGPU="keep")
    assert judge(one, kept)[0].grants[0].reason == "whole GPU by profile policy"
