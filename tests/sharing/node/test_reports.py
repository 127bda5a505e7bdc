"""What is told of a node, when a layout is given up, and which GPUs are remembered: pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sharing.catalogue import load
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.mps.daemons import DaemonPhase, DaemonState
from sharing.node.acquaintance import FORGET_AFTER_DAYS, Acquaintance, acquainted, in_new_names
from sharing.node.held import Held, Hold, Holder
from sharing.node.memory import Memory, recall
from sharing.node.news import news
from sharing.node.plan import Kubelet
from sharing.node.retreat import Retreat, RetreatPolicy, lasts, previous, retreat
from sharing.node.retreats import Retreats
from sharing.node.rivals import mig_manager
from sharing.node.status import GpuReport, NodeReport, milli_capacity
from sharing.node.stock import Knowledge, take_stock
from sharing.node.wanted import Wanted, WantedLayout
from sharing.size import OneOf
from tests.support.nodeworld import bare_gpu

GPU = bare_gpu(load().board("H100-80GB"), "GPU-a")
SLICED = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(4), 4),))
MIG = GpuLayout(mode=Mode.MIG, sizes=((MigProfile.parse("1g.10gb"), 2),))
POLICY = RetreatPolicy(failures=5, first_s=300, longest_s=3600)
NOBODY = Kubelet(held=Held(), offered=frozenset())


def stock(
    wanted: GpuLayout, *, applied: GpuLayout | None = None, rival: str = "", **known: object
) -> GpuReport:
    knowledge = Knowledge(
        applied={} if applied is None else {"GPU-a": applied},
        **known,  # type: ignore[arg-type]
    )
    wish = Wanted({"GPU-a": WantedLayout(layout=wanted)})
    return take_stock(GPU, wish, NOBODY, knowledge, rival=rival)


def test_a_retreat_lasts_twice_as_long_each_time_up_to_a_cap() -> None:
    first = retreat(None, MIG, "no", now=0.0, policy=POLICY)
    waits = [first.until]
    for _ in range(5):
        first = retreat(first, MIG, "no", now=0.0, policy=POLICY)
        waits.append(first.until)

    assert waits == [300, 600, 1200, 2400, 3600, 3600]
    assert retreat(first, SLICED, "no", now=0.0, policy=POLICY).times == 1


def test_only_the_layout_that_failed_is_given_up_and_only_for_another_one() -> None:
    given_up = Retreat(layout=MIG, reason="no", until=1.0)

    assert previous(MIG, SLICED, given_up) == SLICED
    assert previous(EXCLUSIVE_LAYOUT, SLICED, given_up) is None
    assert previous(MIG, MIG, given_up) is None
    assert previous(MIG, None, given_up) is None
    assert previous(MIG, SLICED, None) is None


def test_a_retreat_is_over_in_time_and_when_the_clock_was_set_back() -> None:
    given_up = Retreat(layout=MIG, reason="no", until=10_000.0)

    assert lasts(given_up, now=9_999.0, policy=POLICY)
    assert not lasts(given_up, now=10_000.0, policy=POLICY)
    assert not lasts(given_up, now=10_000.0 - 3601.0, policy=POLICY)


def test_a_layout_that_works_is_no_longer_held_against_a_gpu() -> None:
    known = {uuid: Retreat(layout=MIG, reason="no", until=1.0) for uuid in ("GPU-a", "GPU-b")}
    retreats = Retreats(POLICY, known)

    retreats.end("GPU-a", MIG)
    retreats.end("GPU-b", SLICED)
    retreats.end("GPU-c", MIG)

    assert retreats.known == {"GPU-b": known["GPU-b"]}


def test_a_retreat_plans_the_layout_before_and_says_so() -> None:
    given_up = Retreat(layout=MIG, reason="no", until=1.0)

    report = stock(MIG, applied=SLICED, retreats={"GPU-a": given_up})

    assert report.plan.target.layout == SLICED
    assert report.retreat == given_up


def test_beside_a_mig_manager_mig_stays_and_other_layouts_are_made() -> None:
    assert stock(MIG, rival="somebody").plan.target.layout == EXCLUSIVE_LAYOUT
    assert "somebody" in stock(MIG, rival="somebody").refused
    assert stock(MIG, applied=SLICED, rival="somebody").plan.target.layout == SLICED
    assert stock(SLICED, rival="somebody").plan.target.layout == SLICED
    assert stock(SLICED, rival="somebody").refused == ""


@pytest.mark.parametrize(
    ("labels", "honoured", "rival"),
    [
        ({}, False, False),
        ({"nvidia.com/mig.config": "x"}, False, False),
        ({"nvidia.com/mig.config": "x", "nvidia.com/mig.config.state": "pending"}, False, True),
        ({"nvidia.com/mig.config": "x", "nvidia.com/mig.config.state": "success"}, True, False),
        ({"nvidia.com/gpu.deploy.mig-manager": "true"}, True, True),
        ({"nvidia.com/gpu.deploy.mig-manager": "false"}, False, False),
    ],
)
def test_a_mig_manager_is_known_by_its_labels(
    labels: dict[str, str], honoured: bool, rival: bool
) -> None:
    said = mig_manager(labels, honoured=honoured)

    assert bool(said) is rival
    assert not said or "nvidia.com/gpu.deploy.mig-manager=false" in said


def node(*gpus: GpuReport, **fields: object) -> NodeReport:
    return NodeReport(gpus=gpus, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("parts", "milli"), [(3, 1002), (4, 1000), (48, 1008)])
def test_a_gpus_accounting_covers_all_of_its_shares(parts: int, milli: int) -> None:
    """With 1000 the last share of a full node could never be scheduled under accounting."""
    layout = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(parts), parts),))

    assert milli_capacity(node(stock(layout, applied=layout))) == milli


def test_an_exclusive_gpu_counts_1000() -> None:
    assert milli_capacity(node(stock(EXCLUSIVE_LAYOUT, applied=EXCLUSIVE_LAYOUT))) == 1000


def test_what_lasts_is_told_once() -> None:
    blocked = blocked_report("train")

    first = news(node(), node(blocked))
    assert [one.reason for one in first] == ["LayoutBlocked"]
    assert "pod ns/train" in first[0].message
    assert news(node(blocked), node(blocked)) == ()
    assert [one.reason for one in news(node(blocked), node(blocked_report("other")))] == [
        "LayoutBlocked"
    ]


def blocked_report(pod: str) -> GpuReport:
    hold = Hold(
        device_id="GPU-a",
        resource="nvidia.com/gpu",
        holder=Holder(namespace="ns", pod=pod, container="c"),
    )
    kubelet = Kubelet(held=Held.of([hold]), offered=frozenset())
    wish = Wanted({"GPU-a": WantedLayout(layout=SLICED)})
    return take_stock(GPU, wish, kubelet, Knowledge())


def test_refusals_retreats_rivals_and_gone_gpus_are_warnings_and_service_is_not() -> None:
    impossible = GpuLayout(mode=Mode.MIG, sizes=((MigProfile.parse("1g.5gb"), 1),))
    refused = stock(impossible)
    back = stock(
        MIG, applied=SLICED, retreats={"GPU-a": Retreat(layout=MIG, reason="no", until=1.0)}
    )
    plain = stock(SLICED)

    told = {
        one.reason: one.warning
        for before, after in (
            (node(plain), node(refused)),
            (node(plain), node(back)),
            (node(plain), node(plain, rival="somebody")),
            (node(plain, rival="somebody"), node(plain)),
            (node(plain), node(replace(plain, served=SLICED))),
            (node(plain, replace(plain, gpu=replace(GPU, uuid="GPU-b"))), node(plain)),
        )
        for one in news(before, after)
    }

    assert told == {
        "LayoutRefused": True,
        "LayoutFailed": True,
        "ManagementConflict": True,
        "ManagementConflictOver": False,
        "LayoutServed": False,
        "GpuGone": True,
    }


def test_a_layout_that_an_earlier_agent_served_is_no_news() -> None:
    served = node(replace(stock(SLICED), served=SLICED))

    assert [one.reason for one in news(node(), served)] == ["LayoutServed"]
    assert news(node(), served, {"GPU-a": SLICED}) == ()
    assert [one.reason for one in news(node(), served, {"GPU-a": MIG})] == ["LayoutServed"]


def daemon(phase: DaemonPhase, starts: int, reason: str = "") -> DaemonState:
    return DaemonState(device_uuid="GPU-a", phase=phase, reason=reason, pid=1, starts=starts)


def test_an_mps_daemon_that_fails_is_told_with_its_last_words_and_again_when_it_is_back() -> None:
    ready, failed = daemon(DaemonPhase.READY, 1), daemon(DaemonPhase.BACKING_OFF, 1, "out of luck")
    back = daemon(DaemonPhase.READY, 2)

    (first,) = news(node(daemons=(ready,)), node(daemons=(failed,)))
    assert (first.reason, first.warning) == ("MpsDaemonFailed", True)
    assert "out of luck" in first.message
    assert news(node(daemons=(failed,)), node(daemons=(failed,))) == ()
    assert [o.reason for o in news(node(daemons=(failed,)), node(daemons=(back,)))] == [
        "MpsDaemonRestarted"
    ]
    starting = daemon(DaemonPhase.STARTING, 2)
    for was in (ready, starting):
        assert [o.reason for o in news(node(daemons=(was,)), node(daemons=(back,)))] == [
            "MpsDaemonRestarted"
        ]
    silent = daemon(DaemonPhase.SILENT, 2)
    assert news(node(daemons=(silent,)), node(daemons=(back,))) == ()
    assert news(node(), node(daemons=(ready,))) == ()


def test_a_gpu_is_forgotten_when_another_sits_in_its_slot_or_after_a_month() -> None:
    slot = replace(GPU, pci_bus_id="00000000:18:00.0")
    known = acquainted({}, [slot], 100)

    assert "GPU-a" in acquainted(known, [], 100 + FORGET_AFTER_DAYS)
    assert "GPU-a" not in acquainted(known, [], 101 + FORGET_AFTER_DAYS)
    swapped = replace(slot, uuid="GPU-b")
    assert list(acquainted(known, [swapped], 100)) == ["GPU-b"]
    moved = replace(slot, pci_bus_id="00000000:2A:00.0")
    assert acquainted(known, [moved], 100)["GPU-a"].pci_bus_id == "00000000:2A:00.0"


def test_a_lost_gpu_keeps_what_is_known_of_it() -> None:
    known = acquainted({}, [GPU], 100)

    assert acquainted(known, [replace(GPU, lost=True)], 200) == known


def test_old_names_mean_what_they_meant_on_this_gpu_and_strange_ones_stay() -> None:
    old = MigProfile.parse("1g.9gb")
    layout = GpuLayout(mode=Mode.MIG, sizes=((old, 2),))
    known = Acquaintance(pci_bus_id="", day=0, profiles={"1g.9gb": 0, "1g.18gb": 9})

    renamed, told = in_new_names(layout, GPU, known)
    assert renamed == MIG
    assert "1g.9gb is now 1g.10gb" in told
    double, _ = in_new_names(
        GpuLayout(mode=Mode.MIG, sizes=((MigProfile.parse("1g.18gb"), 1),)), GPU, known
    )
    assert str(double) == "mig 1x 1g.20gb"
    strange = GpuLayout(mode=Mode.MIG, sizes=((MigProfile.parse("1g.5gb"), 1),))
    assert in_new_names(strange, GPU, known) == (strange, "")
    assert in_new_names(layout, GPU, None) == (layout, "")


def test_names_are_kept_over_a_driver_that_has_others() -> None:
    before = Acquaintance(pci_bus_id="", day=0, profiles={"1g.9gb": 0})

    after = acquainted({"GPU-a": before}, [GPU], 1)["GPU-a"].profiles
    assert after["1g.9gb"] == after["1g.10gb"] == 0


def test_acquaintances_survive_a_restart(tmp_path: Path) -> None:
    memory = Memory(gpus=acquainted({}, [GPU], 100))
    memory.save(tmp_path / "m")

    assert recall(tmp_path / "m") == memory
