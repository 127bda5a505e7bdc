"""Plans that histories found wrong, one by one."""

from __future__ import annotations

from dataclasses import replace

from sharing.catalogue import load
from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.step import Advertise, SetMigMode, StartMps, Withdraw
from sharing.node.target import Offered
from sharing.size import OneOf
from tests.support.nodeworld import World, bare_gpu

MPS = GpuLayout(mode=Mode.MPS, sizes=((OneOf(4), 4),))
SLICED = GpuLayout(mode=Mode.TIME_SLICING, sizes=((OneOf(4), 4),))
MIG = GpuLayout(mode=Mode.MIG, sizes=((MigProfile.parse("1g.5gb"), 7),))
SHARE = Offered("gpu.sharing/mps-1of4", "GPU-0::0")


def rebooted_into_mig() -> World:
    """An A100 whose pod holds an MPS share, after a reboot in which a MIG mode came on."""
    world = World(gpu=bare_gpu(load().board("A100-40GB")), wanted=MPS)
    world.settle()
    world.take(SHARE, "train")
    world.leave_mode_pending()
    world.reboot()
    return world


def test_a_share_of_the_whole_gpu_does_not_keep_mig_mode_that_a_reboot_brought() -> None:
    world = rebooted_into_mig()

    ready = world.plan().ready
    assert [type(step) for step in ready] == [SetMigMode, StartMps, Advertise]
    world.settle()
    assert world.gpu.mps == MPS
    assert SHARE in world.holds


def test_mps_does_not_start_while_a_process_keeps_mig_mode() -> None:
    world = rebooted_into_mig()
    world.foreign_create(MigProfile.parse("1g.5gb"), lambda _: 0)
    world.start_process(world.gpu.instances[0].gi_id)

    assert world.plan().ready == ()
    world.stop_processes()
    world.settle()
    assert world.gpu.mps == MPS


def test_mig_instances_are_not_offered_beside_a_share_of_the_whole_gpu() -> None:
    world = rebooted_into_mig()
    world.wanted = MIG

    for _ in range(5):
        world.turn()
        world.counted = world.listed
        world.check()
    assert world.counted == frozenset()
    assert any("pod ns/train" in str(one) for one in world.plan().blocked_by)

    world.release(SHARE)
    world.settle()
    assert len(world.counted) == 7


def test_mig_instances_are_not_offered_while_the_kubelet_counts_shares_of_the_whole_gpu() -> None:
    world = rebooted_into_mig()
    world.release(SHARE)
    world.wanted = MIG
    world.counted = frozenset({SHARE})  # a kubelet that has not heard of the restart

    world.turn()
    assert world.listed == frozenset()
    world.check()


def test_shares_that_the_kubelet_hears_of_after_the_look_are_withdrawn_before_anything_else() -> (
    None
):
    world = World(gpu=bare_gpu(load().board("A100-40GB")), wanted=MPS)
    world.settle()
    world.wanted = SLICED
    for _ in range(3):
        world.turn()
        world.counted = frozenset()  # it has not heard of the new shares yet
    world.wanted = MIG

    def kubelet_hears_and_admits() -> None:
        world.take_in_all()
        world.take(Offered("gpu.sharing/timeslice-1of4", "GPU-0::0"), "train")

    plan = world.turn(meanwhile=kubelet_hears_and_admits)
    assert isinstance(plan.ready[0], Withdraw)
    assert not world.gpu.mig_enabled


def test_a_reset_is_planned_only_where_the_wanted_mode_waits() -> None:
    world = World(gpu=bare_gpu(load().board("A100-40GB")), wanted=MIG)
    world.gpu = replace(world.gpu, mig_pending=True)

    assert "into force" in str(world.plan().steps[0].step)
    world.gpu = replace(world.gpu, mig_pending=False)
    assert "switch MIG mode on by a reset" in str(world.plan().steps[0].step)
