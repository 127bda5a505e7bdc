"""Which process counts for which share, what stays unclear, and who takes more than is his."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.mode import Mode
from sharing.node.cgroup import Place
from sharing.node.checkpoint import Entry, PodName
from sharing.node.excess import Excess, ExcessPolicy, excesses
from sharing.node.held import Hold, Holder
from sharing.node.podseen import by_uid, seen_pod
from sharing.node.seats import seats_of
from sharing.node.usage import Accounts, Lingering, Register, Seat, ShareUse, Task, account
from sharing.share import Share
from sharing.shareclass import ShareClass
from sharing.size import OneOf

A, B, C = "GPU-a::0", "GPU-a::1", "GPU-b"
GPUS = frozenset({"GPU-a", "GPU-b"})
REGISTER = Register(
    seats=(
        Seat(device_id=A, pod_uid="pod-a", container="main"),
        Seat(device_id=B, pod_uid="pod-b", container="main"),
    ),
    living=frozenset({"pod-a", "pod-b", "exporter"}),
    former={A: "pod-a", B: "pod-b", C: "gone"},
)


def task(pid: int, *pods: str, gpu: str = "GPU-a", **more: Any) -> Task:
    places = tuple(Place(pod_uid=one) for one in pods)
    fields: dict[str, Any] = {"pid": pid, "gpu": gpu, "memory_mib": 100, "places": places}
    return Task(**fields | more)


def count(*tasks: Task, register: Register = REGISTER) -> Accounts:
    return account(tasks, register, GPUS)


def test_a_process_counts_for_the_share_of_its_pod() -> None:
    found = count(task(1, "pod-a"), task(2, "pod-a"), task(3, "pod-b", memory_mib=7))

    assert found.uses[A] == ShareUse(device_id=A, pids=(1, 2), memory_mib=200)
    assert found.uses[B].memory_mib == 7


def test_a_share_without_processes_uses_nothing_and_a_gpu_that_is_silent_has_no_figure() -> None:
    assert account([], REGISTER, {"GPU-a"}).uses[A].memory_mib == 0
    assert account([], REGISTER, {"GPU-b"}).uses == {}


def test_memory_that_the_driver_does_not_tell_makes_the_sum_unknown() -> None:
    found = count(task(1, "pod-a"), task(2, "pod-a", memory_mib=None))

    assert found.uses[A].memory_mib is None


def test_a_process_that_computes_and_draws_counts_once() -> None:
    assert count(task(1, "pod-a"), task(1, "pod-a")).uses[A].memory_mib == 100


def test_time_on_the_gpu_is_summed_and_unknown_where_it_cannot_be_told() -> None:
    busy = count(task(1, "pod-a", sm_percent=20), task(2, "pod-a", sm_percent=5))

    assert busy.uses[A].sm_percent == 25
    assert count(task(1, "pod-a", sm_percent=None)).uses[A].sm_percent is None
    assert count().uses[A].sm_percent is None


def test_mps_clients_are_counted() -> None:
    found = count(task(1, "pod-a", is_mps_client=True), task(2, "pod-a"))

    assert found.uses[A].mps_clients == 1


def test_the_nodes_own_processes_and_pods_without_a_share_are_strangers() -> None:
    found = count(task(1), task(2, "exporter"), task(3, "pod-a", gpu="GPU-b"))

    assert found.strangers == {"GPU-a": 2, "GPU-b": 1}
    assert found.lingering == ()
    assert all(use.memory_mib == 0 for use in found.uses.values())


def test_an_ended_pods_process_keeps_its_share_from_others() -> None:
    found = count(task(9, "gone", gpu="GPU-b"))

    assert found.lingering == (Lingering(place=C, pid=9, pod_uid="gone"),)
    assert "process 9 of pod gone, which has ended" in found.withheld[C]


def test_without_knowing_which_share_it_was_all_free_ones_of_the_gpu_are_kept() -> None:
    found = count(task(9, "nobody-knows"))

    assert found.lingering == (Lingering(place="GPU-a", pid=9, pod_uid="nobody-knows"),)


def test_where_nobody_can_tell_who_lives_only_a_former_holder_lingers() -> None:
    blind = replace(REGISTER, living=None)

    assert count(task(9, "nobody-knows"), register=blind).lingering == ()
    assert count(task(9, "gone", gpu="GPU-b"), register=blind).withheld.keys() == {C}


def test_the_pods_that_the_node_lies_in_are_nobodys() -> None:
    nested = replace(REGISTER, ambient=frozenset({"outer"}))

    assert count(task(1, "outer"), register=nested).strangers == {"GPU-a": 1}
    assert count(task(1, "outer", "pod-a"), register=nested).uses[A].pids == (1,)


def test_a_pods_two_shares_on_one_gpu_are_told_apart_by_container_or_not_at_all() -> None:
    both = Register(
        seats=(
            Seat(device_id=A, pod_uid="pod-a", container="one"),
            Seat(device_id=B, pod_uid="pod-a", container="two"),
        ),
        living=frozenset({"pod-a"}),
        containers={"id-two": "two"},
    )
    known = Task(
        pid=1,
        gpu="GPU-a",
        memory_mib=5,
        places=(Place(pod_uid="pod-a", container_id="id-two"),),
    )

    told = count(known, register=both).uses
    assert (told[A].memory_mib, told[B].memory_mib) == (0, 5)
    unclear = count(known, task(2, "pod-a"), register=both).uses
    assert (unclear[A].memory_mib, unclear[B].memory_mib) == (None, None)


def test_in_mig_mode_the_instance_decides() -> None:
    mig = Register(
        seats=(Seat(device_id="GPU-a::1g.10gb-0", pod_uid="pod-a", container="main"),),
        living=frozenset({"pod-a", "pod-b"}),
    )
    mine = task(1, "pod-a", in_instance=True, device_id="GPU-a::1g.10gb-0")
    others = task(2, "pod-b", in_instance=True, device_id="GPU-a::1g.10gb-0")
    elsewhere = task(3, "pod-a", in_instance=True, device_id="GPU-a::1g.10gb-1")
    ended = task(4, "dead", in_instance=True, device_id="GPU-a::1g.10gb-1")

    found = count(mine, others, elsewhere, ended, register=mig)
    assert found.uses["GPU-a::1g.10gb-0"].pids == (1,)
    assert found.strangers == {"GPU-a": 2}
    assert found.withheld.keys() == {"GPU-a::1g.10gb-1"}


TASKS = st.lists(
    st.builds(
        task,
        st.integers(1, 6),
        st.sampled_from(["pod-a", "pod-b", "exporter", "gone", "unknown"]),
        gpu=st.sampled_from(["GPU-a", "GPU-b"]),
        memory_mib=st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=12,
    unique_by=lambda one: (one.pid, one.gpu),
)


@given(TASKS, st.randoms())
def test_no_memory_is_counted_twice_or_for_somebody_else(tasks: list[Task], random: Any) -> None:
    found = count(*tasks)
    shuffled = list(tasks)
    random.shuffle(shuffled)

    assert count(*shuffled) == found
    for device_id, pod in ((A, "pod-a"), (B, "pod-b")):
        mine = [one for one in tasks if one.places[0].pod_uid == pod and one.gpu == "GPU-a"]
        use = found.uses[device_id]
        assert set(use.pids) == {one.pid for one in mine}
        if use.memory_mib is not None:
            assert use.memory_mib == sum(one.memory_mib or 0 for one in mine)
    kept = {one.pid for one in found.lingering}
    assert kept == {one.pid for one in tasks if one.places[0].pod_uid in ("gone", "unknown")}


# -- who sits where


def hold(device_id: str, pod: str | None) -> Hold:
    holder = None if pod is None else Holder(namespace="ns", pod=pod, container="main")
    return Hold(device_id=device_id, resource="r", holder=holder)


def entry(uid: str, *device_ids: str, container: str = "main") -> Entry:
    return Entry(pod_uid=uid, container=container, resource="r", device_ids=device_ids)


def test_the_api_server_knows_a_holders_uid_and_the_checkpoint_where_it_is_away() -> None:
    holds = [hold(A, "train"), hold(B, None)]
    entries = [entry("by-kubelet", A), entry("init", B, container="setup")]
    pods = {"by-api": PodName(namespace="ns", name="train")}

    assert [one.pod_uid for one in seats_of(holds, entries, pods)] == ["by-api", "init"]
    assert [one.pod_uid for one in seats_of(holds, entries, None)] == ["by-kubelet", "init"]


def test_an_entry_of_a_pod_that_holds_nothing_any_more_is_no_seat() -> None:
    assert seats_of([], [entry("ended", A)], None) == ()


def pod(uid: str, name: str, **metadata: Any) -> Any:
    return seen_pod({"metadata": {"uid": uid, "namespace": "ns", "name": name, **metadata}})


def test_a_static_pod_is_found_by_the_kubelets_name_and_nobody_takes_anothers_by_claiming_it() -> (
    None
):
    mirror = {"annotations": {"kubernetes.io/config.mirror": "digest"}}
    thief = {"annotations": {"kubernetes.io/config.mirror": "victim-uid"}}

    found = by_uid([pod("m", "static", **mirror), pod("victim-uid", "v"), pod("t", "t", **thief)])
    assert found["digest"].name == "static"
    assert found["victim-uid"].name == "v"


def test_containers_are_named_by_the_runtimes_digits() -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "main", "containerID": "containerd://abc"},
            {"name": "starts"},
        ],
    }

    seen = seen_pod({"metadata": {"uid": "u"}, "status": status})
    assert seen.containers == {"abc": "main"}


# -- who takes more than is his


POLICY = ExcessPolicy(allowance_percent=10, grace_s=30.0)


def share(mode: Mode, memory_mib: int = 1000) -> Share:
    size = None if mode is Mode.EXCLUSIVE else OneOf(4)
    return Share(
        device_id=A,
        gpu_uuid="GPU-a",
        share_class=ShareClass(mode=mode, size=size),
        memory_mib=memory_mib,
    )


def look(
    before: dict[str, Excess], used: int | None, now: float, mode: Mode = Mode.TIME_SLICING
) -> dict[str, Excess]:
    uses = {A: ShareUse(device_id=A, pids=(7,), memory_mib=used)}
    return excesses(before, {A: share(mode)}, uses, now=now, policy=POLICY)


def test_a_peak_is_no_excess_and_what_lasts_is() -> None:
    first = look({}, 1101, 100.0)
    later = look(first, 1500, 130.0)

    assert not first[A].lasting
    assert later[A].lasting
    assert (later[A].since, later[A].used_mib, later[A].budget_mib) == (100.0, 1500, 1000)
    assert look(later, 1100, 131.0) == {}


@pytest.mark.parametrize("mode", [Mode.MPS, Mode.TIME_SLICING])
def test_where_nothing_keeps_a_pod_within_its_share_there_is_a_budget(mode: Mode) -> None:
    assert look({}, 5000, 0.0, mode).keys() == {A}


def test_a_whole_gpu_has_no_budget() -> None:
    assert look({}, 5000, 0.0, Mode.EXCLUSIVE) == {}


def test_a_figure_that_is_missing_changes_nothing() -> None:
    first = look({}, 5000, 0.0)

    assert look(first, None, 50.0) == first
    assert look({}, None, 50.0) == {}


def test_whoever_takes_the_share_next_begins_anew() -> None:
    first = look({}, 5000, 0.0)
    next_one = {A: ShareUse(device_id=A, pids=(8,), memory_mib=5000)}
    both = {A: ShareUse(device_id=A, pids=(7, 8), memory_mib=5000)}

    assert excesses(first, {A: share(Mode.MPS)}, {}, now=99.0, policy=POLICY) == {}
    shares = {A: share(Mode.MPS)}
    assert not excesses(first, shares, next_one, now=99.0, policy=POLICY)[A].lasting
    assert excesses(first, shares, both, now=99.0, policy=POLICY)[A].lasting


def test_a_clock_that_goes_back_takes_no_time_off() -> None:
    assert look(look({}, 5000, 100.0), 5000, 50.0)[A].since == 50.0
