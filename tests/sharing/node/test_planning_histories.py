"""Any history of layouts, pods, processes, faults, foreign hands, crashes and reboots of one GPU.

``HISTORIES=10000`` runs as many as a campaign wants; a few stand in for them each day.
"""

from __future__ import annotations

import os
from functools import cache

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharing.board import Board
from sharing.catalogue import load
from sharing.layout import EXCLUSIVE_LAYOUT, GpuLayout
from sharing.miglayout import Placed, states
from sharing.mode import Mode
from sharing.node.target import offered
from sharing.size import OneOf
from tests.support.nodeworld import World, bare_gpu

BOARDS = list(load().boards)
SIZES = [
    ((OneOf(4), 4),),
    ((OneOf(2), 1), (OneOf(4), 2)),
    ((OneOf(2), 2),),
    ((OneOf(1), 1),),
    ((OneOf(4), 1), (OneOf(8), 2)),
]
CUTS = [
    GpuLayout(mode=mode, sizes=sizes)
    for mode in (Mode.MPS, Mode.TIME_SLICING)
    for sizes in SIZES[:4]
]
"""What MIG instances are cut into further."""


@cache
def mig_layouts(board: str) -> list[tuple[Placed, ...]]:
    """Every layout that the board can have, with suffix profiles too; one for each multiset."""
    found = {
        tuple(sorted(at.profile for at in state)): state for state in states(load().board(board))
    }
    return list(found.values())


@st.composite
def layouts(draw: st.DrawFn, board: Board) -> GpuLayout:
    """Layouts that the board can have."""
    mode = draw(st.sampled_from([*Mode] if board.mig_capable else [*Mode][:3]))
    pool = draw(st.sampled_from([None, None, "team-a"]))
    if mode is Mode.EXCLUSIVE:
        return GpuLayout(mode=mode, pool=pool)
    if mode is Mode.MIG:
        chosen = draw(st.sampled_from(mig_layouts(board.name)))
        profiles = sorted({at.profile for at in chosen})
        cut = draw(st.lists(st.sampled_from(profiles), unique=True, max_size=2)) if chosen else []
        return GpuLayout(
            mode=mode,
            sizes=tuple((at.profile, 1) for at in chosen),
            pool=pool,
            cuts=tuple((profile, draw(st.sampled_from(CUTS))) for profile in cut),
        )
    return GpuLayout(mode=mode, sizes=draw(st.sampled_from(SIZES)), pool=pool)


class Histories(RuleBasedStateMachine):
    world: World

    @initialize(
        data=st.data(), board=st.sampled_from(BOARDS), serves=st.booleans(), pods=st.integers(0, 3)
    )
    def begin(self, data: st.DataObject, board: Board, serves: bool, pods: int) -> None:
        """Half of all GPUs serve something already, to pods most often."""
        self.world = World(gpu=bare_gpu(board), wanted=EXCLUSIVE_LAYOUT)
        if not serves:
            return
        self.world.wanted = data.draw(layouts(board))
        self.world.settle()
        for _ in range(pods if self.world.counted else 0):
            self.take(data)

    @precondition(lambda self: self.world.classes_told())
    @rule(data=st.data())
    def kubelet_takes_in_one_class(self, data: st.DataObject) -> None:
        self.world.take_in(data.draw(st.sampled_from(self.world.classes_told())))

    @rule(data=st.data(), turns=st.integers(0, 4))
    def want(self, data: st.DataObject, turns: int) -> None:
        self.world.wanted = data.draw(layouts(self.world.gpu.board))
        self.work(turns)

    @rule(
        data=st.data(),
        crash_after=st.none() | st.integers(0, 3),
        refuse_after=st.none() | st.integers(0, 3),
        pod_comes=st.booleans(),
        kubelet_hears=st.booleans(),
    )
    def turn(
        self,
        data: st.DataObject,
        crash_after: int | None,
        refuse_after: int | None,
        pod_comes: bool,
        kubelet_hears: bool,
    ) -> None:
        def meanwhile() -> None:
            if kubelet_hears:
                self.world.take_in_all()
            if pod_comes and self.world.counted:
                self.take(data)

        self.world.turn(meanwhile=meanwhile, crash_after=crash_after, refuse_after=refuse_after)

    @rule()
    def kubelet_takes_in_what_it_was_told(self) -> None:
        self.world.take_in_all()

    @rule(count=st.integers(1, 4))
    def work(self, count: int) -> None:
        for _ in range(count):
            self.world.turn()
            self.world.take_in_all()

    @precondition(lambda self: self.world.counted)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        self.world.take(data.draw(st.sampled_from(sorted(self.world.counted))), "pod")

    @precondition(lambda self: self.world.holds)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.world.release(data.draw(st.sampled_from(sorted(self.world.holds))))

    @precondition(lambda self: len(self.world.gpu.processes) < 3 and not self.world.gpu.lost)
    @rule(data=st.data())
    def process_starts(self, data: st.DataObject) -> None:
        ids: list[int | None] = [one.gi_id for one in self.world.gpu.instances]
        ids = ids or [None]
        self.world.start_process(data.draw(st.sampled_from(ids)))

    @rule()
    def processes_stop(self) -> None:
        self.world.stop_processes()

    @rule()
    def the_driver_lists_processes_no_more_or_again(self) -> None:
        self.world.blind = not self.world.blind

    @precondition(lambda self: self.world.gpu.instances and not self.world.gpu.work)
    @rule(data=st.data())
    def instance_is_halved(self, data: st.DataObject) -> None:
        ids = [one.gi_id for one in self.world.gpu.instances]
        self.world.half_make(data.draw(st.sampled_from(ids)))

    @precondition(lambda self: self.world.gpu.mig_enabled and not self.world.gpu.lost)
    @rule(data=st.data())
    def somebody_else_makes_an_instance(self, data: st.DataObject) -> None:
        offer = data.draw(st.sampled_from(self.world.gpu.board.mig))
        self.world.foreign_create(offer.profile, lambda count: data.draw(st.integers(0, count - 1)))

    @precondition(lambda self: self.world.gpu.instances and not self.world.gpu.work)
    @rule(data=st.data())
    def somebody_else_destroys_an_instance(self, data: st.DataObject) -> None:
        ids = [one.gi_id for one in self.world.gpu.instances]
        self.world.foreign_destroy(data.draw(st.sampled_from(ids)))

    @rule()
    def somebody_else_leaves_a_mode_pending(self) -> None:
        self.world.leave_mode_pending()

    @rule()
    def the_gpu_is_lost(self) -> None:
        self.world.lose()

    @precondition(lambda self: self.world.gpu.lost)
    @rule()
    def the_gpu_comes_back(self) -> None:
        self.world.come_back()

    @rule()
    def agent_crashes(self) -> None:
        self.world.crash()

    @rule()
    def reboot(self) -> None:
        self.world.reboot()

    @invariant()
    def never_more_shares_than_the_gpu_has(self) -> None:
        self.world.check()

    @invariant()
    def the_same_view_gives_the_same_plan(self) -> None:
        assert self.world.plan() == self.world.plan()

    def teardown(self) -> None:
        """Once nobody is in the way, the wanted layout is reached and offered in full."""
        if not hasattr(self, "world"):
            return
        self.world.stop_processes()
        self.world.blind = False
        if self.world.gpu.lost:
            self.world.come_back()
        for share in sorted(self.world.holds):
            self.world.release(share)
        self.world.settle()
        plan = self.world.plan()
        assert not plan.steps
        assert self.world.counted == plan.target.offers(self.world.gpu)
        assert len(self.world.counted) == sum(count for _, count in self.world.wanted.shares)
        assert {
            offered(share) for share in plan.target.shares(self.world.gpu)
        } == self.world.counted


Histories.TestCase.settings = settings(
    max_examples=int(os.environ.get("HISTORIES", "150")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistories = Histories.TestCase
