"""Kinds of reports rather than instances: spellings, amounts and fields that break webhooks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.judging import (
    H100S,
    apply,
    container,
    inventory,
    judge,
    pod,
    policies,
    profile,
    resources_of,
)
from webhook.admission import admit_pod
from webhook.policies import Policies

GPU = "nvidia.com/gpu"
QUARTER = {"gpu.sharing/mps-1of4": "1"}


@pytest.mark.parametrize(
    "name",
    ["nvidia.com/gpu ", " nvidia.com/gpu", "nvidia.com/gpu\u200b", "nvidia.\u0441om/gpu",
     "NVIDIA.com/gpu", "nvidia.com/GPU", "nvidia.com/gpus", "nvidia.com//gpu", "gpu", "/gpu",
     "xgpu.sharing/mps-1of4", "gpu.sharing.com/mps-1of4", "gpu\u3002sharing/mps-1of4"],
)  # fmt: skip
def test_names_that_only_look_like_ours_are_left_to_the_api_server(name: str) -> None:
    manifest = pod(container(limits={name: 1}))
    assert judge(manifest, "mps")[1] == manifest


@pytest.mark.parametrize(
    "name",
    ["gpu.sharing/mps-1of4 ", "gpu.sharing/mps-1\u043ef4", "gpu.sharing/MPS-1of4", "gpu.sharing/",
     "gpu.sharing/mps-1of04", "gpu.sharing/mps-1of4/x", "gpu.sharing/mps-1of-4", "a.gpu.sharing/",
     "nvidia.com/mig-1G.10GB", "nvidia.com/mig-1g.10gb ", "gpu.sharing/mps-\uff11of4"],
)  # fmt: skip
def test_names_under_our_prefix_that_mean_nothing_are_refused(name: str) -> None:
    verdict, _ = judge(pod(container(limits={name: 1})), "mps")
    assert verdict.code == 422
    assert "for example: gpu.sharing/mps-1of4: 1" in verdict.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpu.sharing/fraction", value)
        for value in ("0.25 ", "\u00bd", "\uff10.5", "+0.5", "0,5", "50 %", "1e-1", "0x1", "", "1/",
                      "0.5.0", ".", "%", "0.0000000000001", "NaN", "\u221e", "00000001/2")
    ] + [
        ("gpu.sharing/memory", value)
        for value in ("10Gi ", "1_0Gi", "\uff11\uff10Gi", "1e3Gi", "10gi", "Gi", "0x10Gi", "", "-0",
                      "10Gi/2", "Infinity", "1e999")
    ] + [
        ("gpu.sharing/fraction ", "0.5"), ("gpu.sharing/Fraction", "0.5"),
        ("gpu.sharing/fraction\u200b", "0.5"), (".gpu.sharing/fraction", "0.5"),
        ("a.b.gpu.sharing/fraction", "0.5"), ("main.gpu.sharing/", "0.5"),
    ],
)  # fmt: skip
def test_spellings_that_are_nearly_right_are_refused_never_guessed(key: str, value: str) -> None:
    verdict, _ = judge(pod(container(limits={GPU: 1}), annotations={key: value}), "mps")
    if key == ".gpu.sharing/fraction":
        assert verdict.allowed, "no container is called '', so it is another's key"
    else:
        assert verdict.code == 422, verdict


@pytest.mark.parametrize("amount", [1, 1.0, "1", "1.0", "1.", "1000m", "1e0", "1E0", "+1", "01"])
def test_one_is_one_however_it_is_spelled(amount: Any) -> None:
    _, after = judge(pod(container(limits={GPU: amount}, requests={GPU: "1"})), "mps")
    assert resources_of(after) == QUARTER
    _, after = judge(pod(container(limits={"gpu.sharing/mps-1of4": amount})), "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of4": str(amount)}, "left as it is"


@pytest.mark.parametrize("amount", [0, 0.0, "0", "-0", "0m", "0.0", "0e5", "0Gi", "+0"])
def test_nothing_is_nothing_however_it_is_spelled(amount: Any) -> None:
    """HAMi#2739, TF PR#517, KAI#1120."""
    assert judge(pod(container(limits={GPU: amount})), "mps")[0].kind == "allow"


@pytest.mark.parametrize(
    "amount", [2, 17, 2**31, 2**32 + 1, 2**53 + 1, 2**63 - 1, "1e18", "1k", "4Gi", "9E"]
)
def test_huge_counts_are_refused_at_once_and_never_wrap(amount: Any) -> None:
    """HAMi#2718: a 32-bit wrap made a huge request nothing."""
    for name in (GPU, "gpu.sharing/mps-1of8", "nvidia.com/mig-1g.10gb"):
        for governed in ("mps", "mig", "time-slicing"):
            verdict, after = judge(pod(container(limits={name: amount})), governed)
            given = resources_of(after) if verdict.allowed else {}
            assert verdict.code in (403, 422) or (amount == 2 and list(given.values()) == ["1"])


NULLS: list[dict[str, Any]] = [
    {"annotations": None}, {"labels": None}, {"ownerReferences": None}, {"managedFields": None},
]  # fmt: skip


@pytest.mark.parametrize("metadata", NULLS)
@pytest.mark.parametrize(
    "spec",
    [{}, {"initContainers": None, "volumes": None, "nodeSelector": None, "tolerations": None},
     {"affinity": None, "schedulerName": None, "overhead": None, "resources": None},
     {"affinity": {"nodeAffinity": None}, "ephemeralContainers": None}],
)  # fmt: skip
def test_null_is_as_good_as_absent(metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    main = container(limits={GPU: 1}, requests=None, env=None, envFrom=None, volumeMounts=None)
    main |= {"securityContext": None}
    manifest = pod(main, **spec)
    manifest["metadata"] |= metadata
    policy = profile(
        mode="mps", nodeSelector={"a": "b"}, schedulerName="gang", onUnsatisfiable="admit",
        tolerations=[{"operator": "Exists"}],
    )  # fmt: skip
    _, after = judge(manifest, policy)
    assert resources_of(after) == QUARTER
    assert after["spec"]["nodeSelector"] == {"a": "b"}


def test_fields_that_are_not_ours_to_read_stay_as_they_are() -> None:
    """amazon-eks-pod-identity-webhook#208, kops#16802, kube-image-keeper#457, berglas#264."""
    main = container(
        limits={GPU: 1, "hugepages-2Mi": "4Mi"},
        resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        restartPolicyRules=[{"action": "Restart"}],
        stdinOnce=True,
    )
    main["resources"]["claims"] = [{"name": "nic"}]
    extra: dict[str, Any] = {
        "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
        "overhead": {"memory": "100Mi"},
        "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        "os": {"name": "linux"},
        "hostUsers": False,
        "futureField": {"deep": [1, {"x": None}]},
    }
    _, after = judge(pod(main, **copy.deepcopy(extra)), "mps")
    assert extra.items() <= after["spec"].items()
    kept = after["spec"]["containers"][0]
    assert {key: kept[key] for key in kept if key != "resources"} == {
        key: main[key] for key in main if key != "resources"
    }
    assert kept["resources"]["claims"] == [{"name": "nic"}]
    assert kept["resources"]["limits"] == {"hugepages-2Mi": "4Mi", **QUARTER}


@pytest.mark.parametrize("defaulted", [False, True])
def test_pod_level_resources_and_defaulted_requests_are_no_obstacle(defaulted: bool) -> None:
    """Instaslice renamed limits alone: the old name stayed in requests, and the pod was invalid."""
    both = {"cpu": "1", GPU: "1"}
    main = container(limits=dict(both))
    if defaulted:
        main["resources"]["requests"] = dict(both)
    level = {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}
    _, after = judge(pod(main, resources=level), "mps")
    resources = after["spec"]["containers"][0]["resources"]
    assert all(GPU not in part for part in resources.values())
    assert after["spec"]["resources"] == level


@pytest.mark.parametrize(
    ("policy", "stays"), [("Always", True), ("OnFailure", False), (None, False), ("x", False)]
)
def test_only_always_makes_a_sidecar(policy: Any, stays: bool) -> None:
    """KAI PR#1556: a sidecar's share is added to the apps', an init container's is not."""
    one = inventory(("gpu.sharing/mps-1of4", 20000, 250))
    manifest = pod(
        container("app", limits={GPU: 1}),
        init=[container("init", limits={GPU: 1}, restartPolicy=policy)],
    )
    assert judge(manifest, "mps", one)[0].allowed is not stays


def test_requests_in_percent_are_worth_a_number_before_quota_sees_them() -> None:
    """HAMi#2468: a size in percent, or none, counted 0 at admission and the whole card later."""
    policy = profile(mode="mps", accounting=True)
    for keys in ({"gpu.sharing/fraction": "25%"}, {}):
        manifest = pod(container(limits={GPU: 1}), annotations=keys)
        _, after = judge(manifest, policy)
        assert resources_of(after) == {**QUARTER, "gpu.sharing/milli-gpu": "250"}


@pytest.mark.parametrize("junk", ["junk", "0", -5, None, "999999"])
def test_what_a_pod_says_of_its_worth_is_replaced(junk: Any) -> None:
    for policy in (profile(mode="mps", accounting=True), profile(mode="mps")):
        limits = {GPU: 1, "gpu.sharing/milli-gpu": junk}
        _, after = judge(pod(container(limits=limits, requests=dict(limits))), policy)
        worth = {"gpu.sharing/milli-gpu": "250"} if policy.spec.accounting else {}
        resources = after["spec"]["containers"][0]["resources"]
        assert resources["limits"] == resources["requests"] == {**QUARTER, **worth}


def test_a_policy_is_swapped_as_a_whole() -> None:
    """HAMi: while a quota was replaced, pods came through unchecked."""
    first = Policies(namespaces={"ns": {"gpu.sharing/mode": "mps"}})
    second = Policies(namespaces={"ns": {"gpu.sharing/profile": "gone"}})
    manifest = pod(container(limits={GPU: 1}))
    assert admit_pod(manifest, "ns", first, H100S).allowed
    assert admit_pod(manifest, "ns", second, H100S).code == 403


def test_numbers_that_only_json_tells_apart_make_no_patch() -> None:
    """python-json-patch#103: a diff takes 1 and 1.0 for equal; no diff is made here."""
    record = judge(pod(container(limits=dict(QUARTER))), "mps")[1]
    for amount in (1, 1.0, "1"):
        again = copy.deepcopy(record)
        again["spec"]["containers"][0]["resources"]["limits"] = {"gpu.sharing/mps-1of4": amount}
        assert admit_pod(again, "mps", policies(), H100S).operations == ()


def test_own_parts_are_known_by_content_after_others_renamed_things() -> None:
    """azure-workload-identity#1744, istio#25931: own output seen again, changed by others."""
    policy = profile(
        mode="mps", tolerations=[{"key": "gpu", "operator": "Exists"}], hideGPUs=True,
        memory={"default": "10Gi"},
    )  # fmt: skip
    _, after = judge(pod(container(limits={GPU: 1}), container("b")), policy)
    after["spec"]["tolerations"].reverse()
    after["spec"]["tolerations"].append({"operator": "Exists"})
    after["spec"]["containers"].reverse()
    after["metadata"]["labels"] = {"new": "x"}
    known = policies(policy)
    assert admit_pod(after, policy.name, known, H100S).operations == ()


@pytest.mark.parametrize("percent", ["1%", "33.5%", "0.5%", "99.999%", "100%"])
def test_a_percentage_is_exact_and_never_nothing(percent: str) -> None:
    """volcano#3465, volcano#3089: a percentage of memory became 0 MiB."""
    manifest = pod(container(), annotations={"gpu.sharing/fraction": percent})
    verdict, _ = judge(manifest, profile(modes=["mps", "exclusive"]))
    (grant,) = verdict.grants
    size = grant.share_class.size
    part = 1 if size is None else getattr(size, "fraction")  # noqa: B009  sizes differ in kind
    assert part * 100 >= float(percent[:-1])


def test_a_reserved_variable_of_the_author_is_taken_out_not_used() -> None:
    """c8s#121: an author's own volume or variable of a reserved name was used by the webhook."""
    mine = {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/evil"}
    _, after = judge(pod(container(limits={GPU: 1}, env=[mine])), "mps")
    assert after["spec"]["containers"][0]["env"] == []


def test_why_a_larger_profile_was_taken_is_said() -> None:
    """HAMi#1044: surprising choices were not explained."""
    _, after = judge(
        pod(container(), annotations={"gpu.sharing/memory": "10Gi"}),
        "mig",
        inventory(("nvidia.com/mig-1g.10gb", 9984, 143), ("nvidia.com/mig-2g.20gb", 20096, 286)),
    )
    assert "smallest that has 10Gi" in after["metadata"]["annotations"]["status.gpu.sharing/grants"]


def test_what_a_pod_becomes_can_be_asked_of_a_template_beforehand() -> None:
    """Kueue counts a Job's template before its pods are rewritten; the same decision tells both."""
    manifest = pod(container(limits={GPU: 1}))
    verdict = admit_pod(manifest, "mps", policies(), H100S)
    after = apply(verdict, manifest)
    assert admit_pod(after, "mps", policies(), H100S).grants == verdict.grants


REASONS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({GPU: 1}, {}, "default 1of4 of profile policy"),
    ({GPU: "250m"}, {}, "1/4 of a GPU"),
    ({GPU: "200m"}, {}, "1/5 of a GPU, rounded up to 1of4"),
    ({GPU: 2}, {"gpu.sharing/fraction": "1/8"}, "2 times 1/8 of a GPU"),
    ({GPU: 2}, {"gpu.sharing/fraction": "1/9"}, "2 times 1/9 of a GPU, rounded up to 1of4"),
    ({GPU: 2}, {"gpu.sharing/memory": "9Gi"}, "smallest that has 2 times 9Gi"),
    ({"gpu.sharing/mps-1of8": 1}, {}, "asked for by name"),
    ({"gpu.sharing/mps-1of8": 2}, {}, "2 shares as one"),
]


@pytest.mark.parametrize(("limits", "keys", "reason"), REASONS)
def test_the_reason_says_what_was_done_exactly(
    limits: dict[str, Any], keys: dict[str, str], reason: str
) -> None:
    verdict, _ = judge(pod(container(limits=limits), annotations=keys), profile(mode="mps"))
    assert verdict.grants[0].reason == reason


def test_whole_gpus_of_a_pool_by_name_go_by_multi_gpu_too() -> None:
    whole = {"team-a.gpu.sharing/gpu": 2}
    policy = {"mode": "exclusive", "pool": "team-a"}
    two = inventory(*[("team-a.gpu.sharing/gpu", 80000, 1000)] * 2)
    _, after = judge(pod(container(limits=whole)), profile(**policy), two)
    assert resources_of(after) == {"team-a.gpu.sharing/gpu": "2"}
    verdict, _ = judge(pod(container(limits=whole)), profile(**policy, multiGPU="deny"), two)
    assert verdict.code == 403
    one = pod(container(limits={"team-a.gpu.sharing/gpu": 1}))
    assert judge(one, profile(**policy, multiGPU="deny"), two)[0].allowed
    verdict, _ = judge(pod(container(limits=whole)), profile(**policy), H100S)
    assert "no single ready node" in verdict.message, "one node has one"


def test_a_mig_profile_asked_for_is_given_or_refused_never_a_larger_one() -> None:
    nodes = inventory(
        ("nvidia.com/mig-2g.20gb", 20096, 286), ("nvidia.com/mig-3g.40gb", 40448, 496)
    )
    manifest = pod(container(), annotations={"gpu.sharing/mig-profile": "1g.10gb"})
    assert judge(manifest, "mig", nodes)[0].code == 403
    manifest = pod(container(limits={GPU: 1}))
    assert judge(manifest, profile(mode="mig", migProfile="1g.10gb"), nodes)[0].code == 403
    for count in (3, 4, 17, 10**9):
        verdict, _ = judge(pod(container(limits={"nvidia.com/mig-3g.40gb": count})), "mig", nodes)
        assert (verdict.code, verdict.reason) == (403, "Forbidden")
        assert "a container gets one share" in verdict.message


def test_a_mode_asked_for_beside_several_gpus_is_refused_unless_it_is_exclusive() -> None:
    policy = profile(mode="mps", allowedModes=["mps", "exclusive"], multiGPU="exclusive")
    for mode, allowed in (("mps", False), ("exclusive", True)):
        keys = {"gpu.sharing/mode": mode}
        assert (
            judge(pod(container(limits={GPU: 2}), annotations=keys), policy)[0].allowed is allowed
        )
        _, after = judge(pod(container(limits={GPU: 1}), annotations=keys), policy)
        assert resources_of(after) == ({GPU: "1"} if allowed else QUARTER)


def test_a_share_by_name_that_no_node_offers_is_refused_where_nodes_are_known() -> None:
    manifest = pod(container(limits={"gpu.sharing/mps-1of3": 1}))
    verdict, _ = judge(manifest, "mps")
    assert verdict.code == 403
    assert "no ready node offers gpu.sharing/mps-1of3" in verdict.message
    verdict, after = judge(manifest, "mps", None)
    assert resources_of(after) == {"gpu.sharing/mps-1of3": "1"}
    assert "no nodes are known" in verdict.warnings[0]


@pytest.mark.parametrize(("asked", "allowed"), [("39Gi", True), ("40Gi", True), ("41Gi", False)])
def test_the_most_memory_is_a_bound_and_no_size(asked: str, allowed: bool) -> None:
    policy = profile(modes=["mps", "exclusive"], memory={"max": "40Gi"})
    manifest = pod(container(), annotations={"gpu.sharing/memory": asked})
    assert judge(manifest, policy)[0].allowed is allowed


def test_a_default_mig_profile_binds_nothing_but_plain_requests_under_mig() -> None:
    policy = profile(modes=["mig", "mps"], migProfile="3g.40gb")
    verdict, after = judge(pod(container(limits={GPU: 1})), policy)
    assert verdict.grants[0].reason == "default of profile policy"
    assert "affinity" not in after["spec"]
    without_mig = inventory(("gpu.sharing/mps-1of4", 20389, 250))
    verdict, _ = judge(pod(container(limits={GPU: 1})), policy, without_mig)
    assert verdict.grants[0].reason.startswith("default 1of4 of profile policy; no ready node")
    keys = {"gpu.sharing/memory": "10Gi", "gpu.sharing/mode": "mps"}
    verdict, after = judge(pod(container(), annotations=keys), policy)
    assert "10239" in str(after["spec"]["affinity"])
    assert verdict.grants[0].reason == "smallest that has 10Gi", "mps was asked for, no fallback"
    asked = pod(container(), annotations={"gpu.sharing/memory": "10Gi"})
    _, after = judge(asked, policy)
    assert "10239" in str(after["spec"]["affinity"])


def test_the_pod_s_own_placement_stands_and_is_told_only_where_it_differs() -> None:
    policy = profile(mode="mps", nodeSelector={"zone": "b"}, onUnsatisfiable="admit")
    for zone, told in (("a", 1), ("b", 0), ("c", 1)):
        manifest = pod(container(limits={GPU: 1}), nodeSelector={"zone": zone}, schedulerName="x")
        verdict, after = judge(manifest, policy)
        assert after["spec"]["nodeSelector"] == {"zone": zone}
        assert sum("own stands" in warning for warning in verdict.warnings) == told
