"""Every call that a controller of GPUs needs is answered by the simulated library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from sharing.board import Placement
from sharing.errors import GpuSharingError
from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code
from sharing.nvml.driver import Driver
from sharing.nvml.simulator.library import SimulatedLibrary
from sharing.nvml.simulator.state import Failure
from sharing.nvml.simulator.symbols import EXPORTS
from tests.support.simulated_gpus import SimulatedGpus

LIBRARY = """
InitWithFlags Init_v2 Shutdown ErrorString
SystemGetDriverVersion SystemGetNVMLVersion SystemGetCudaDriverVersion_v2
"""
DEVICES = """
Count_v2 HandleByIndex_v2 HandleByUUID HandleByPciBusId_v2 Name UUID Index MinorNumber PciInfo_v3
MemoryInfo MemoryInfo_v2 Architecture CudaComputeCapability FieldValues PersistenceMode ComputeMode
MigMode GpuInstanceProfileInfo GpuInstanceProfileInfoV GpuInstancePossiblePlacements_v2
GpuInstanceRemainingCapacity GpuInstances GpuInstanceById MaxMigDeviceCount
MigDeviceHandleByIndex GpuInstanceId ComputeInstanceId DeviceHandleFromMigDeviceHandle
Attributes_v2 ComputeRunningProcesses_v3 GraphicsRunningProcesses_v3 MPSComputeRunningProcesses_v3
UtilizationRates ProcessUtilization SupportedEventTypes TopologyCommonAncestor P2PStatus NvLinkState
NvLinkRemotePciInfo_v2 NvLinkRemoteDeviceType CpuAffinity MemoryAffinity NumaNodeId GpuFabricInfoV
"""
OTHERS = """
DeviceSetComputeMode DeviceSetMigMode DeviceCreateGpuInstance DeviceCreateGpuInstanceWithPlacement
DeviceIsMigDeviceHandle GpuInstanceGetInfo GpuInstanceDestroy
GpuInstanceGetComputeInstanceProfileInfo GpuInstanceGetComputeInstanceProfileInfoV
GpuInstanceGetComputeInstanceRemainingCapacity GpuInstanceCreateComputeInstance
GpuInstanceGetComputeInstances GpuInstanceGetComputeInstanceById ComputeInstanceGetInfo_v2
ComputeInstanceDestroy EventSetCreate EventSetFree EventSetWait_v2 DeviceRegisterEvents
GpmSampleAlloc GpmSampleFree GpmSampleGet GpmMigSampleGet GpmMetricsGet GpmQueryDeviceSupport
DeviceSetMemoryLimits_v1 DeviceGetMemoryLimits_v1
"""
CALLS = sorted(
    [f"nvml{name}" for name in (LIBRARY + OTHERS).split()]
    + [f"nvmlDeviceGet{name}" for name in DEVICES.split()]
)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_a_controller_needs_is_answered(h100: SimulatedGpus, call: str) -> None:
    h100.configure(driver_version="615.10.01")

    assert callable(getattr(SimulatedLibrary(h100.path), call))


def test_a_call_that_nvml_does_not_have_is_missing_as_in_a_real_library(
    h100: SimulatedGpus,
) -> None:
    with pytest.raises(AttributeError):
        SimulatedLibrary(h100.path).nvmlDeviceGetGoodMood  # noqa: B018 - looking it up is the call


ESSENTIAL = {
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetCount_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlInitWithFlags",
}
"""Without these, which every driver has, a GPU cannot be served at all."""


def use(driver: Driver, uuid: str) -> dict[str, str]:
    """What goes wrong when everything is asked of a driver, by step."""

    def destroy() -> None:
        for instance in driver.observe().gpus[0].instances:
            driver.destroy_instance(uuid, instance.gi_id)

    def watch() -> None:
        with driver.watch() as events:
            events.wait(0.0)

    steps: dict[str, Callable[[], object]] = {
        "observe": driver.observe,
        "processes": lambda: driver.processes(uuid),
        "topology": driver.topology,
        "mode": lambda: driver.set_mig_mode(uuid, on=True),
        "create": lambda: driver.create_instance(
            uuid, MigProfile.parse("3g.40gb"), Placement(0, 4)
        ),
        "again": driver.observe,
        "destroy": destroy,
        "watch": watch,
    }
    wrong = {}
    for name, step in steps.items():
        try:
            step()
        except GpuSharingError as error:
            wrong[name] = str(error)
    return wrong


@pytest.mark.parametrize("code", [Code.FUNCTION_NOT_FOUND, Code.UNKNOWN])
def test_whichever_call_fails_errors_are_ours_and_what_a_driver_may_lack_hides_no_gpu(
    h100: SimulatedGpus, code: Code
) -> None:
    driver = Driver(h100.path)
    driver.open()
    for call in sorted(EXPORTS):
        h100.configure(failures=(Failure(function=call, code=code, times=10_000),))

        wrong = use(driver, h100.uuid())

        if code is Code.FUNCTION_NOT_FOUND and call not in ESSENTIAL:
            assert "observe" not in wrong, call
            assert driver.observe().gpus[1].readable, call
        h100.configure(failures=())
        if h100.gpu().instances:
            use(driver, h100.uuid())  # takes away what was left half made
    assert use(driver, h100.uuid()) == {}
    driver.close()


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlShutdown"])
def test_a_driver_that_cannot_be_opened_or_closed_is_opened_when_it_can(
    h100: SimulatedGpus, call: str
) -> None:
    driver = Driver(h100.path)
    driver.open()
    h100.configure(failures=(Failure(function=call, code=Code.UNKNOWN, times=1),))
    driver.close()
    with contextlib.suppress(GpuSharingError):
        driver.open()
    driver.open()
    assert len(driver.observe().gpus) == 2
    driver.close()
