"""The state file, and what a person can do to a simulated machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from sharing.board import Placement
from sharing.errors import InputError, UnavailableError
from sharing.migprofile import MigProfile
from sharing.nvml import simulator
from sharing.nvml.driver import Driver
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Delays, Machine, ProcessKind
from sharing.nvml.simulator.store import Store
from tests.support.simulated_gpus import SimulatedGpus

MakeGpus = Callable[..., SimulatedGpus]
SPAWN = multiprocessing.get_context("spawn")


def bump(machine: Machine) -> tuple[Machine, None]:
    return replace(machine, cuda_version=machine.cuda_version + 1), None


def bump_often(path: Path, times: int) -> None:
    for _ in range(times):
        Store(path).change(bump)


def bump_for_ever(path: Path) -> None:
    while True:
        Store(path).change(bump)


# The file


def test_no_change_is_lost_between_processes(h100: SimulatedGpus) -> None:
    before = h100.machine.cuda_version
    workers = [SPAWN.Process(target=bump_often, args=(h100.path, 60)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert h100.machine.cuda_version == before + 120


def test_a_killed_writer_leaves_a_whole_state_and_no_lock(h100: SimulatedGpus) -> None:
    store = Store(h100.path)
    for _ in range(2):
        before = store.read().cuda_version
        worker = SPAWN.Process(target=bump_for_ever, args=(h100.path,))
        worker.start()
        deadline = time.monotonic() + 60
        while store.read().cuda_version == before:
            assert time.monotonic() < deadline
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(60)
        assert store.change(bump) is None


def test_a_reader_sees_each_of_many_writes_within_a_clock_tick(h100: SimulatedGpus) -> None:
    reader, writer = Store(h100.path), Store(h100.path)
    for _ in range(150):
        writer.change(bump)
        assert reader.read().cuda_version == writer.read().cuda_version


def test_a_step_that_fails_changes_nothing(h100: SimulatedGpus) -> None:
    before = h100.path.read_bytes()
    with pytest.raises(InputError):
        h100.do(operate.report_xid, "7", 13)
    assert h100.path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"format": 99}',
        b'{"format": 1}',
        b'{"format":1, "seed": "", "gpus": [{"uuid": "", "board": "Z", "minor": 0, "pci_bus": 1}]}',
        b'{"format": 1, "seed": "x", "surprise": 1}',
        b"\xff\xfe",
    ],
)
def test_a_file_that_holds_no_machine_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"state file .*odd\.json"):
        simulator.bindings(path)


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"gpu-sharing gpu --state gpus\.json create"):
        simulator.bindings(tmp_path / "none.json")


def test_the_file_is_json_that_a_person_can_read(h100: SimulatedGpus) -> None:
    raw = json.loads(h100.path.read_text())
    assert [gpu["board"] for gpu in raw["gpus"]] == ["H100-80GB", "H100-80GB"]


def test_the_same_seed_gives_the_same_uuids(tmp_path: Path) -> None:
    first = simulator.create(tmp_path / "a.json", "2xT4-16GB", seed="node-1")
    again = simulator.create(tmp_path / "b.json", ["T4-16GB", "T4-16GB"], seed="node-1")
    other = simulator.create(tmp_path / "c.json", "2xT4-16GB", seed="node-2")
    assert first.gpus == again.gpus
    assert {gpu.uuid for gpu in first.gpus}.isdisjoint(gpu.uuid for gpu in other.gpus)


# Behind pynvml


def test_install_puts_the_machine_behind_the_shared_pynvml(h100: SimulatedGpus) -> None:
    nvml: Any = pynvml
    simulator.install(h100.path)
    try:
        nvml.nvmlInit()
        assert nvml.nvmlDeviceGetCount() == 2
        nvml.nvmlShutdown()
    finally:
        simulator.uninstall()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()


def test_two_machines_live_in_one_process(tmp_path: Path) -> None:
    simulator.create(tmp_path / "a.json", "T4-16GB")
    simulator.create(tmp_path / "b.json", "3xL4-24GB")
    modules: list[Any] = [simulator.bindings(tmp_path / f"{name}.json") for name in "ab"]
    for module in modules:
        module.nvmlInit()
    assert [module.nvmlDeviceGetCount() for module in modules] == [1, 3]


# Identity and measures


def test_identity_is_what_nvml_would_say(h100: SimulatedGpus) -> None:
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByUUID(h100.uuid(1))
    assert nvml.nvmlDeviceGetIndex(handle) == 1
    assert nvml.nvmlDeviceGetMinorNumber(handle) == 1
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    assert (pci.bus, pci.pciDeviceId) == (0x2A, 0x233010DE)
    by_bus = nvml.nvmlDeviceGetHandleByPciBusId("0000:2A:00.0")
    assert nvml.nvmlDeviceGetUUID(by_bus) == h100.uuid(1)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID("GPU-nobody")
    assert nvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert nvml.nvmlDeviceGetPersistenceMode(handle) == 1
    assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)


def test_a_mig_device_is_found_by_uuid_and_has_its_own_memory(h100: SimulatedGpus) -> None:
    h100.do(operate.set_mig_mode, "0", on=True)
    made = h100.do(operate.create_instance, "0", MigProfile.parse("1g.10gb"), 3)
    h100.do(operate.start_process, "0", gi_id=made.id, memory_mib=984)
    nvml = h100.bindings()
    device = nvml.nvmlDeviceGetHandleByUUID(made.compute[0].uuid)
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    assert (memory.total >> 20, memory.free >> 20) == (9984, 9000)
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert (process.gpuInstanceId, process.computeInstanceId) == (made.id, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(0))


def test_use_is_measured_on_whole_gpus(h100: SimulatedGpus) -> None:
    process = h100.do(operate.start_process, "0", memory_mib=8155)
    busy = replace(process, sm_percent=70)
    h100.configure_gpu(0, processes=(busy, replace(busy, pid=9, sm_percent=60)))
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (100, 19)
    samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert sorted((each.pid, each.smUtil) for each in samples) == [(9, 60), (4001, 70)]
    reserved = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).reserved
    assert reserved > 0


def test_field_values_have_each_their_own_code(h100: SimulatedGpus) -> None:
    nvml = h100.bindings()
    fields = [nvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, 1, 230]
    values = nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(0), fields)
    assert [value.nvmlReturn for value in values] == [0, nvml.NVML_ERROR_NOT_SUPPORTED, 0]
    assert values[0].value.uiVal == 1


def test_nvlinks_lead_to_switches_and_can_be_down(h100: SimulatedGpus) -> None:
    h100.configure_gpu(0, nvlinks_down=(3,))
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert [nvml.nvmlDeviceGetNvLinkState(handle, link) for link in (2, 3)] == [1, 0]
    kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, 2)
    assert kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetNvLinkState(handle, 18)
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetP2PStatus(handle, other, 2) == nvml.NVML_P2P_STATUS_OK
    nvml.nvmlDeviceSetMigMode(handle, 1)
    assert nvml.nvmlDeviceGetP2PStatus(handle, other, 2) != nvml.NVML_P2P_STATUS_OK


def test_cpus_and_memory_near_a_gpu_follow_its_numa_node(h100: SimulatedGpus) -> None:
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert list(nvml.nvmlDeviceGetMemoryAffinity(handle, 1, 0)) == [0b10]
    assert list(nvml.nvmlDeviceGetCpuAffinity(handle, 2)) == [0xFFFFFFFF00000000, 0]
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetNumaNodeId(handle)


def test_slow_calls_take_the_time_that_was_asked_for(h100: SimulatedGpus) -> None:
    h100.configure(delays=Delays(mode_s=0.1))
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    start = time.monotonic()
    nvml.nvmlDeviceSetMigMode(handle, 1)
    assert time.monotonic() - start >= 0.1


def test_a_simulation_that_does_not_wait_counts_each_delay_all_the_same(
    h100: SimulatedGpus,
) -> None:
    delays = Delays(create_s=0.2, destroy_s=1, mode_s=4, walk_s=10, list_s=0.05, open_s=2, pace=0)
    h100.configure(delays=delays)
    start = time.monotonic()
    driver = Driver(h100.path)
    driver.open()
    spent = [h100.machine.spent_s]

    def cost(step: Callable[[], object]) -> float:
        step()
        spent.append(h100.machine.spent_s)
        return round(spent[-1] - spent[-2], 6)

    uuid, profile = h100.uuid(), MigProfile.parse("1g.10gb")
    assert spent == [2]
    assert cost(lambda: driver.set_mig_mode(uuid, on=True)) == 4
    driver.observe()
    spent.append(h100.machine.spent_s)
    created = cost(lambda: driver.create_instance(uuid, profile, Placement(0, 1)))
    assert created == 0.4  # the GPU instance and the compute instance
    assert cost(driver.observe) == 0.35  # seven MIG profiles
    gi_id = h100.gpu().instances[0].id
    assert cost(lambda: driver.destroy_instance(uuid, gi_id)) == 2
    driver.close()
    assert time.monotonic() - start < 2


# What a person does


def test_a_process_in_mig_mode_runs_in_an_instance(h100: SimulatedGpus) -> None:
    h100.do(operate.set_mig_mode, "0", on=True)
    with pytest.raises(InputError, match="runs in an instance"):
        h100.do(operate.start_process, "0")
    half = h100.do(operate.create_instance, "0", MigProfile.parse("1g.10gb"), 0, with_compute=False)
    with pytest.raises(InputError, match="no compute instance yet"):
        h100.do(operate.start_process, "0", gi_id=half.id)
    with pytest.raises(InputError, match=f"no GPU instance 99; expected one of: {half.id}"):
        h100.do(operate.start_process, "0", gi_id=99)


def test_a_process_takes_no_more_memory_than_there_is(h100: SimulatedGpus) -> None:
    h100.do(operate.start_process, "0", memory_mib=80000)
    with pytest.raises(InputError, match="has 1559 MiB left, the process wants 2000"):
        h100.do(operate.start_process, "0", memory_mib=2000)


def test_pids_are_the_machines_own(h100: SimulatedGpus) -> None:
    first = h100.do(operate.start_process, "0")
    second = h100.do(operate.start_process, "1", kind=ProcessKind.GRAPHICS)
    assert (first.pid, second.pid) == (4001, 4002)
    with pytest.raises(InputError, match="runs already"):
        h100.do(operate.start_process, "1", pid=4001)
    h100.do(operate.stop_process, 4001)
    with pytest.raises(InputError, match="does not run"):
        h100.do(operate.stop_process, 4001)


def test_a_foreign_change_that_the_driver_refuses_is_told_in_words(h100: SimulatedGpus) -> None:
    profile = MigProfile.parse("1g.10gb")
    with pytest.raises(InputError, match="switch MIG mode on first"):
        h100.do(operate.create_instance, "0", profile)
    h100.do(operate.set_mig_mode, "0", on=True)
    with pytest.raises(InputError, match="one of the legal places"):
        h100.do(operate.create_instance, "0", profile, 7)
    made = h100.do(operate.create_instance, "0", profile)
    h100.do(operate.start_process, "0", gi_id=made.id)
    with pytest.raises(InputError, match="stop what uses it first"):
        h100.do(operate.destroy_instance, "0", made.id)


def test_a_foreign_instance_is_destroyed_with_what_lies_in_it(h100: SimulatedGpus) -> None:
    h100.do(operate.set_mig_mode, "0", on=True)
    made = h100.do(operate.create_instance, "0", MigProfile.parse("3g.40gb"))
    h100.do(operate.destroy_instance, "0", made.id)
    assert h100.gpu(0).instances == ()


def test_an_order_that_is_no_permutation_is_refused(h100: SimulatedGpus) -> None:
    with pytest.raises(InputError, match="no permutation"):
        h100.do(operate.reboot, [0, 0])


def test_only_the_last_events_are_kept(h100: SimulatedGpus) -> None:
    for _ in range(3):
        h100.do(operate.report_xid, "0", 13)
    assert [event.number for event in h100.machine.events] == [1, 2, 3]
    h100.do(operate.reboot)
    assert h100.machine.events == ()


def test_remapped_rows_wait_for_a_reset(h100: SimulatedGpus) -> None:
    h100.configure_gpu(0, remapped_rows=(1, 2, 1, 0))
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetRemappedRows(handle) == (1, 2, 1, 0)
    h100.do(operate.reset, "0")
    assert nvml.nvmlDeviceGetRemappedRows(handle) == (1, 2, 0, 0)
