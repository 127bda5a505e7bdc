"""Heat, memory errors, rows, links, monitors, limits, another driver: as NVML tells of them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from cli.gpu import gpu as command
from sharing.errors import InputError
from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code
from sharing.nvml.driver import Driver
from sharing.nvml.observed import DriverEvent, EventKind
from sharing.nvml.simulator import ageing, operate
from sharing.nvml.simulator.state import Failure, ProcessKind, Renamed
from tests.support.simulated_gpus import SimulatedGpus

MakeGpus = Callable[..., SimulatedGpus]
OpenDriver = Callable[[SimulatedGpus], Driver]
WAIT_S = 20.0


def test_vitals_are_read_and_a_reset_makes_them_well(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(h100)
    well = driver.observe().gpus[0].vitals
    assert (well.ecc_uncorrected, well.rows_pending, well.rows_failed) == (0, False, False)
    assert (well.temperature_c, well.slowdown_c, well.nvlinks_down) == (34, 90, ())

    h100.do(ageing.heat, "0", 91)
    h100.do(ageing.memory_errors, "0", corrected=9, uncorrected=2)
    h100.do(ageing.remap_rows, "0", pending=True)
    h100.do(ageing.set_link, "0", 3, up=False)
    h100.do(ageing.set_link, "0", 5, up=False)
    h100.do(ageing.set_link, "0", 5, up=True)
    ill = driver.observe().gpus[0].vitals
    assert (ill.ecc_uncorrected, ill.rows_pending, ill.temperature_c) == (2, True, 91)
    assert (ill.nvlinks_down, ill.nvlink_recoveries) == ((3,), 1)

    h100.do(operate.reset, "0")
    again = driver.observe().gpus[0].vitals
    assert (again.ecc_uncorrected, again.rows_pending, again.nvlinks_down) == (0, False, ())


def test_a_failed_row_survives_a_reset(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    driver = open_driver(h100)
    h100.do(ageing.remap_rows, "0", failed=True)
    h100.do(operate.reset, "0")
    assert driver.observe().gpus[0].vitals.rows_failed


def test_boards_that_cannot_tell_have_no_vitals_to_worry_about(
    make_gpus: MakeGpus, open_driver: OpenDriver
) -> None:
    gpus = make_gpus("T4-16GB")
    gpus.configure(missing_functions=("nvmlDeviceGetTemperature", "nvmlDeviceGetFieldValues"))
    vitals = open_driver(gpus).observe().gpus[0].vitals
    assert (vitals.ecc_uncorrected, vitals.temperature_c, vitals.nvlink_recoveries) == (None,) * 3


def test_memory_errors_are_events_too(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    with open_driver(h100).watch() as watch:
        h100.do(ageing.memory_errors, "1", uncorrected=1)
        event = watch.wait(WAIT_S)
    assert event == DriverEvent(kind=EventKind.ECC, uuid=h100.uuid(1), data=1)


# The watch


def test_a_gpu_lost_at_start_is_watched_once_it_is_back(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(h100)
    h100.do(operate.lose, "0")
    with driver.watch() as watch:
        h100.do(operate.reset, "0")
        watch.wait(1.2)  # it joins while we wait
        h100.do(operate.report_xid, "0", 95)
        told = [watch.wait(WAIT_S), watch.wait(WAIT_S)]
    xids = [event for event in told if event is not None and event.kind is EventKind.XID]
    assert [(event.uuid, event.data) for event in xids] == [(h100.uuid(0), 95)]


def test_a_driver_that_answers_lost_for_ever_is_asked_once_a_second(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    failure = Failure(function="nvmlEventSetWait_v2", code=int(Code.GPU_IS_LOST), times=1000)
    h100.do(operate.fail_calls, failure)
    start = time.monotonic()
    with open_driver(h100).watch() as watch:
        told = [watch.wait(5.0), watch.wait(5.0)]
    assert told == [DriverEvent(kind=EventKind.LOST, uuid=None)] * 2
    assert time.monotonic() - start > 0.9


# MPS


def test_a_mistake_of_one_mps_client_ends_all_clients_of_that_gpu(h100: SimulatedGpus) -> None:
    for which in ("0", "0", "1"):
        h100.do(operate.start_process, which, kind=ProcessKind.MPS)
    other = h100.do(operate.start_process, "0")

    h100.do(operate.report_xid, "0", 31)

    assert h100.gpu(0).processes == (other,)
    assert len(h100.gpu(1).processes) == 1
    assert h100.gpu(0).recovery_action == 0


# Performance monitors


def busy_percent(nvml: Any, handle: Any, gi_id: int | None = None) -> float:
    samples = []
    for _ in range(2):
        sample = nvml.nvmlGpmSampleAlloc()
        if gi_id is None:
            nvml.nvmlGpmSampleGet(handle, sample)
        else:
            nvml.nvmlGpmMigSampleGet(handle, gi_id, sample)
        samples.append(sample)
    question = nvml.c_nvmlGpmMetricsGet_t()
    question.version, question.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
    question.sample1, question.sample2 = samples
    question.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
    question.metrics[1].metricId = nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
    nvml.nvmlGpmMetricsGet(question)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    assert question.metrics[1].nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED
    return float(question.metrics[0].value)


def test_monitors_measure_a_gpu_and_each_of_its_instances(h100: SimulatedGpus) -> None:
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 1
    h100.do(operate.set_mig_mode, "0", on=True)
    made = [h100.do(operate.create_instance, "0", MigProfile.parse("1g.10gb")) for _ in range(2)]
    for instance, percent in zip(made, (30, 20), strict=True):
        process = h100.do(operate.start_process, "0", gi_id=instance.id)
        processes = h100.gpu().processes
        busy = [
            {**_fields(each), "sm_percent": percent} if each == process else _fields(each)
            for each in processes
        ]
        h100.configure_gpu(0, processes=tuple(type(process)(**each) for each in busy))

    assert busy_percent(nvml, handle, made[0].id) == 30
    assert busy_percent(nvml, handle, made[1].id) == 20
    assert busy_percent(nvml, handle) == 50
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMigSampleGet(handle, 99, nvml.nvmlGpmSampleAlloc())


def _fields(process: Any) -> dict[str, Any]:
    return {name: getattr(process, name) for name in type(process).__dataclass_fields__}


def test_boards_before_hopper_have_no_monitors(a100: SimulatedGpus) -> None:
    nvml = a100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 0
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlGpmSampleGet(handle, nvml.nvmlGpmSampleAlloc())


# Memory limits


def limits(nvml: Any, kind: str, path: str, soft: int = 0, hard: int = 0) -> Any:
    return getattr(nvml, f"c_nvml{kind}MemoryLimits_v1_t")(path.encode(), soft, hard)


def test_a_cgroups_memory_is_limited_and_measured(h100: SimulatedGpus) -> None:
    h100.configure(driver_version="615.10")
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    pod = "/sys/fs/cgroup/kubepods/pod1"
    nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits(nvml, "Set", pod, 1 << 30, 2 << 30))
    h100.do(operate.start_process, "0", cgroup=pod, memory_mib=1500)
    with pytest.raises(InputError, match="may use 548 MiB more, the process wants 600"):
        h100.do(operate.start_process, "0", cgroup=pod, memory_mib=600)
    h100.do(operate.start_process, "0", memory_mib=600)

    told = limits(nvml, "Get", pod)
    nvml.nvmlDeviceGetMemoryLimits_v1(handle, told)
    assert (told.softLimit >> 30, told.hardLimit >> 30, told.currentUsed >> 20) == (1, 2, 1500)

    nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits(nvml, "Set", pod))
    nvml.nvmlDeviceGetMemoryLimits_v1(handle, told)
    assert (told.softLimit, told.hardLimit) == (0, 0)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits(nvml, "Set", "", 1, 2))
    second = nvml.nvmlDeviceGetHandleByIndex(1)
    nvml.nvmlDeviceSetMigMode(second, 1)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceSetMemoryLimits_v1(second, limits(nvml, "Set", pod, 1, 2))


def test_an_older_driver_has_no_memory_limits(h100: SimulatedGpus) -> None:
    nvml = h100.bindings()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetMemoryLimits_v1(handle, limits(nvml, "Get", "/a"))


# Fabric


@pytest.mark.parametrize(
    ("board", "state", "clique", "cluster"),
    [("GB200-186GB", 3, 1, True), ("H100-80GB", 3, 0, False), ("L4-24GB", 0, 0, False)],
)
def test_the_fabric_is_told_with_its_cluster_where_that_spans_nodes(
    make_gpus: MakeGpus, board: str, state: int, clique: int, cluster: bool
) -> None:
    nvml = make_gpus(board).bindings()
    answer = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(nvml.nvmlDeviceGetHandleByIndex(0), ctypes.byref(answer))
    assert (answer.state, answer.cliqueId, any(answer.clusterUuid)) == (state, clique, cluster)


# Another driver


def test_another_driver_may_name_mig_profiles_otherwise(
    make_gpus: MakeGpus, open_driver: OpenDriver
) -> None:
    gpus = make_gpus("GB200-186GB", "L4-24GB")
    change = Renamed(profile="1g.23gb", name="1g.24gb", memory_mib=20480)
    gpus.do(ageing.change_driver, "570.86.15", [change])

    driver = open_driver(gpus)
    node = driver.observe()
    assert node.driver_version == "570.86.15"
    offered = node.gpus[0].board.mig_profile(MigProfile.parse("1g.24gb"))
    assert offered.memory_mib == 20480
    assert any("1g.24gb differs from the catalogue" in one for one in node.gpus[0].differences)
    driver.set_mig_mode(gpus.uuid(), on=True)
    made = driver.create_instance(gpus.uuid(), offered.profile, offered.placements[0])
    assert (str(made.profile), made.memory_mib) == ("1g.24gb", 20480)
    assert gpus.gpu(1).renamed == ()


# The command


def test_a_person_lets_a_gpu_age(h100: SimulatedGpus) -> None:
    def run(*arguments: str) -> int:
        told = CliRunner().invoke(command, ["--state", str(h100.path), *arguments])
        return told.exit_code

    assert run("heat", "0", "95") == 0
    assert run("ecc", "0", "2") == 0
    assert run("ecc", "0", "7", "--corrected") == 0
    assert run("rows", "0", "failed") == 0
    assert run("nvlink", "0", "4", "down") == 0
    gpu = h100.gpu()
    assert (gpu.temperature_c, gpu.ecc_errors, gpu.remapped_rows) == (95, (7, 2), (0, 0, 0, 1))
    assert gpu.nvlinks_down == (4,)
    assert run("driver", "590.10", "--rename", "1g.10gb=1g.11gb,10000") == 0
    assert h100.machine.driver_version == "590.10"
    assert run("nvlink", "0", "99", "down") != 0
    assert run("driver", "590.10", "--rename", "1g.10gb") != 0
