"""Kin of reported faults: requests that others drop, misread or leave to wait for ever."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from sharing.inventory import Inventory
from tests.support.judging import (
    H100_MIB,
    H100S,
    container,
    inventory,
    judge,
    pod,
    policies,
    profile,
    resources_of,
)
from webhook.admission import admit_pod, admit_workload
from webhook.verdict import render

GPU = "nvidia.com/gpu"
HALVES = inventory(
    ("gpu.sharing/mps-1of2", H100_MIB // 2, 500), ("nvidia.com/mig-2g.20gb", 20096, 286)
)
ZONED = Inventory(tuple(replace(node, labels={"zone": "a"}) for node in H100S.nodes))
MOVING = profile(mode="mps", compatibility=["hami", "kai", "aliyun", "volcano"])


def given(manifest: dict[str, Any], governed_by: Any = "mps", **known: Any) -> dict[str, str]:
    verdict, after = judge(manifest, governed_by, **known)
    assert verdict.allowed, verdict.message
    return resources_of(after)


@pytest.mark.parametrize("fields", [{"wholeGPU": "keep"}, {"multiGPU": "exclusive"}])
def test_whole_gpus_of_a_pool_are_looked_for_among_its_nodes(fields: dict[str, str]) -> None:
    # KAI#848: what no node has is let in and waits for ever. A pool's GPUs are served by us alone.
    count = "2" if "multiGPU" in fields else "1"
    asking = pod(container(limits={GPU: count}))
    own = profile(mode="mps", pool="team-b", **fields)
    refused, _ = judge(asking, own)
    assert refused.code == 403
    assert "no ready node offers a whole GPU in mode exclusive" in refused.message
    two = inventory(*[("team-b.gpu.sharing/gpu", H100_MIB, 1000)] * 2)
    assert given(asking, own, nodes=two) == {"team-b.gpu.sharing/gpu": count}
    assert given(asking, profile(mode="mps", **fields)) == {GPU: count}


def test_more_whole_gpus_than_a_node_of_the_pool_has_are_refused() -> None:
    own = profile(mode="mps", pool="team-a", multiGPU="exclusive")
    refused, _ = judge(pod(container(limits={GPU: "2"})), own)
    assert "no single ready node" in refused.message


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        ({"gpu.sharing/mps-1of4": "2"}, {}),
        ({GPU: "2"}, {"gpu.sharing/fraction": "1/4"}),
        ({GPU: "2"}, {"gpu.sharing/memory": "10Gi"}),
        ({GPU: "4"}, {"gpu.sharing/fraction": "1/8"}),
    ],
)
def test_several_shares_become_one_that_is_offered_though_none_of_them_is(
    limits: dict[str, str], annotations: dict[str, str]
) -> None:
    # NDP#443: two units in one container. Two quarters are a half, where only halves are cut too.
    asking = pod(container(limits=limits), annotations=annotations)
    assert given(asking, nodes=HALVES) == {"gpu.sharing/mps-1of2": "1"}


@pytest.mark.parametrize(
    ("limits", "annotations", "mode"),
    [
        ({"gpu.sharing/mps-1of4": "3"}, {}, "mps"),
        ({GPU: "3"}, {"gpu.sharing/fraction": "1/4"}, "mps"),
        ({GPU: "2"}, {"gpu.sharing/memory": "30Gi"}, "mps"),
        ({"nvidia.com/mig-1g.5gb": "2"}, {}, "mig"),
    ],
)
def test_several_shares_that_make_no_share_are_refused_still(
    limits: dict[str, str], annotations: dict[str, str], mode: str
) -> None:
    refused, _ = judge(pod(container(limits=limits), annotations=annotations), mode, HALVES)
    assert "times as large" in refused.message


def test_the_most_memory_bounds_what_a_container_asks_for_in_all() -> None:
    # HAMi#2468: a bound on each of several is no bound.
    bounded = profile(mode="mps", memory={"max": "20Gi"})
    asking = pod(container(limits={GPU: "2"}), annotations={"gpu.sharing/memory": "15Gi"})
    refused, _ = judge(asking, bounded)
    assert "it is more than profile policy allows (memory.max); expected at most 20Gi" in (
        refused.message
    )
    asking["metadata"]["annotations"]["gpu.sharing/memory"] = "9Gi"
    assert given(asking, bounded) == {"gpu.sharing/mps-1of4": "1"}


def test_mig_profiles_that_nobody_offers_become_the_one_that_has_both() -> None:
    asking = pod(container(limits={"nvidia.com/mig-1g.10gb": "2"}))
    assert given(asking, "mig", nodes=HALVES) == {"nvidia.com/mig-2g.20gb": "1"}


def test_a_count_of_zero_takes_the_sizes_beside_it_along() -> None:
    # HAMi#2739, volcano#3867: a size beside a count of zero is no request.
    for count, memory in (
        (GPU, "nvidia.com/gpumem"),
        ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"),
        ("aliyun.com/gpu-count", "aliyun.com/gpu-mem"),
    ):
        verdict, after = judge(pod(container(limits={count: "0", memory: "3000"})), MOVING)
        assert verdict.grants == ()
        assert memory not in resources_of(after)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        # gpushare-scheduler-extender#11: 10G where a number of units is expected.
        ({"aliyun.com/gpu-mem": "10G"}, "9537Mi"),
        ({GPU: "1", "nvidia.com/gpumem": "3G"}, "2862Mi"),
        # The API server writes 16k for 16000.
        ({GPU: "1", "nvidia.com/gpumem": "16k"}, "16000Mi"),
    ],
)
def test_memory_in_bytes_of_another_system_is_read_as_bytes(
    limits: dict[str, str], words: str
) -> None:
    verdict, _ = judge(pod(container(limits=limits)), MOVING)
    assert words in verdict.grants[0].reason


def test_no_resource_of_a_system_that_is_read_stays_to_wait_for_ever() -> None:
    # HAMi#2468, cGPU: a second resource that no node offers any more.
    limits = {"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-core.percentage": "30"}
    assert given(pod(container(limits=limits)), MOVING) == {"gpu.sharing/mps-1of2": "1"}
    placed = pod(container(), annotations={"gpu-fraction": "0.5"}, schedulerName="runai-scheduler")
    assert judge(placed, MOVING)[1]["spec"]["schedulerName"] == "default-scheduler"


def test_a_size_that_gives_way_to_a_fraction_is_told() -> None:
    limits = {GPU: "500m", "nvidia.com/gpumem": "3000"}
    verdict, _ = judge(pod(container(limits=limits)), MOVING)
    told = "nvidia.com/gpumem: 3000 is not carried over: nvidia.com/gpu: 500m says the size"
    assert told in verdict.warnings


def terms_of(manifest: dict[str, Any]) -> Any:
    node = manifest["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")


def above(label: str, mib: int) -> dict[str, Any]:
    return {"key": f"gpu.sharing/{label}.memory-mib", "operator": "Gt", "values": [str(mib - 1)]}


ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize("own", [[], [ZONE]])
def test_a_pod_that_comes_back_under_another_policy_is_not_bound_to_the_share_before(
    own: list[dict[str, Any]],
) -> None:
    # bank-vaults#1352, velero#6384: restored as it was, it would wait for nodes of both classes.
    asking = pod(container(), annotations={"gpu.sharing/memory": "12Gi"})
    if own:
        term = {"nodeSelectorTerms": [{"matchExpressions": own}]}
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        asking["spec"]["affinity"] = {"nodeAffinity": {key: term}}
    _, first = judge(asking, "mps", ZONED)
    assert terms_of(first) == [{"matchExpressions": [*own, above("mps-1of4", 12 * 1024)]}]
    _, moved = judge(first, "mig", ZONED)
    assert terms_of(moved) == [{"matchExpressions": [*own, above("mig-2g.20gb", 12 * 1024)]}]
    first["metadata"]["annotations"]["gpu.sharing/memory"] = "6Gi"
    _, smaller = judge(first, "mps", ZONED)
    assert terms_of(smaller) == [{"matchExpressions": [*own, above("mps-1of8", 6 * 1024)]}]
    del first["metadata"]["annotations"]["gpu.sharing/memory"]
    first["metadata"]["annotations"]["gpu.sharing/fraction"] = "1/2"
    _, free = judge(first, "mps", ZONED)
    assert terms_of(free) == ([{"matchExpressions": own}] if own else None)


def test_conditions_on_memory_that_the_author_wrote_stay() -> None:
    mine = above("mps-1of4", 16 * 1024)
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {key: {"nodeSelectorTerms": [{"matchExpressions": [mine]}]}}}
    plain = pod(container(limits={GPU: "1"}), affinity=affinity)
    assert terms_of(judge(plain, "mps")[1]) == [{"matchExpressions": [mine]}]
    asking = pod(container(), annotations={"gpu.sharing/memory": "12Gi"}, affinity=affinity)
    both = [mine, above("mps-1of4", 12 * 1024)]
    assert terms_of(judge(asking, "mps")[1]) == [{"matchExpressions": both}]


MANY = 20_000


@pytest.mark.parametrize(
    ("containers", "annotations"),
    [
        # istio#34799, #44933: work that grows with the square of what a tenant writes.
        ([container(f"c{n}", limits={GPU: "1"}) for n in range(MANY)], {}),
        ([container(limits={f"p{n}.gpu.sharing/mps-1of4": "0" for n in range(MANY)})], {}),
        ([container()], {f"c{n}.gpu.sharing/fraction": "1/2" for n in range(MANY)}),
    ],
)
def test_a_pod_that_keeps_others_waiting_is_refused_soon(
    containers: list[dict[str, Any]], annotations: dict[str, str]
) -> None:
    began = time.process_time()
    verdict = admit_pod(pod(*containers, annotations=annotations), "mps", policies(), H100S)
    assert time.process_time() - began < 1
    assert verdict.code == 422
    assert "expected" in verdict.message


def test_a_template_of_thousands_of_fractions_is_answered_soon() -> None:
    quarters = [container(f"c{n}", limits={GPU: "250m"}) for n in range(2000)]
    spec = {"template": {"spec": {"containers": quarters}}}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}
    began = time.process_time()
    verdict = admit_workload(manifest, "mps", policies(), H100S)
    assert time.process_time() - began < 1
    assert len(verdict.operations) == 2000 + 2
    spec["template"]["spec"]["containers"] = quarters * 2
    assert admit_workload(manifest, "mps", policies(), H100S).operations == ()


def test_no_answer_is_longer_than_what_an_api_server_tells() -> None:
    named = {f"p{n}.gpu.sharing/mps-1of4": "1" for n in range(1000)}
    verdict = admit_pod(pod(container(limits=named)), "free", policies(), H100S)
    assert len(render(verdict, "u")["response"]["warnings"]) == 128
