"""What a look at a GPU shows, whom an event concerns, and who forgets whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharing import catalogue
from sharing.board import Placement
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.gpus import Sighting
from sharing.node.health import HealthPolicy, State
from sharing.node.held import Hold, Holder
from sharing.node.infirmary import CoTenantsEnded, HealthChange, HealthNews, Infirmary
from sharing.node.news import co_tenants
from sharing.node.observed import GpuState, Instance
from sharing.node.offer import GpuOffer
from sharing.node.plan import GpuPlan
from sharing.node.status import GpuReport, NodeReport
from sharing.node.symptoms import ends_co_tenants, findings_of, patient_of
from sharing.node.target import Target
from sharing.nvml.codes import Code, RecoveryAction
from sharing.nvml.observed import (
    DriverEvent,
    EventKind,
    GpuFault,
    ObservedGpu,
    ObservedNode,
    Vitals,
)
from sharing.size import OneOf

BOARD = catalogue.load().board("H100-80GB")
POLICY = HealthPolicy()
CALM = Vitals(ecc_uncorrected=0, temperature_c=40, slowdown_c=90, nvlink_recoveries=0)
GPU = ObservedGpu(
    uuid="GPU-a",
    index=0,
    minor=0,
    product="p",
    board=BOARD,
    in_catalogue=True,
    pci_bus_id="",
    numa_node=None,
    vitals=CALM,
)
STATE = GpuState(
    index=0,
    uuid="GPU-a",
    board=BOARD,
    product="p",
    memory_mib=1,
    instances=(
        Instance(
            profile=MigProfile.parse("1g.10gb"),
            placement=Placement(3, 1),
            gi_id=9,
            mig_uuid="MIG-x",
            memory_mib=1,
        ),
    ),
)
HALVES = GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 2),))
CUT = replace(STATE, instances=(replace(STATE.instances[0], mps=HALVES),))
"""Clients of MPS share the instance."""
SHARED = replace(STATE, instances=(), mps=GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 2),)))


def xid(number: int, gi_id: int | None = None) -> DriverEvent:
    return DriverEvent(kind=EventKind.XID, uuid="GPU-a", data=number, gi_id=gi_id)


@pytest.mark.parametrize(
    ("vitals", "mig", "reasons"),
    [
        (CALM, False, []),
        (replace(CALM, rows_pending=True), False, ["RowRemapPending"]),
        (replace(CALM, rows_pending=True, rows_failed=True), False, ["RowRemapFailure"]),
        (replace(CALM, temperature_c=90), False, ["Overheated"]),
        (replace(CALM, temperature_c=89), False, []),
        (replace(CALM, temperature_c=None), False, []),
        (replace(CALM, slowdown_c=None, temperature_c=99), False, []),
        (replace(CALM, nvlinks_down=(3,)), False, ["NvLinkDown"]),
        (replace(CALM, nvlinks_down=(3,)), True, []),  # MIG has no NVLink to miss
        (replace(CALM, ecc_uncorrected=2), False, ["EccUncorrected"]),
        (replace(CALM, nvlink_recoveries=1), False, ["NvLinkErrors"]),
        (replace(CALM, ecc_uncorrected=None), False, []),
    ],
)
def test_a_look_shows(vitals: Vitals, mig: bool, reasons: list[str]) -> None:
    gpu = replace(GPU, vitals=vitals, mig_mode=mig)

    assert [one.reason for one in findings_of(gpu, CALM, POLICY)] == reasons


def test_counters_say_nothing_at_the_first_look_or_after_a_reset() -> None:
    many = replace(CALM, ecc_uncorrected=9, nvlink_recoveries=9)

    assert findings_of(replace(GPU, vitals=many), None, POLICY) == ()
    assert findings_of(GPU, many, POLICY) == ()


def test_a_hot_gpu_has_to_cool_down_for_good() -> None:
    warm = replace(GPU, vitals=replace(CALM, temperature_c=86))

    assert findings_of(warm, CALM, POLICY) == ()
    assert [one.reason for one in findings_of(warm, CALM, POLICY, hot=True)] == ["Overheated"]


def test_a_gpu_that_cannot_be_read_shows_only_that() -> None:
    lost = replace(
        GPU,
        fault=GpuFault(code=Code.GPU_IS_LOST, reason="gone"),
        vitals=replace(CALM, temperature_c=99),
        recovery_action=RecoveryAction.GPU_RESET,
    )

    assert [one.reason for one in findings_of(lost, CALM, POLICY)] == ["GpuLost"]


@pytest.mark.parametrize(
    ("event", "patient"),
    [
        (xid(94, 9), "GPU-a::1g.10gb-3"),
        (xid(94), "GPU-a"),
        (xid(94, 77), "GPU-a"),  # an instance that nobody knows
        (xid(48, 9), "GPU-a"),  # the whole GPU's by its nature
        (xid(119, 9), "GPU-a"),
        (DriverEvent(kind=EventKind.UNAVAILABLE, uuid="GPU-a", gi_id=9), "GPU-a"),
        (DriverEvent(kind=EventKind.LOST, uuid=None), None),
    ],
)
def test_an_event_concerns_the_instance_that_it_names_or_the_gpu(
    event: DriverEvent, patient: str | None
) -> None:
    assert patient_of(event, [STATE], POLICY) == patient


@pytest.mark.parametrize(
    ("event", "gpu", "ends"),
    [
        (xid(31), SHARED, True),
        (xid(13), SHARED, True),
        (xid(31), STATE, False),
        (xid(31, 9), SHARED, False),
        (xid(31, 9), CUT, True),
        (xid(31, 8), CUT, False),
        (xid(31), CUT, False),
        (xid(48, 9), CUT, False),
        (xid(48), SHARED, False),  # no program's mistake
        (DriverEvent(kind=EventKind.ECC, uuid="GPU-a", data=31), SHARED, False),
    ],
)
def test_a_programs_mistake_ends_co_tenants_under_mps_alone(
    event: DriverEvent, gpu: GpuState, ends: bool
) -> None:
    assert ends_co_tenants(event, [gpu], POLICY) is ends


def sighting(*gpus: ObservedGpu) -> Sighting:
    node = ObservedNode(driver_version="", cuda_version="", gpus=gpus)
    return Sighting(node=node, processes={})


def test_the_infirmary_tells_of_each_change_once() -> None:
    told: list[HealthNews] = []
    infirmary = Infirmary(POLICY, {}, told.append)

    assert infirmary.hear(xid(95), [STATE])
    assert not infirmary.hear(xid(95), [STATE])
    assert not infirmary.hear(xid(31), [SHARED])

    changes = [(one.before, one.after) for one in told if isinstance(one, HealthChange)]
    assert changes == [(State.HEALTHY, State.UNHEALTHY)]
    assert [one.xid for one in told if isinstance(one, CoTenantsEnded)] == [31]
    assert infirmary.xids == {("GPU-a", 95, "act"): 2, ("GPU-a", 31, "ignore"): 1}


def test_the_infirmary_names_the_instance_whose_clients_ended() -> None:
    told: list[HealthNews] = []
    Infirmary(POLICY, {}, told.append).hear(xid(31, 9), [CUT])

    (ended,) = told
    assert isinstance(ended, CoTenantsEnded)
    assert ended.place == "GPU-a::1g.10gb-3"
    report = NodeReport(
        gpus=(
            GpuReport(
                gpu=CUT,
                plan=GpuPlan(gpu="GPU-a", target=Target(layout=EXCLUSIVE_LAYOUT)),
                offer=GpuOffer(gpu="GPU-a"),
                holds=tuple(
                    Hold(
                        device_id=device_id,
                        resource="gpu.sharing/mig-1g.10gb.mps-1of2",
                        holder=Holder(namespace="ns", pod=pod, container="main"),
                    )
                    for pod, device_id in (
                        ("inside", "GPU-a::1g.10gb-3::0"), ("beside", "GPU-a::1g.10gb-4::0"),
                    )
                ),
            ),
        )
    )  # fmt: skip
    assert [pod.name for pod, _ in co_tenants(report, ended)] == ["inside"]


def test_probes_are_due_while_somebody_who_is_here_is_ill() -> None:
    infirmary = Infirmary(POLICY, {})
    infirmary.hear(xid(95), [STATE])
    due = [infirmary.occupied]
    infirmary.see(sighting(replace(GPU, uuid="GPU-b")))  # GPU-a was taken out of the node
    due.append(infirmary.occupied)
    infirmary.see(sighting(GPU))
    due.append(infirmary.occupied)

    assert due == [True, False, True]


def test_a_cordon_taken_back_forgets_and_what_lasts_is_found_again() -> None:
    infirmary = Infirmary(POLICY, {})
    hot = replace(GPU, vitals=replace(CALM, temperature_c=99))
    infirmary.hear(xid(95), [STATE])
    infirmary.hear(xid(94, 9), [STATE])
    infirmary.note_cordoned(["GPU-a"])
    assert infirmary.occupied

    infirmary.note_cordoned([])
    assert infirmary.ailments == {}
    infirmary.see(sighting(hot))
    assert infirmary.ailments["GPU-a"].reason == "Overheated"


def test_a_driver_that_does_not_answer_makes_every_gpu_suspect_of_nothing_worse() -> None:
    infirmary = Infirmary(POLICY, {})
    infirmary.lose_sight([STATE], "no driver")

    ailment = infirmary.ailments["GPU-a"]
    assert (ailment.reason, ailment.state) == ("DriverUnavailable", State.UNHEALTHY)
    assert "no driver" in ailment.message
