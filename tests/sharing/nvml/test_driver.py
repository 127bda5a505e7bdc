"""The driver's values and errors, over simulated machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sharing import catalogue, miglayout
from sharing.board import Placement
from sharing.errors import LayoutError
from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code, ComputeMode, RecoveryAction, TopologyLevel
from sharing.nvml.driver import Driver
from sharing.nvml.errors import (
    DriverBusyError,
    DriverPermissionError,
    DriverUnavailableError,
    DriverUnsupportedError,
    GpuLostError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    NvmlError,
)
from sharing.nvml.observed import ModeChange, ObservedGpu, ProcessKind
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure, Permission
from sharing.nvml.simulator.state import ProcessKind as Simulated
from tests.support.simulated_gpus import SimulatedGpus

MakeGpus = Callable[..., SimulatedGpus]
OpenDriver = Callable[[SimulatedGpus], Driver]
TWO_G = MigProfile.parse("2g.20gb")
LOW = Placement(0, 2)


@pytest.fixture
def driver(h100: SimulatedGpus, open_driver: OpenDriver) -> Driver:
    """Two H100, the first in MIG mode."""
    opened = open_driver(h100)
    assert opened.set_mig_mode(h100.uuid(), on=True) is ModeChange.APPLIED
    return opened


def only(driver: Driver, index: int = 0) -> ObservedGpu:
    return driver.observe().gpus[index]


# Observing


@pytest.mark.parametrize("board", catalogue.load().boards, ids=lambda board: board.name)
def test_a_board_is_read_from_the_driver_as_the_catalogue_has_it(
    make_gpus: MakeGpus, open_driver: OpenDriver, board: object
) -> None:
    name = getattr(board, "name", "")
    gpu = only(open_driver(make_gpus(name)))
    known = catalogue.load().board(name)
    assert (gpu.board.name, gpu.in_catalogue, gpu.differences) == (name, True, ())
    assert (gpu.memory_mib, gpu.board.sms) == (known.memory_mib, known.sms)
    assert (gpu.mig_capable, gpu.resetless) == (known.mig_capable, known.resetless)
    assert (gpu.board.architecture, gpu.board.compute_capability) == (
        known.architecture,
        known.compute_capability,
    )
    grid = (gpu.board.mig_slots, gpu.board.mig_compute_slices)
    assert grid == (known.mig_slots, known.mig_compute_slices)
    assert [each.profile for each in gpu.board.mig] == [each.profile for each in known.mig]


def test_an_unknown_board_works_from_the_driver_alone(
    make_gpus: MakeGpus, open_driver: OpenDriver
) -> None:
    gpus = make_gpus("RTX-PRO-6000-96GB")
    gpus.configure_gpu(product="NVIDIA Z999 Unheard Of")
    driver = open_driver(gpus)
    gpu = only(driver)
    assert (gpu.board.name, gpu.in_catalogue) == ("NVIDIA Z999 Unheard Of", False)
    driver.set_mig_mode(gpu.uuid, on=True)
    wanted = [MigProfile.parse("2g.48gb"), MigProfile.parse("1g.24gb+me")]
    for placed in miglayout.place(gpu.board, wanted):
        driver.create_instance(gpu.uuid, placed.profile, placed.placement)
    assert sorted(str(each.profile) for each in only(driver).instances) == [
        "1g.24gb+me",
        "2g.48gb",
    ]


def test_an_old_driver_is_read_with_the_catalogues_places(
    a100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    a100.configure(driver_version="470.256.02")
    driver = open_driver(a100)
    offered = only(driver).board.mig_profile(MigProfile.parse("3g.20gb"))
    assert [place.start for place in offered.placements] == [0, 4]
    assert driver.set_mig_mode(a100.uuid(), on=True) is ModeChange.APPLIED
    driver.create_instance(a100.uuid(), offered.profile, Placement(4, 4))
    assert [str(each.profile) for each in only(driver).instances] == ["3g.20gb"]


def test_names_are_computed_where_the_driver_gives_none(
    make_gpus: MakeGpus, open_driver: OpenDriver
) -> None:
    gpus = make_gpus("H200-141GB")
    gpus.configure(missing_functions=("nvmlDeviceGetGpuInstanceProfileInfoV",))
    names = [str(each.profile) for each in only(open_driver(gpus)).board.mig]
    assert names == [
        "1g.18gb",
        "1g.18gb+me",
        "1g.35gb",
        "2g.35gb",
        "3g.71gb",
        "4g.71gb",
        "7g.141gb",
    ]


def test_a_node_is_observed_with_identity_and_place(driver: Driver, h100: SimulatedGpus) -> None:
    node = driver.observe()
    assert (node.driver_version, node.cuda_version) == ("580.95.05", "13.0")
    first, second = node.gpus
    assert (first.index, first.minor, first.pci_bus_id) == (0, 0, "00000000:18:00.0")
    assert (first.numa_node, second.numa_node) == (0, 1)
    assert (first.mig_mode, second.mig_mode) == (True, False)
    assert node.gpu(h100.uuid(1)) == second
    assert node.gpu("GPU-nobody") is None


def test_eight_full_gpus_are_observed_within_20_ms(
    make_gpus: MakeGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(make_gpus("8xH100-80GB"))
    for gpu in driver.observe().gpus:
        driver.set_mig_mode(gpu.uuid, on=True)
        for placed in miglayout.place(gpu.board, [MigProfile.parse("1g.10gb")] * 7):
            driver.create_instance(gpu.uuid, placed.profile, placed.placement)
    fastest = min(duration(driver.observe) for _ in range(9))
    assert fastest < 0.02


def duration(call: Callable[[], object]) -> float:
    start = time.thread_time()  # the machine may have other things to do
    call()
    return time.thread_time() - start


# Creating and destroying


def test_an_instance_is_created_where_asked_and_read_back(
    driver: Driver, h100: SimulatedGpus
) -> None:
    made = driver.create_instance(h100.uuid(), TWO_G, LOW)
    assert (made.profile, made.placement, made.memory_mib) == (TWO_G, LOW, 20096)
    assert made.uuid is not None
    assert made.uuid.startswith("MIG-")
    assert only(driver).instances == (made,)


def test_a_taken_place_is_told_with_gpu_place_and_code(driver: Driver, h100: SimulatedGpus) -> None:
    driver.create_instance(h100.uuid(), TWO_G, LOW)
    with pytest.raises(InsufficientResourcesError) as caught:
        driver.create_instance(h100.uuid(), MigProfile.parse("1g.10gb"), Placement(1, 1))
    text = str(caught.value)
    assert f"1g.10gb at 1 on GPU {h100.uuid()}" in text
    assert "nvmlDeviceCreateGpuInstanceWithPlacement answered INSUFFICIENT_RESOURCES (23)" in text
    assert "observe the GPU again" in text


def test_a_profile_that_the_gpu_lacks_is_refused_before_the_driver_is_asked(
    driver: Driver, h100: SimulatedGpus
) -> None:
    with pytest.raises(LayoutError, match="does not offer MIG profile"):
        driver.create_instance(h100.uuid(), MigProfile.parse("1g.5gb"), Placement(0, 1))


def test_a_gpu_instance_without_compute_instance_is_taken_back(
    driver: Driver, h100: SimulatedGpus
) -> None:
    name = "nvmlGpuInstanceCreateComputeInstance"
    h100.do(operate.fail_calls, Failure(function=name, code=int(Code.INSUFFICIENT_RESOURCES)))
    with pytest.raises(InsufficientResourcesError):
        driver.create_instance(h100.uuid(), TWO_G, LOW)
    assert only(driver).instances == ()


def test_what_cannot_be_taken_back_is_seen_half_made_and_can_be_finished(
    driver: Driver, h100: SimulatedGpus
) -> None:
    for name in ("nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceDestroy"):
        h100.do(operate.fail_calls, Failure(function=name, code=999))
    with pytest.raises(NvmlError) as caught:
        driver.create_instance(h100.uuid(), TWO_G, LOW)
    assert "left half made" in caught.value.__notes__[0]
    (half,) = only(driver).instances
    assert (half.ci_ids, half.uuid, half.usable) == ((), None, False)
    finished = driver.finish_instance(h100.uuid(), half.gi_id)
    assert finished.usable
    assert only(driver).instances == (finished,)


def test_an_error_after_the_effect_leaves_the_truth_to_observe(
    driver: Driver, h100: SimulatedGpus
) -> None:
    name = "nvmlDeviceCreateGpuInstanceWithPlacement"
    h100.do(operate.fail_calls, Failure(function=name, code=999, takes_effect=True))
    with pytest.raises(NvmlError, match="UNKNOWN"):
        driver.create_instance(h100.uuid(), TWO_G, LOW)
    assert [each.usable for each in only(driver).instances] == [False]


def test_destroying_is_complete_and_repeatable(driver: Driver, h100: SimulatedGpus) -> None:
    made = driver.create_instance(h100.uuid(), TWO_G, LOW)
    driver.destroy_instance(h100.uuid(), made.gi_id)
    driver.destroy_instance(h100.uuid(), made.gi_id)
    assert only(driver).instances == ()


def test_a_half_made_instance_can_be_destroyed(driver: Driver, h100: SimulatedGpus) -> None:
    made = h100.do(operate.create_instance, "0", TWO_G, with_compute=False)
    driver.destroy_instance(h100.uuid(), made.id)
    assert only(driver).instances == ()


def test_an_instance_that_a_process_uses_is_left_whole(driver: Driver, h100: SimulatedGpus) -> None:
    made = driver.create_instance(h100.uuid(), TWO_G, LOW)
    h100.do(operate.start_process, "0", gi_id=made.gi_id)
    with pytest.raises(DriverBusyError, match="processes run in it: 4001"):
        driver.destroy_instance(h100.uuid(), made.gi_id)
    assert only(driver).instances == (made,)


def test_destroying_on_a_gpu_that_is_not_there_is_no_success(
    driver: Driver, h100: SimulatedGpus
) -> None:
    with pytest.raises(InstanceNotFoundError):
        driver.destroy_instance("GPU-nobody", 0)


# Modes


def test_a_mode_change_in_use_says_so(a100: SimulatedGpus, open_driver: OpenDriver) -> None:
    driver = open_driver(a100)
    a100.do(operate.start_process, "0", kind=Simulated.MONITOR)
    assert driver.set_mig_mode(a100.uuid(), on=True) is ModeChange.IN_USE
    gpu = only(driver)
    assert (gpu.mig_mode, gpu.mig_pending) == (False, True)


def test_a_mode_change_that_needs_a_reset_is_pending(
    a100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    a100.configure_gpu(passed_through=True)
    driver = open_driver(a100)
    assert driver.set_mig_mode(a100.uuid(), on=True) is ModeChange.PENDING


def test_compute_mode_is_set_and_refused_in_mig_mode(driver: Driver, h100: SimulatedGpus) -> None:
    driver.set_compute_mode(h100.uuid(1), ComputeMode.EXCLUSIVE_PROCESS)
    assert only(driver, 1).compute_mode is ComputeMode.EXCLUSIVE_PROCESS
    with pytest.raises(DriverUnsupportedError):
        driver.set_compute_mode(h100.uuid(0), ComputeMode.EXCLUSIVE_PROCESS)


def test_without_permission_the_error_says_what_is_needed(
    driver: Driver, h100: SimulatedGpus
) -> None:
    h100.configure(permission=Permission.NONE)
    with pytest.raises(DriverPermissionError, match="mig/config"):
        driver.observe()


# Losing a GPU, the driver, the node


def test_one_lost_gpu_does_not_hide_the_others(driver: Driver, h100: SimulatedGpus) -> None:
    before = driver.observe().gpus
    h100.do(operate.lose, "0")
    lost, well = driver.observe().gpus
    assert (lost.uuid, lost.lost, lost.readable) == (before[0].uuid, True, False)
    assert lost.fault is not None
    assert "GPU_IS_LOST" in lost.fault.reason
    assert lost.board == before[0].board
    assert well == before[1]
    with pytest.raises(GpuLostError):
        driver.create_instance(lost.uuid, TWO_G, LOW)
    assert driver.topology() == ()


def test_a_gpu_lost_before_it_was_ever_seen_has_no_name(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    h100.do(operate.lose, "0")
    lost, well = only(driver := open_driver(h100)), only(driver, 1)
    assert (lost.uuid, lost.lost, lost.board.name) == ("", True, "unknown")
    assert well.readable


def test_a_gpu_that_fails_one_call_is_unreadable_and_not_lost(
    driver: Driver, h100: SimulatedGpus
) -> None:
    failure = Failure(function="nvmlDeviceGetMigMode", code=999, uuid=h100.uuid())
    h100.do(operate.fail_calls, failure)
    bad, well = driver.observe().gpus
    assert (bad.readable, bad.lost, well.readable) == (False, False, True)
    assert only(driver).readable


def test_an_instance_that_vanishes_while_we_list_is_no_fault(
    driver: Driver, h100: SimulatedGpus
) -> None:
    driver.create_instance(h100.uuid(), TWO_G, LOW)
    h100.do(operate.fail_calls, Failure(function="nvmlGpuInstanceGetInfo", code=6))
    assert [each.profile for each in only(driver).instances] == [TWO_G]


def test_a_reset_brings_a_lost_gpu_back(driver: Driver, h100: SimulatedGpus) -> None:
    h100.do(operate.lose, "0")
    assert only(driver).lost
    h100.do(operate.reset, "0")
    assert only(driver).readable
    assert only(driver).recovery_action is RecoveryAction.NONE


def test_after_a_reboot_the_driver_is_opened_again(driver: Driver, h100: SimulatedGpus) -> None:
    uuids = [gpu.uuid for gpu in driver.observe().gpus]
    h100.do(operate.reboot, [1, 0])
    with pytest.raises(DriverUnavailableError, match="open the driver again"):
        driver.observe()
    driver.open()
    assert [gpu.uuid for gpu in driver.observe().gpus] == uuids[::-1]
    assert not any(gpu.mig_mode for gpu in driver.observe().gpus)


def test_a_swapped_gpu_is_another_gpu(driver: Driver, h100: SimulatedGpus) -> None:
    before = only(driver).uuid
    h100.do(operate.swap, "0", catalogue.load().board("H200-141GB"))
    gpu = only(driver)
    assert gpu.uuid != before
    assert gpu.board.name == "H200-141GB"


def test_a_missing_driver_says_what_to_do(tmp_path: Path, make_gpus: MakeGpus) -> None:
    gpus = make_gpus("T4-16GB")
    gpus.configure(driver_loaded=False)
    with pytest.raises(DriverUnavailableError, match="load the NVIDIA driver"):
        Driver(gpus.path).open()


def test_a_driver_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(DriverUnavailableError, match="open it first"):
        Driver(tmp_path / "nothing.json").observe()


# Processes and topology


def test_processes_carry_their_instance(driver: Driver, h100: SimulatedGpus) -> None:
    made = driver.create_instance(h100.uuid(), TWO_G, LOW)
    h100.do(operate.start_process, "0", pid=77, gi_id=made.gi_id, memory_mib=300)
    h100.do(operate.start_process, "1", pid=78, kind=Simulated.MPS, memory_mib=100)
    (first,) = driver.processes(h100.uuid(0))
    assert (first.pid, first.gi_id, first.ci_id, first.memory_mib) == (77, made.gi_id, 0, 300)
    (second,) = driver.processes(h100.uuid(1))
    assert (second.pid, second.kind, second.gi_id) == (78, ProcessKind.MPS, None)


def test_topology_knows_nvlinks_pairs_and_numa_nodes(
    make_gpus: MakeGpus, open_driver: OpenDriver
) -> None:
    gpus = make_gpus("4xH100-80GB")
    gpus.configure_gpu(1, nvlinks_down=(0, 1))
    links = {frozenset((link.one, link.other)): link for link in open_driver(gpus).topology()}
    assert len(links) == 6

    def between(one: int, other: int) -> tuple[TopologyLevel, int]:
        link = links[frozenset((gpus.uuid(one), gpus.uuid(other)))]
        return link.level, link.nvlinks

    assert between(0, 1) == (TopologyLevel.SINGLE, 16)
    assert between(2, 3) == (TopologyLevel.SINGLE, 18)
    assert between(0, 2) == (TopologyLevel.SYSTEM, 18)


def test_boards_without_nvlink_have_no_links(make_gpus: MakeGpus, open_driver: OpenDriver) -> None:
    (link,) = open_driver(make_gpus("2xL4-24GB")).topology()
    assert link.nvlinks == 0
