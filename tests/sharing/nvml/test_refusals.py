"""What hardware refuses, the simulator refuses, seen through pynvml's own code.

One test at least for each entry of the list of what a simulator must model: modes, use, places,
maxima, engines, permission, order, loss, automatic placement, ids, old drivers, grids.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure, Permission, ProcessKind
from tests.support.simulated_gpus import SimulatedGpus

MakeGpus = Callable[..., SimulatedGpus]
ON, OFF = 1, 0
IN_USE, RESET_REQUIRED = 19, 16
ONE_G, ONE_G_ME, TWO_G, THREE_G, FOUR_G, SEVEN_G = 19, 20, 14, 9, 5, 0


class Desk:
    """One GPU through pynvml, with the few calls that every test makes."""

    def __init__(self, gpus: SimulatedGpus, index: int = 0) -> None:
        self.gpus = gpus
        self.nvml = gpus.bindings()
        self.index = index

    @property
    def handle(self) -> Any:
        return self.nvml.nvmlDeviceGetHandleByIndex(self.index)

    def mode(self, mode: int) -> Any:
        return self.nvml.nvmlDeviceSetMigMode(self.handle, mode)

    def modes(self) -> list[int]:
        return list(self.nvml.nvmlDeviceGetMigMode(self.handle))

    def create(self, profile_id: int, start: int, size: int) -> Any:
        place = self.nvml.c_nvmlGpuInstancePlacement_t(start, size)
        return self.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
            self.handle, profile_id, ctypes.byref(place)
        )

    def create_anywhere(self, profile_id: int) -> Any:
        return self.nvml.nvmlDeviceCreateGpuInstance(self.handle, profile_id)

    def info(self, instance: Any) -> Any:
        return self.nvml.nvmlGpuInstanceGetInfo(instance)

    def list(self, profile_id: int) -> list[Any]:
        count = ctypes.c_uint(0)
        array = (self.nvml.c_nvmlGpuInstance_t * 8)()
        self.nvml.nvmlDeviceGetGpuInstances(self.handle, profile_id, array, ctypes.byref(count))
        return [self.info(each) for each in array[: count.value]]

    def refuses(self, error: str) -> Any:
        return pytest.raises(getattr(self.nvml, f"NVMLError_{error}"))


@pytest.fixture
def h(h100: SimulatedGpus) -> Desk:
    """A Hopper GPU in MIG mode."""
    desk = Desk(h100)
    assert desk.mode(ON) == 0
    return desk


@pytest.fixture
def a(a100: SimulatedGpus) -> Desk:
    """An Ampere GPU, MIG mode off."""
    return Desk(a100)


# MIG mode


def test_hopper_changes_mode_at_once(h: Desk) -> None:
    assert h.modes() == [ON, ON]


def test_hopper_in_use_changes_nothing_and_answers_in_the_activation_status(
    h100: SimulatedGpus,
) -> None:
    desk = Desk(h100)
    h100.do(operate.start_process, "0")
    assert desk.mode(ON) == IN_USE  # the call itself succeeds
    assert desk.modes() == [OFF, OFF]


def test_ampere_in_use_keeps_the_change_pending_until_it_is_idle(a: Desk) -> None:
    process = a.gpus.do(operate.start_process, "0")
    assert a.mode(ON) == IN_USE
    assert a.modes() == [OFF, ON]
    a.gpus.do(operate.stop_process, process.pid)
    assert a.modes() == [OFF, ON]
    assert a.mode(ON) == 0
    assert a.modes() == [ON, ON]


def test_ampere_is_held_up_by_a_monitoring_client_and_hopper_is_not(
    a: Desk, make_gpus: MakeGpus
) -> None:
    a.gpus.do(operate.start_process, "0", kind=ProcessKind.MONITOR)
    assert a.mode(ON) == IN_USE
    hopper = make_gpus("H100-80GB")
    hopper.do(operate.start_process, "0", kind=ProcessKind.MONITOR)
    assert Desk(hopper).mode(ON) == 0


def test_a_passed_through_gpu_waits_for_a_reset_from_outside(a: Desk) -> None:
    a.gpus.configure_gpu(passed_through=True)
    assert a.mode(ON) == RESET_REQUIRED
    assert a.modes() == [OFF, ON]
    a.gpus.do(operate.reboot)
    assert Desk(a.gpus).modes() == [ON, ON]


def test_mode_does_not_go_off_while_instances_exist(h: Desk) -> None:
    h.create(ONE_G, 0, 1)
    assert h.mode(OFF) == IN_USE
    assert h.modes() == [ON, ON]


def test_a_board_without_mig_says_not_supported(make_gpus: MakeGpus) -> None:
    desk = Desk(make_gpus("L4-24GB"))
    with desk.refuses("NotSupported"):
        desk.modes()
    with desk.refuses("NotSupported"):
        desk.mode(ON)


# Places, maxima, engines


def test_a_taken_place_is_insufficient_resources(h: Desk) -> None:
    h.create(TWO_G, 0, 2)
    with h.refuses("InsufficientResources"):
        h.create(ONE_G, 1, 1)


@pytest.mark.parametrize(("start", "size"), [(1, 2), (6, 2), (0, 1), (0, 4), (200, 2)])
def test_an_illegal_place_is_an_invalid_argument(h: Desk, start: int, size: int) -> None:
    with h.refuses("InvalidArgument"):
        h.create(TWO_G, start, size)


def test_four_slices_beside_three_at_the_bottom_do_not_fit(h: Desk) -> None:
    h.create(THREE_G, 0, 4)
    with h.refuses("InsufficientResources"):
        h.create(FOUR_G, 0, 4)
    assert h.nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(h.handle, FOUR_G) == 0


def test_compute_slices_run_out_before_the_memory_grid_does(h: Desk) -> None:
    h.create(FOUR_G, 0, 4)
    h.create(TWO_G, 4, 2)
    h.create(ONE_G, 6, 1)
    with h.refuses("InsufficientResources"):
        h.create_anywhere(ONE_G)


def test_the_instance_maximum_holds_where_slots_are_free(h: Desk) -> None:
    h.create(ONE_G_ME, 0, 1)
    with h.refuses("InsufficientResources"):
        h.create(ONE_G_ME, 5, 1)


def test_media_engines_exist_once(make_gpus: MakeGpus) -> None:
    desk = Desk(make_gpus("A30-24GB"))
    desk.mode(ON)
    one_me, two_me = 21, 6
    desk.create(one_me, 0, 1)
    with desk.refuses("InsufficientResources"):
        desk.create(two_me, 2, 2)


def test_beside_all_media_engines_only_instances_without_fit(make_gpus: MakeGpus) -> None:
    desk = Desk(make_gpus("RTX-PRO-6000-96GB"))
    desk.mode(ON)
    plain, all_media, no_media = 14, 65, 67
    desk.create(all_media, 9, 3)
    with desk.refuses("InsufficientResources"):
        desk.create(plain, 0, 3)
    desk.create(no_media, 0, 3)


def test_a_grid_of_twelve_takes_its_own_places_only(make_gpus: MakeGpus) -> None:
    desk = Desk(make_gpus("RTX-PRO-6000-96GB"))
    desk.mode(ON)
    with desk.refuses("InvalidArgument"):
        desk.create(14, 4, 4)
    instance = desk.create(5, 6, 6)
    assert (desk.info(instance).placement.start, desk.info(instance).placement.size) == (6, 6)


def test_an_unknown_profile_id_is_an_invalid_argument(h: Desk) -> None:
    with h.refuses("InvalidArgument"):
        h.create(99, 0, 1)


def test_nothing_is_created_while_mode_is_off(a: Desk) -> None:
    with a.refuses("NotSupported"):
        a.create(ONE_G, 0, 1)
    with a.refuses("NotSupported"):
        a.list(ONE_G)


# Automatic placement, ids, UUIDs


def test_the_driver_places_highest_first(h: Desk) -> None:
    starts = [h.info(h.create_anywhere(ONE_G)).placement.start for _ in range(3)]
    assert starts == [6, 5, 4]
    assert h.info(h.create_anywhere(TWO_G)).placement.start == 2


def test_automatic_placement_fails_where_a_planned_one_would_not(a: Desk) -> None:
    a.mode(ON)
    for profile_id in (ONE_G, ONE_G, TWO_G):
        a.create_anywhere(profile_id)
    with a.refuses("InsufficientResources"):
        a.create_anywhere(THREE_G)


def test_ids_follow_the_share_not_the_start_and_are_reused(h: Desk) -> None:
    ids = [h.info(h.create(ONE_G, start, 1)).id for start in range(7)]
    assert ids == [7, 8, 9, 11, 12, 13, 14]
    third = h.nvml.nvmlDeviceGetGpuInstanceById(h.handle, 9)
    h.nvml.nvmlGpuInstanceDestroy(third)
    first = h.nvml.nvmlDeviceGetGpuInstanceById(h.handle, 7)
    h.nvml.nvmlGpuInstanceDestroy(first)
    again = h.create(ONE_G, 2, 1)
    assert h.info(again).id == 7  # another place than before


@pytest.mark.parametrize("repeats", [True, False])
def test_mig_uuids_repeat_only_where_the_driver_hashes_them(h: Desk, repeats: bool) -> None:
    h.gpus.configure(mig_uuids_repeat=repeats)
    uuids = []
    for _ in range(2):
        instance = h.create(TWO_G, 0, 2)
        compute = h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
        device = h.nvml.nvmlComputeInstanceGetInfo_v2(compute).device
        uuids.append(h.nvml.nvmlDeviceGetUUID(device))
        h.nvml.nvmlComputeInstanceDestroy(compute)
        h.nvml.nvmlGpuInstanceDestroy(instance)
    assert (uuids[0] == uuids[1]) is repeats
    assert all(uuid.startswith("MIG-") for uuid in uuids)


# Order, use, handles


def test_a_gpu_instance_goes_after_its_compute_instances(h: Desk) -> None:
    instance = h.create(TWO_G, 0, 2)
    compute = h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    with h.refuses("InUse"):
        h.nvml.nvmlGpuInstanceDestroy(instance)
    h.nvml.nvmlComputeInstanceDestroy(compute)
    h.nvml.nvmlGpuInstanceDestroy(instance)
    assert h.list(TWO_G) == []


def test_a_compute_instance_in_use_stays(h: Desk) -> None:
    instance = h.create(TWO_G, 0, 2)
    compute = h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    h.gpus.do(operate.start_process, "0", gi_id=h.info(instance).id)
    with h.refuses("InUse"):
        h.nvml.nvmlComputeInstanceDestroy(compute)


def test_a_gpu_instance_alone_is_no_mig_device(h: Desk) -> None:
    h.create(TWO_G, 0, 2)
    for index in range(h.nvml.nvmlDeviceGetMaxMigDeviceCount(h.handle)):
        with h.refuses("NotFound"):
            h.nvml.nvmlDeviceGetMigDeviceHandleByIndex(h.handle, index)


def test_mig_device_indices_have_holes(h: Desk) -> None:
    instance = h.create(ONE_G, 4, 1)
    h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    with h.refuses("NotFound"):
        h.nvml.nvmlDeviceGetMigDeviceHandleByIndex(h.handle, 0)
    device = h.nvml.nvmlDeviceGetMigDeviceHandleByIndex(h.handle, 4)
    assert h.nvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert h.nvml.nvmlDeviceIsMigDeviceHandle(device)
    assert h.nvml.nvmlDeviceGetGpuInstanceId(device) == h.info(instance).id
    parent = h.nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert h.nvml.nvmlDeviceGetUUID(parent) == h.gpus.uuid(0)
    with h.refuses("InvalidArgument"):
        h.nvml.nvmlDeviceGetMigDeviceHandleByIndex(h.handle, 7)


def test_handles_of_what_was_destroyed_are_not_found_even_if_the_id_is_reused(h: Desk) -> None:
    old = h.create(ONE_G, 0, 1)
    h.nvml.nvmlGpuInstanceDestroy(old)
    again = h.create(ONE_G, 0, 1)
    assert h.info(again).id == 7
    with h.refuses("NotFound"):
        h.info(old)


def test_a_mig_handle_is_no_parent(h: Desk) -> None:
    instance = h.create(TWO_G, 0, 2)
    compute = h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    device = h.nvml.nvmlComputeInstanceGetInfo_v2(compute).device
    with h.refuses("InvalidArgument"):
        h.nvml.nvmlDeviceGetMigMode(device)


def test_split_compute_instances_share_a_gpu_instance(h: Desk) -> None:
    instance = h.create(THREE_G, 4, 4)
    one_slice, two_slices = 0, 1
    h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, two_slices)
    compute = h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, one_slice)
    device = h.nvml.nvmlComputeInstanceGetInfo_v2(compute).device
    assert h.nvml.nvmlDeviceGetName(device).endswith("MIG 1c.3g.40gb")
    assert h.nvml.nvmlDeviceGetAttributes(device).computeInstanceSliceCount == 1
    with h.refuses("InsufficientResources"):
        h.nvml.nvmlGpuInstanceCreateComputeInstance(instance, one_slice)


# Permission


@pytest.mark.parametrize(
    ("permission", "may_mode", "may_list"),
    [
        (Permission.ROOT, True, True),
        (Permission.CONFIG, False, True),
        (Permission.NONE, False, False),
    ],
)
def test_modes_are_for_root_and_instances_for_the_privileged(
    h: Desk, permission: Permission, may_mode: bool, may_list: bool
) -> None:
    h.gpus.configure(permission=permission)
    calls: list[tuple[bool, Callable[[], object]]] = [
        (may_mode, lambda: h.mode(ON)),
        (may_list, lambda: h.list(ONE_G)),
        (may_list, lambda: h.create(ONE_G, 0, 1)),
        (may_mode, lambda: h.nvml.nvmlDeviceSetComputeMode(h.handle, 2)),
    ]
    for allowed, call in calls:
        if allowed:
            call()
        else:
            with h.refuses("NoPermission"):
                call()
    assert h.modes() == [ON, ON]  # reading is for everybody


# Reset, reboot, loss


def test_a_reset_takes_the_instances_and_refuses_while_a_process_runs(h: Desk) -> None:
    h.create(TWO_G, 0, 2)
    process = h.gpus.do(operate.start_process, "0", kind=ProcessKind.MONITOR)
    with pytest.raises(Exception, match="processes use it: 4001"):
        h.gpus.do(operate.reset, "0")
    h.gpus.do(operate.stop_process, process.pid)
    h.gpus.do(operate.reset, "0")
    assert h.list(TWO_G) == []
    assert h.modes() == [ON, ON]


@pytest.mark.parametrize(("board", "kept"), [("H100-80GB", OFF), ("A100-40GB", ON)])
def test_after_a_reboot_instances_are_gone_and_hopper_forgets_the_mode(
    make_gpus: MakeGpus, board: str, kept: int
) -> None:
    gpus = make_gpus(board)
    before = Desk(gpus)
    before.mode(ON)
    before.create(TWO_G, 0, 2)
    gpus.do(operate.reboot)
    after = Desk(gpus)
    assert after.modes() == [kept, kept]
    assert gpus.gpu(0).instances == ()
    with before.refuses("Uninitialized"):
        before.modes()


def test_a_lost_gpu_answers_nothing_and_its_neighbour_goes_on(h: Desk) -> None:
    handle = h.handle
    h.gpus.do(operate.lose, "0")
    with h.refuses("GpuIsLost"):
        h.nvml.nvmlDeviceGetUUID(handle)
    with h.refuses("GpuIsLost"):
        _ = h.handle
    other = Desk(h.gpus, index=1)
    assert other.modes() == [OFF, OFF]


def test_indices_may_shuffle_over_a_reboot(h: Desk) -> None:
    uuids = [h.gpus.uuid(0), h.gpus.uuid(1)]
    h.gpus.do(operate.reboot, [1, 0])
    desk = Desk(h.gpus)
    assert desk.nvml.nvmlDeviceGetUUID(desk.handle) == uuids[1]


# Old drivers, missing drivers, failures on request


def test_an_old_driver_lacks_newer_functions_and_profiles(a100: SimulatedGpus) -> None:
    a100.configure(driver_version="470.256.02")
    desk = Desk(a100)
    with desk.refuses("FunctionNotFound"):
        desk.nvml.nvmlDeviceGetGpuInstanceProfileInfo(desk.handle, 0, version=2)
    assert desk.nvml.nvmlDeviceGetGpuInstanceProfileInfo(desk.handle, 0, version=1).id == ONE_G
    double_memory = 9
    with desk.refuses("NotSupported"):
        desk.nvml.nvmlDeviceGetGpuInstanceProfileInfo(desk.handle, double_memory, version=1)


def test_an_old_driver_lists_places_in_mig_mode_only(a100: SimulatedGpus) -> None:
    a100.configure(driver_version="535.183.01")
    desk, count = Desk(a100), ctypes.c_uint(0)
    call = desk.nvml.nvmlDeviceGetGpuInstancePossiblePlacements
    with desk.refuses("NotSupported"):
        call(desk.handle, ONE_G, None, ctypes.byref(count))
    desk.mode(ON)
    call(desk.handle, ONE_G, None, ctypes.byref(count))
    assert count.value == 7


def test_a_function_can_be_missing(h100: SimulatedGpus) -> None:
    h100.configure(missing_functions=("nvmlDeviceGetComputeMode",))
    desk = Desk(h100)
    with desk.refuses("FunctionNotFound"):
        desk.nvml.nvmlDeviceGetComputeMode(desk.handle)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("driver_loaded", False, "DriverNotLoaded"),
        ("version_mismatch", True, "LibRmVersionMismatch"),
    ],
)
def test_an_unusable_driver_refuses_to_start(
    h100: SimulatedGpus, field: str, value: bool, error: str
) -> None:
    h100.configure(**{field: value})
    nvml: Any = h100.bindings
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is made when pynvml loads
        nvml()
    assert type(caught.value).__name__ == f"NVMLError_{error}"


def test_without_init_nothing_works(h100: SimulatedGpus) -> None:
    desk = Desk(h100)
    desk.nvml.nvmlShutdown()
    with desk.refuses("Uninitialized"):
        desk.nvml.nvmlDeviceGetCount()


def test_a_failure_on_request_happens_as_often_as_asked(h: Desk) -> None:
    name = "nvmlDeviceCreateGpuInstanceWithPlacement"
    h.gpus.do(operate.fail_calls, Failure(function=name, code=999, times=2))
    for _ in range(2):
        with h.refuses("Unknown"):
            h.create(ONE_G, 0, 1)
    h.create(ONE_G, 0, 1)


def test_a_call_may_fail_after_it_took_effect(h: Desk) -> None:
    name = "nvmlDeviceCreateGpuInstanceWithPlacement"
    failure = Failure(function=name, code=999, takes_effect=True)
    h.gpus.do(operate.fail_calls, failure)
    with h.refuses("Unknown"):
        h.create(ONE_G, 0, 1)
    assert [each.placement.start for each in h.list(ONE_G)] == [0]


def test_structs_of_another_version_are_refused(h: Desk) -> None:
    info = h.nvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    info.version = 0x03000098
    function = h.nvml._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstanceProfileInfoV")
    with h.refuses("ArgumentVersionMismatch"):
        h.nvml._nvmlCheckReturn(function(h.handle, 0, ctypes.byref(info)))


def test_the_loop_over_profile_enums_ends_as_documented(h: Desk) -> None:
    def answer(enum: int) -> str | int:
        try:
            return str(h.nvml.nvmlDeviceGetGpuInstanceProfileInfo(h.handle, enum).name)
        except h.nvml.NVMLError as error:
            return int(error.value)

    answers = [answer(enum) for enum in range(h.nvml.NVML_GPU_INSTANCE_PROFILE_COUNT + 2)]
    assert answers[-2:] == [h.nvml.NVML_ERROR_INVALID_ARGUMENT] * 2
    names = [each for each in answers[:-2] if isinstance(each, str)]
    assert len(names) == 7
    assert "MIG 1g.10gb+me" in names
    assert set(answers[:-2]) - set(names) == {h.nvml.NVML_ERROR_NOT_SUPPORTED}


def test_changes_by_others_are_seen_at_once(h: Desk) -> None:
    other = Desk(h.gpus)
    other.create(TWO_G, 4, 2)
    assert [each.placement.start for each in h.list(TWO_G)] == [4]
    with h.refuses("InsufficientResources"):
        h.create(SEVEN_G, 0, 8)
