"""What a profile allows, prefers and adds."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.inventory import Inventory
from tests.support.judging import (
    H100_MIB,
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
from webhook.policies import BrokenProfile, Policies

GPU = "nvidia.com/gpu"
PLAIN = {GPU: "1"}


def one(limits: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    keys = {f"gpu.sharing/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return pod(container(limits=limits) if limits else container(), annotations=keys or None)


def test_the_first_mode_that_a_ready_node_serves_is_taken() -> None:
    policy = profile(modes=["mig", "mps"], defaultSize="1of4")
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}
    verdict, after = judge(one(PLAIN), policy, inventory(("gpu.sharing/mps-1of4", 20389, 250)))
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    assert "no ready node serves it as mig" in verdict.grants[0].reason


def test_a_fallback_survives_a_second_pass_where_pods_may_not_choose_it() -> None:
    policy = profile(modes=["mig", "mps"], allowedModes=[])
    nodes = inventory(("gpu.sharing/mps-1of4", 20389, 250))
    verdict, _ = judge(one(PLAIN), policy, nodes)
    assert verdict.allowed, "judge() has seen the second pass"
    refused, _ = judge(one({"gpu.sharing/mps-1of4": 1}), policy, nodes)
    assert refused.code == 403


def test_all_containers_of_a_pod_fall_back_together() -> None:
    policy = profile(modes=["mig", "mps"])
    nodes = inventory(
        ("nvidia.com/mig-1g.10gb", 9984, 143),
        ("gpu.sharing/mps-1of8", 10194, 125),
        ("gpu.sharing/mps-1of2", 40779, 500),
    )
    manifest = pod(
        container("small", limits={GPU: "125m"}), container("large", limits={GPU: "500m"})
    )
    _, after = judge(manifest, policy, nodes)
    assert resources_of(after, "small") == {"gpu.sharing/mps-1of8": "1"}
    assert resources_of(after, "large") == {"gpu.sharing/mps-1of2": "1"}


def test_nodes_that_the_profile_does_not_select_serve_nothing() -> None:
    policy = profile(mode="mps", nodeSelector={"pool": "a"})
    verdict, _ = judge(one(PLAIN), policy)
    assert verdict.code == 403
    assert "no ready node offers" in verdict.message


def test_a_pod_chooses_among_the_allowed_modes() -> None:
    policy = profile(modes=["mig", "mps"], allowedModes=["mps"])
    _, after = judge(one(PLAIN, mode="mps"), policy)
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    _, after = judge(one(PLAIN, mode="mig"), policy)
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}, "the first mode needs no leave"
    verdict, _ = judge(one(PLAIN, mode="time-slicing"), policy)
    assert verdict.code == 403
    assert "metadata.annotations[gpu.sharing/mode]" in verdict.message
    assert "expected one of mps, mig" in verdict.message


def test_isolation_below_the_profile_s_is_refused() -> None:
    policy = profile(mode="mig", allowedModes=["mig", "time-slicing"], minIsolation="limits")
    verdict, _ = judge(one(PLAIN, mode="time-slicing"), policy)
    assert verdict.code == 403
    assert "gives isolation 'none'" in verdict.message
    assert "minIsolation" in verdict.message


def test_modes_that_isolate_too_little_are_passed_over() -> None:
    policy = profile(modes=["time-slicing", "mps"], minIsolation="limits")
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}


def test_only_allowed_sizes_are_given() -> None:
    policy = profile(mode="mps", allowedSizes=["1of2", "1of8"])
    _, after = judge(one(fraction="0.2"), policy)
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}
    verdict, _ = judge(one(fraction="0.75"), policy)
    assert verdict.code == 403
    assert "at most 1of2 (allowedSizes 1of8, 1of2)" in verdict.message
    verdict, _ = judge(one({"gpu.sharing/mps-1of4": 1}), policy)
    assert verdict.code == 403
    assert "expected one of 1of8, 1of2" in verdict.message


def test_only_listed_mig_profiles_are_given() -> None:
    policy = profile(mode="mig", migProfiles=["1g.10gb", "3g.40gb"])
    _, after = judge(one(fraction="0.2"), policy)
    assert resources_of(after) == {"nvidia.com/mig-3g.40gb": "1"}
    verdict, _ = judge(one(mig_profile="2g.20gb"), policy)
    assert verdict.code == 403
    assert "expected one of 1g.10gb, 3g.40gb" in verdict.message


def test_a_default_mig_profile_is_what_plain_requests_get() -> None:
    policy = profile(mode="mig", migProfile="3g.40gb")
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"nvidia.com/mig-3g.40gb": "1"}


def test_a_default_by_memory_is_what_plain_requests_get() -> None:
    policy = profile(mode="mps", memory={"default": "30Gi", "max": "40Gi"})
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}
    verdict, _ = judge(one(memory="41Gi"), policy)
    assert verdict.code == 403
    assert "expected at most 40Gi" in verdict.message


def test_a_pool_is_exact() -> None:
    policy = profile(mode="mps", pool="team-a")
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"team-a.gpu.sharing/mps-1of4": "1"}
    verdict, _ = judge(one({"gpu.sharing/mps-1of4": 1}), policy)
    assert verdict.code == 403
    assert "for example: team-a.gpu.sharing/mps-1of4: 1" in verdict.message
    verdict, _ = judge(one({"team-a.gpu.sharing/mps-1of4": 1}), "mps")
    assert verdict.code == 403
    assert "belongs to pool team-a" in verdict.message


def test_whole_gpus_are_kept_converted_or_denied() -> None:
    _, after = judge(one(PLAIN), profile(mode="mps", wholeGPU="keep"))
    assert resources_of(after) == {GPU: "1"}
    _, after = judge(one(PLAIN), profile(mode="mps", wholeGPU="convert"))
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    verdict, _ = judge(one(PLAIN), profile(mode="mps", wholeGPU="deny"))
    assert verdict.code == 403
    assert 'for example: gpu.sharing/fraction: "0.25"' in verdict.message
    verdict, _ = judge(one(PLAIN, fraction="0.5"), profile(mode="mps", wholeGPU="deny"))
    assert verdict.allowed


def test_kept_whole_gpus_may_come_from_nodes_that_are_not_ours() -> None:
    verdict, _ = judge(one(PLAIN), profile(mode="mps", wholeGPU="keep"), Inventory())
    assert verdict.allowed
    assert verdict.warnings == (), "it waits for nothing that we know of"


def test_a_kept_whole_gpu_of_a_pool_is_the_pool_s() -> None:
    policy = profile(mode="mps", wholeGPU="keep", pool="team-a")
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"team-a.gpu.sharing/gpu": "1"}


def test_several_whole_gpus_go_by_multi_gpu() -> None:
    verdict, _ = judge(one({GPU: 2}), profile(mode="mps"))
    assert verdict.code == 403
    assert "multiGPU: deny" in verdict.message
    _, after = judge(one({GPU: 2}), profile(mode="mps", multiGPU="exclusive"))
    assert resources_of(after) == {GPU: "2"}
    _, after = judge(one({GPU: 2}), "exclusive")
    assert resources_of(after) == {GPU: "2"}


def test_several_shares_become_one_that_is_as_large_or_are_refused() -> None:
    """gpu-operator#386, k8s-device-plugin#443: two shares in one request are refused too late."""
    _, after = judge(one({"gpu.sharing/mps-1of8": 2}), "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    _, after = judge(one({"nvidia.com/mig-1g.10gb": 2}), "mig")
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}
    _, after = judge(one({GPU: 2}, fraction="0.25"), "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}
    for count in (3, 4, 10**6):
        verdict, _ = judge(one({"gpu.sharing/mps-1of4": count}), "mps")
        assert verdict.code == 403
        assert "a container gets one share" in verdict.message


def test_no_node_at_all_is_a_refusal_or_a_wait_but_never_silent() -> None:
    verdict, _ = judge(one(PLAIN), "mps", Inventory())
    assert verdict.code == 403
    assert "no ready node offers" in verdict.message
    verdict, after = judge(one(PLAIN), profile(mode="mps", onUnsatisfiable="admit"), Inventory())
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    assert any("the pod waits until one does" in warning for warning in verdict.warnings)


def test_a_request_that_no_node_can_serve_names_what_is_offered() -> None:
    verdict, _ = judge(one(memory="70Gi"), "mps")
    assert verdict.code == 403
    assert "gpu.sharing/mps-1of8, gpu.sharing/mps-1of4, gpu.sharing/mps-1of2" in verdict.message


def test_a_memory_ask_that_waits_waits_for_enough_memory() -> None:
    policy = profile(mode="mps", onUnsatisfiable="admit", allowedSizes=["1of8", "1of4", "1of2"])
    _, after = judge(one(memory="70Gi"), policy)
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}
    assert "71679" in str(after["spec"]["affinity"])


def test_without_an_inventory_the_profile_alone_decides() -> None:
    verdict, after = judge(one(PLAIN), profile(mode="mps", defaultSize="1of8"), None)
    assert resources_of(after) == {"gpu.sharing/mps-1of8": "1"}
    assert any("no nodes are known" in warning for warning in verdict.warnings)
    verdict, _ = judge(one(memory="10Gi"), "mps", None)
    assert verdict.code == 403
    assert "--nodes" in verdict.message
    _, after = judge(one(mig_profile="1g.10gb"), profile(mode="mig", migProfiles=["1g.10gb"]), None)
    assert resources_of(after) == {"nvidia.com/mig-1g.10gb": "1"}


def test_memory_is_compared_with_what_a_share_has_not_with_its_label() -> None:
    """HAMi#1054: 5120 on a profile of slightly less usable memory."""
    nodes = inventory(("nvidia.com/mig-1g.10gb", 9984, 143), ("nvidia.com/mig-2g.20gb", 20096, 286))
    _, after = judge(one(memory="10Gi"), "mig", nodes)
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}


def test_half_a_gpu_is_half_of_its_memory_slices() -> None:
    nodes = inventory(
        ("nvidia.com/mig-3g.40gb", 40448, 496), ("nvidia.com/mig-4g.40gb", 40448, 572)
    )
    _, after = judge(one(fraction="0.5"), "mig", nodes)
    assert resources_of(after) == {"nvidia.com/mig-3g.40gb": "1"}


def test_the_default_of_a_plain_request_is_written_to_the_pod() -> None:
    """HAMi#2744: a count without a size must not silently be a whole card."""
    verdict, after = judge(one(PLAIN), "mps")
    record = after["metadata"]["annotations"]["status.gpu.sharing/grants"]
    assert '"resource":"gpu.sharing/mps-1of4"' in record
    assert '"request":"nvidia.com/gpu: 1"' in record
    assert "default 1of4 of profile mps" in verdict.warnings[0]


def test_accounting_adds_the_worth_of_each_share() -> None:
    policy = profile(mode="mps", modes=None, accounting=True, multiGPU="exclusive")
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1", "gpu.sharing/milli-gpu": "250"}
    _, after = judge(one({GPU: 3}), policy)
    assert resources_of(after) == {GPU: "3", "gpu.sharing/milli-gpu": "3000"}
    _, after = judge(one(mig_profile="3g.40gb"), profile(mode="mig", accounting=True))
    assert resources_of(after)["gpu.sharing/milli-gpu"] == "496"


def test_nobody_else_writes_the_accounting_resource() -> None:
    verdict, after = judge(one({**PLAIN, "gpu.sharing/milli-gpu": 1}), "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    limits = {"cpu": 1, "gpu.sharing/milli-gpu": 8000}
    verdict, after = judge(pod(container(limits=limits, requests=limits)), "mps")
    assert after["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": 1},
        "requests": {"cpu": 1},
    }
    assert "gpu.sharing/milli-gpu was removed" in verdict.warnings[0]


def test_placement_fields_are_added_and_never_overwrite() -> None:
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    policy = profile(
        mode="exclusive",
        nodeSelector={"pool": "gpus", "zone": "a"},
        tolerations=[toleration],
        runtimeClassName="nvidia",
        schedulerName="gang",
        onUnsatisfiable="admit",
    )
    _, after = judge(pod(container(limits=PLAIN), schedulerName="default-scheduler"), policy)
    spec = after["spec"]
    assert spec["nodeSelector"] == {"pool": "gpus", "zone": "a"}
    assert spec["tolerations"] == [toleration]
    assert (spec["runtimeClassName"], spec["schedulerName"]) == ("nvidia", "gang")

    own = pod(
        container(limits=PLAIN),
        nodeSelector={"zone": "b"},
        tolerations=[{"operator": "Exists"}],
        runtimeClassName="kata",
        schedulerName="mine",
    )
    verdict, after = judge(own, policy)
    spec = after["spec"]
    assert spec["nodeSelector"] == {"zone": "b", "pool": "gpus"}
    assert spec["tolerations"] == [{"operator": "Exists"}, toleration]
    assert (spec["runtimeClassName"], spec["schedulerName"]) == ("kata", "mine")
    assert sum("own stands" in warning for warning in verdict.warnings) == 3


@pytest.mark.parametrize("enforcement", ["warn", "audit"])
def test_without_enforcement_nothing_changes_and_everything_is_recorded(enforcement: str) -> None:
    policy = profile(mode="mps", enforcement=enforcement)
    known = policies(policy)
    changed = admit_pod(one(PLAIN), "policy", known, H100S)
    denied = admit_pod(one({GPU: "-1"}), "policy", known, H100S)
    for verdict in (changed, denied):
        assert verdict.allowed
        assert verdict.operations == ()
        assert bool(verdict.warnings) is (enforcement == "warn")
    assert changed.audit_annotations["would"] == "patch"
    assert changed.grants[0].resource == "gpu.sharing/mps-1of4"
    assert denied.audit_annotations["would"] == "deny"
    assert "is negative" in denied.audit_annotations["message"]


@pytest.mark.parametrize("enforcement", ["warn", "audit"])
def test_forged_status_keys_are_taken_off_whatever_the_enforcement(enforcement: str) -> None:
    """HAMi#3041: without enforcement nothing is given, so nothing may claim to be."""
    manifest = one({"gpu.sharing/mps-1of4": 1})
    manifest["metadata"]["annotations"] = {"status.gpu.sharing/grants": "[]", "mine": "1"}
    _, after = judge(manifest, profile(mode="mps", enforcement=enforcement))
    assert after["metadata"]["annotations"] == {"mine": "1"}
    assert after["spec"] == manifest["spec"]


def test_a_missing_or_broken_profile_denies_gpus_by_name_and_nothing_else() -> None:
    known = Policies(
        namespaces={
            "lost": {"gpu.sharing/profile": "gone"},
            "torn": {"gpu.sharing/profile": "bad"},
            "odd": {"gpu.sharing/mode": "vgpu"},
        },
        profiles={"bad": BrokenProfile(name="bad", error="field spec.mode is 'x'")},
    )
    for namespace, words in {
        "lost": "no SharingProfile gone",
        "torn": "field spec.mode is 'x'",
        "odd": "'vgpu', which is no mode",
    }.items():
        verdict = admit_pod(one(PLAIN), namespace, known, H100S)
        assert verdict.code == 403
        assert words in verdict.message
        assert admit_pod(one(), namespace, known, H100S).allowed
        unread = admit_pod(one({GPU: "-1"}), namespace, known, H100S)
        assert words in unread.message, "what cannot be read may be for GPUs"


def test_a_namespace_without_a_label_is_untouched() -> None:
    for limits in (PLAIN, {"gpu.sharing/mps-1of4": 1}, {GPU: "250m"}):
        verdict, after = judge(one(limits), "free")
        assert after == one(limits)
        assert bool(verdict.warnings) == ("gpu.sharing/mps-1of4" in limits)
    verdict, after = judge(one(PLAIN, fraction="0.5"), "free")
    assert "gpu.sharing/fraction is not read" in verdict.warnings[0]


def test_two_gpu_models_are_told_apart_by_their_memory() -> None:
    """KAI#1792: the smallest GPU used where the largest was meant."""
    t4, h100 = 15360, H100_MIB
    nodes = Inventory(
        (
            inventory(("gpu.sharing/mps-1of2", t4 // 2, 500)).nodes[0],
            inventory(("gpu.sharing/mps-1of2", h100 // 2, 500)).nodes[0],
        )
    )
    verdict, after = judge(one(memory="30Gi"), "mps", nodes)
    assert verdict.allowed
    assert "30719" in str(after["spec"]["affinity"])


def test_the_patch_is_what_changes_and_the_verdict_says_so() -> None:
    """attune#719: a patch is present exactly where something changes."""
    manifest = one(PLAIN)
    verdict, after = judge(manifest, "mps")
    assert verdict.kind == "patch"
    assert apply(verdict, manifest) == after != manifest
