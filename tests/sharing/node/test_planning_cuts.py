"""Plans for MIG instances that are cut further: nobody in an instance loses it, or its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharing.catalogue import load
from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.planning import plan_gpu
from sharing.node.step import CreateInstance, DestroyInstance, StartMps, StopMps, interrupts
from sharing.node.target import Offered
from sharing.size import OneOf
from tests.support.nodeworld import World, bare_gpu

SMALL, LARGE = MigProfile.parse("1g.10gb"), MigProfile.parse("3g.40gb")
HALVES = GpuLayout(mode=Mode.MPS, sizes=((OneOf(2), 2),))
QUARTERS = GpuLayout(mode=Mode.MPS, sizes=((OneOf(4), 4),))
TURNS = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(2), 2),))
TWO = GpuLayout(mode=Mode.MIG, sizes=((LARGE, 2),))
SEVEN = GpuLayout(mode=Mode.MIG, sizes=((SMALL, 7),))
CUT = replace(TWO, cuts=((LARGE, HALVES),))
HALF = "gpu.sharing/mig-3g.40gb.mps-1of2"


def served(layout: GpuLayout) -> World:
    world = World(gpu=bare_gpu(load().board("H100-80GB")), wanted=layout)
    world.settle()
    return world


def goes(world: World, layout: GpuLayout, turns: int = 6) -> None:
    """Go as far as holders and processes let a layout come."""
    world.wanted = layout
    for _ in range(turns):
        world.turn()
        world.take_in_all()
        world.check()


@pytest.mark.parametrize("layout", [SEVEN, TWO, replace(TWO, cuts=((LARGE, TURNS),))])
def test_who_holds_a_part_keeps_the_instance_and_its_daemon(layout: GpuLayout) -> None:
    world = served(CUT)
    held = Offered(HALF, "GPU-0::3g.40gb-4::1")
    world.take(held, "serve")

    goes(world, layout)

    (mine,) = [one for one in world.gpu.instances if one.placement.start == 4]
    assert mine.mps == HALVES
    assert all("pod ns/serve" in str(one) for one in world.plan().blocked_by)
    assert not [one for one in world.counted if "3g.40gb-4" in one.device_id]
    world.release(held)
    world.settle()
    assert len(world.counted) == sum(count for _, count in layout.shares)


def test_a_process_in_an_instance_keeps_it_as_it_is() -> None:
    for layout, changed in ((CUT, TWO), (TWO, CUT)):
        world = served(layout)
        (mine,) = [one for one in world.gpu.instances if one.placement.start == 4]
        world.start_process(mine.gi_id)
        goes(world, changed)
        (after,) = [one for one in world.gpu.instances if one.placement.start == 4]
        assert after == mine
        assert any("process 100" in str(one) for one in world.plan().blocked_by)
        world.stop_processes()
        world.settle()


def test_a_part_is_offered_only_while_its_daemon_serves_its_layout() -> None:
    world = served(TWO)
    world.wanted = CUT
    for _ in range(10):
        world.turn()
        by_id = {one.device_id("GPU-0"): one for one in world.gpu.instances}
        for share in world.listed:
            place = share.device_id.rpartition("::")[0]
            assert not share.resource.endswith("1of2") or by_id[place].mps == HALVES
        world.take_in_all()
    assert len(world.counted) == 4

    world.gpu = world.gpu.with_mps({})  # both daemons are gone
    world.turn()
    assert world.listed == frozenset()


def test_an_instance_is_recut_beside_one_that_is_held() -> None:
    world = served(CUT)
    world.take(Offered(HALF, "GPU-0::3g.40gb-4::0"), "serve")

    goes(world, replace(TWO, cuts=((LARGE, QUARTERS),)))

    offered = {one.device_id for one in world.counted}
    assert offered == {f"GPU-0::3g.40gb-0::{number}" for number in range(4)}
    limits = {one.placement.start: one.mps for one in world.gpu.instances}
    assert limits == {0: QUARTERS, 4: HALVES}
    assert world.served is None


def test_turns_of_another_size_wait_for_those_who_take_turns() -> None:
    world = served(replace(TWO, cuts=((LARGE, TURNS),)))
    world.take(Offered("gpu.sharing/mig-3g.40gb.timeslice-1of2", "GPU-0::3g.40gb-4::0"), "train")
    smaller = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(4), 4),))

    goes(world, replace(TWO, cuts=((LARGE, smaller),)))

    offered = {one.device_id for one in world.counted}
    assert offered == {f"GPU-0::3g.40gb-0::{number}" for number in range(4)}
    assert any("pod ns/train" in str(one) for one in world.plan().blocked_by)
    assert world.served is None


def test_an_instance_that_only_its_users_keep_holds_up_nothing_else() -> None:
    world = served(CUT)
    world.take(Offered(HALF, "GPU-0::3g.40gb-4::0"), "serve")
    three = GpuLayout(mode=Mode.MIG, sizes=((SMALL, 3),))

    goes(world, three)

    assert world.served == three
    assert len(world.counted) == 3
    steps = [(type(one.step), bool(one.blocked_by)) for one in world.plan().steps]
    assert steps == [(StopMps, True), (DestroyInstance, True)]


def test_a_daemon_waits_for_the_place_of_its_instance() -> None:
    world = served(SEVEN)
    world.take(Offered("nvidia.com/mig-1g.10gb", "GPU-0::1g.10gb-1"), "train")
    goes(world, CUT)

    starts = [
        (one.step.place, bool(one.blocked_by))
        for one in world.plan().steps
        if isinstance(one.step, StartMps)
    ]
    assert starts == [("GPU-0::3g.40gb-0", True)]


@pytest.mark.parametrize("start", range(7))
def test_a_held_part_keeps_its_instances_place_in_a_new_layout(start: int) -> None:
    cut = replace(SEVEN, cuts=((SMALL, TURNS),))
    world = served(cut)
    held = Offered("gpu.sharing/mig-1g.10gb.timeslice-1of2", f"GPU-0::1g.10gb-{start}::0")
    world.take(held, "serve")
    both = GpuLayout(
        mode=Mode.MIG, sizes=((LARGE, 1), (SMALL, 1)), cuts=((SMALL, TURNS), (LARGE, HALVES))
    )
    goes(world, both)
    assert world.plan().steps == ()
    assert {one.device_id.rpartition("::")[0] for one in world.counted} == {
        f"GPU-0::1g.10gb-{start}", f"GPU-0::3g.40gb-{4 if start < 4 else 0}",
    }  # fmt: skip


def test_what_a_plan_says_of_daemons_of_instances() -> None:
    world = served(SEVEN)
    world.wanted = CUT
    world.turn()
    world.take_in_all()
    steps = [one.step for one in world.plan().steps]
    starts = [step for step in steps if isinstance(step, StartMps)]
    kinds = [type(step) for step in steps]

    assert kinds.index(DestroyInstance) < kinds.index(CreateInstance) < kinds.index(StartMps)
    assert [step.place for step in starts] == ["GPU-0::3g.40gb-0", "GPU-0::3g.40gb-4"]
    assert starts[0].text == "start MPS for mps 2x 1of2 in 3g.40gb at 0+4"
    assert "other instances run on" in interrupts(starts[0])
    stop = starts[0].inverse()
    assert isinstance(stop, StopMps)
    assert stop.text == "stop MPS in 3g.40gb at 0+4"
    assert stop.inverse() == starts[0]


def test_without_the_kubelets_word_no_daemon_of_an_instance_changes() -> None:
    for layout, changed in ((CUT, TWO), (TWO, CUT)):
        world = served(layout)
        plan = plan_gpu(world.gpu, changed, None, served=layout)
        steps = [one for one in plan.steps if isinstance(one.step, StartMps | StopMps)]
        assert len(steps) == 2
        assert all(one.blocked_by for one in steps)
        known = plan_gpu(world.gpu, changed, world.view(), served=layout)
        assert not known.blocked_by
