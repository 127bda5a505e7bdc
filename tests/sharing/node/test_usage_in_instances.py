"""Which process counts for which share where MIG instances are cut further."""

from __future__ import annotations

from dataclasses import replace

from sharing.catalogue import load
from sharing.layout import EXCLUSIVE_LAYOUT
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.cgroup import Place
from sharing.node.health import Ailment
from sharing.node.held import Hold, Holder
from sharing.node.offer import GpuOffer
from sharing.node.plan import GpuPlan
from sharing.node.status import GpuReport
from sharing.node.target import Target
from sharing.node.usage import Register, Seat, Task, account
from sharing.share import Share
from sharing.shareclass import ShareClass
from sharing.size import OneOf
from tests.support.nodeworld import bare_gpu

GPUS = frozenset({"GPU-a"})
ILL = Ailment(reason="Xid94", message="contained", since=0.0, last=0.0)
INSTANCE = "GPU-a::3g.40gb-4"
HALVES = (f"{INSTANCE}::0", f"{INSTANCE}::1")


def inside(pid: int, *pods: str, instance: str = INSTANCE) -> Task:
    """A process in a MIG instance that is cut."""
    return Task(
        pid=pid,
        gpu="GPU-a",
        memory_mib=100,
        device_id=instance,
        in_instance=True,
        is_mps_client=True,
        places=tuple(Place(pod_uid=one) for one in pods),
    )


def test_processes_in_a_cut_instance_count_for_the_parts_of_their_pods() -> None:
    register = Register(
        seats=tuple(
            Seat(device_id=device_id, pod_uid=pod, container="main")
            for device_id, pod in zip(HALVES, ("pod-a", "pod-b"), strict=True)
        ),
        living=frozenset({"pod-a", "pod-b"}),
        former={HALVES[0]: "gone"},
    )
    found = account(
        [
            inside(1, "pod-a"),
            inside(2, "pod-b"),
            inside(3, "pod-b", instance="GPU-a::1g.10gb-0"),
        ],
        register,
        GPUS,
        busy={INSTANCE: 80},
    )
    assert {one: use.pids for one, use in found.uses.items()} == {HALVES[0]: (1,), HALVES[1]: (2,)}
    assert found.uses[HALVES[0]].mps_clients == 1
    assert found.uses[HALVES[0]].sm_percent is None, "how busy the instance is says nothing of it"
    assert found.strangers == {"GPU-a": 1}


def test_an_ended_pods_process_keeps_its_part_or_the_whole_instance_where_that_is_not_known() -> (
    None
):
    register = Register(seats=(), living=frozenset(), former={HALVES[1]: "gone"})
    found = account([inside(1, "gone"), inside(2, "nobody")], register, GPUS)
    assert [(one.place, one.pid) for one in found.lingering] == [(INSTANCE, 2), (HALVES[1], 1)]


def test_a_process_of_nobody_known_keeps_all_free_parts_of_its_instance() -> None:
    cut = ShareClass(mode=Mode.MPS, size=OneOf(2), cut_from=MigProfile.parse("3g.40gb"))
    free, held, beside = (
        Share(device_id=one, gpu_uuid="GPU-a", share_class=cut, memory_mib=1)
        for one in (*HALVES, "GPU-a::3g.40gb-0::0")
    )
    holder = Holder(namespace="ns", pod="p", container="main")
    report = GpuReport(
        gpu=bare_gpu(load().board("H100-80GB"), "GPU-a"),
        plan=GpuPlan(gpu="GPU-a", target=Target(layout=EXCLUSIVE_LAYOUT)),
        offer=GpuOffer(gpu="GPU-a"),
        holds=(Hold(device_id=held.device_id, resource=cut.resource_name, holder=holder),),
        withheld={INSTANCE: "process 2 still uses it"},
    )
    assert [report.why_withheld(one) for one in (free, held, beside)] == [
        "process 2 still uses it", "", "",
    ]  # fmt: skip
    assert not report.is_healthy(free)
    ill = replace(report, withheld={}, ailments={INSTANCE: ILL})
    assert [ill.is_healthy(one) for one in (free, held, beside)] == [False, False, True]
