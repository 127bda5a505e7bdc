"""What is said about profiles, and which pods leave a faulty GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sharing.api.node import GpuNodeStatus
from sharing.controller.faults import Eviction, due_now, evictions
from sharing.controller.pods import Granted, PodSeen, grants_of
from sharing.controller.profiles import profile_outcomes
from sharing.controller.reading import seen_layout, seen_profile
from sharing.names import GRANTS_ANNOTATION, PROFILE_LABEL

GOVERNED = {"team-a": {PROFILE_LABEL: "shared"}, "team-b": {PROFILE_LABEL: "other"}, "free": {}}


def profile(name: str, **spec: Any) -> Any:
    return seen_profile({"metadata": {"name": name, "generation": 3}, "spec": spec})


def pod(namespace: str, name: str, *resources: str, finished: bool = False) -> PodSeen:
    grants = tuple(Granted(profile="shared", resource=resource) for resource in resources)
    return PodSeen(namespace=namespace, name=name, uid=name, finished=finished, grants=grants)


def test_a_profile_counts_its_namespaces_pods_and_grants() -> None:
    pods = [
        pod("team-a", "one", "gpu.sharing/mps-1of4", "gpu.sharing/mps-1of4"),
        pod("team-a", "two", "gpu.sharing/mps-1of2"),
        pod("team-a", "gone", "gpu.sharing/mps-1of2", finished=True),
    ]

    (outcome,) = profile_outcomes([profile("shared", mode="mps")], GOVERNED, pods)

    assert outcome.ready
    assert outcome.namespace_count == 1
    assert [(one.name, one.pods) for one in outcome.namespaces] == [("team-a", 2)]
    assert [(one.resource, one.containers) for one in outcome.grants] == [
        ("gpu.sharing/mps-1of2", 1),
        ("gpu.sharing/mps-1of4", 2),
    ]


def test_a_broken_profile_says_which_field_is_wrong() -> None:
    (outcome,) = profile_outcomes([profile("shared", mode="mpss")], GOVERNED, [])

    assert not outcome.ready
    assert outcome.reason == "Invalid"
    assert "mode" in outcome.message


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[{"profile": 1}]', "[" * 5000, 7])
def test_a_record_of_grants_that_reads_badly_counts_nothing_and_breaks_nothing(
    text: object,
) -> None:
    assert len(grants_of({GRANTS_ANNOTATION: text})) <= 1


def test_grants_are_read_from_the_webhooks_record() -> None:
    record = json.dumps([{"profile": "shared", "resource": "nvidia.com/gpu", "container": "c"}])

    assert grants_of({GRANTS_ANNOTATION: record}) == (
        Granted(profile="shared", resource="nvidia.com/gpu", container="c"),
    )


def test_a_malformed_layout_is_kept_with_its_complaint() -> None:
    seen = seen_layout({"metadata": {"name": "l"}, "spec": {"gpus": [{"gpus": "x"}]}})

    assert seen.spec is None
    assert "GPULayout l" in seen.complaint


def status(*, healthy: bool, reason: str = "Xid79") -> GpuNodeStatus:
    holders = [
        {"namespace": "team-a", "pod": "train", "container": "main"},
        {"namespace": "free", "pod": "other", "container": "main"},
    ]
    share = {"id": "GPU-a::0", "resource": "r", "memoryMiB": 1, "holders": holders}
    gpu = {
        "index": 0,
        "uuid": "GPU-a",
        "board": "b",
        "product": "p",
        "memoryMiB": 1,
        "health": {"healthy": healthy, "reason": reason},
        "shares": [share],
    }
    return GpuNodeStatus.model_validate({"gpus": [gpu]})


def test_pods_leave_a_faulty_gpu_where_their_profile_says_so() -> None:
    evicting = profile("shared", mode="mps", onFault="evict")

    (eviction,) = evictions({"n1": status(healthy=False)}, GOVERNED, [evicting])
    assert (eviction.namespace, eviction.pod) == ("team-a", "train")
    assert "Xid79" in eviction.reason


def test_nobody_leaves_a_healthy_or_cordoned_gpu_or_by_default() -> None:
    evicting = profile("shared", mode="mps", onFault="evict")
    ignoring = profile("shared", mode="mps")

    assert evictions({"n1": status(healthy=True)}, GOVERNED, [evicting]) == ()
    assert evictions({"n1": status(healthy=False, reason="Cordoned")}, GOVERNED, [evicting]) == ()
    assert evictions({"n1": status(healthy=False)}, GOVERNED, [ignoring]) == ()


@pytest.mark.parametrize("reason", ["DriverUnavailable", "GpuUnreadable", "Unreadable"])
def test_nobody_leaves_a_gpu_of_which_the_driver_merely_does_not_answer(reason: str) -> None:
    evicting = profile("shared", mode="mps", onFault="evict")

    assert evictions({"n1": status(healthy=False, reason=reason)}, GOVERNED, [evicting]) == ()


def test_only_the_pods_of_a_faulty_mig_instance_leave() -> None:
    fault = {"healthy": False, "reason": "Xid94", "xid": 94, "action": "RESTART_APP"}
    holders = [{"namespace": "team-a", "pod": name, "container": "c"} for name in ("ill", "well")]
    shares = [
        {"id": "a", "resource": "r", "memoryMiB": 1, "holders": [holders[0]], "fault": fault},
        {"id": "b", "resource": "r", "memoryMiB": 1, "holders": [holders[1]]},
    ]
    gpu = {"index": 0, "uuid": "G", "board": "b", "product": "p", "memoryMiB": 1, "shares": shares}
    found = evictions(
        {"n1": GpuNodeStatus.model_validate({"gpus": [gpu]})},
        GOVERNED,
        [profile("shared", mode="mig", onFault="evict")],
    )

    assert [one.pod for one in found] == ["ill"]
    assert "Xid94" in found[0].reason
    assert "RESTART_APP" in found[0].reason


def over_budget(since: str | None) -> dict[str, GpuNodeStatus]:
    holder = {"namespace": "team-a", "pod": "greedy", "container": "main"}
    share = {"id": "a", "resource": "r", "memoryMiB": 100, "holders": [holder]}
    share |= {} if since is None else {"overBudgetSince": since}
    gpu = {"index": 0, "uuid": "G", "board": "b", "product": "p", "memoryMiB": 1, "shares": [share]}
    return {"n1": GpuNodeStatus.model_validate({"gpus": [gpu]})}


def test_a_pod_above_its_budget_leaves_where_its_profile_says_so() -> None:
    evicting = profile("shared", mode="time-slicing", onMemoryExcess="evict")
    since = "2026-01-02T00:00:00Z"

    (eviction,) = evictions(over_budget(since), GOVERNED, [evicting])
    assert (eviction.pod, eviction.since, eviction.event) == ("greedy", since, "MemoryOverBudget")
    assert "than the 100 MiB of its share" in eviction.reason
    assert evictions(over_budget(None), GOVERNED, [evicting]) == ()
    faults_only = profile("shared", mode="time-slicing", onFault="evict")
    assert evictions(over_budget(since), GOVERNED, [faults_only]) == ()


def test_whoever_got_a_share_that_an_ended_pod_still_uses_stays() -> None:
    holder = {"namespace": "team-a", "pod": "next", "container": "main"}
    fault = {"healthy": False, "reason": "StillInUse"}
    share = {"id": "a", "resource": "r", "memoryMiB": 1, "holders": [holder], "fault": fault}
    gpu = {"index": 0, "uuid": "G", "board": "b", "product": "p", "memoryMiB": 1, "shares": [share]}
    statuses = {"n1": GpuNodeStatus.model_validate({"gpus": [gpu]})}

    evicting = profile("shared", mode="mps", onFault="evict")
    assert evictions(statuses, GOVERNED, [evicting]) == ()


@pytest.mark.parametrize(
    ("pod_", "concerned"),
    [
        (PodSeen(namespace="n", name="web-0", uid="1", node="n1", created="2026-01-01"), True),
        (PodSeen(namespace="n", name="web-0", uid="2", node="n1", created="2026-01-03"), False),
        (PodSeen(namespace="n", name="web-0", uid="2", node="n2", created="2026-01-01"), False),
        (PodSeen(namespace="n", name="web-0", uid="1", node="n1", finished=True), False),
        (None, False),
    ],
)
def test_a_namesake_that_came_after_the_fault_is_not_evicted(
    pod_: PodSeen | None, concerned: bool
) -> None:
    eviction = Eviction(namespace="n", pod="web-0", node="n1", reason="r", since="2026-01-02")

    assert eviction.concerns(pod_) is concerned


def test_evictions_are_spread_over_time() -> None:
    wanted = [Eviction(namespace="n", pod=str(n), node="n1", reason="r") for n in range(5)]

    now, wait_s = due_now(wanted, [], 100.0, 3)
    assert ([one.pod for one in now], wait_s) == (["0", "1", "2"], 60.0)
    assert due_now(wanted, [50.0, 70.0, 90.0], 100.0, 3) == ((), 10.0)
    assert due_now(wanted[:1], [30.0, 70.0, 90.0], 100.0, 3) == (tuple(wanted[:1]), float("inf"))
