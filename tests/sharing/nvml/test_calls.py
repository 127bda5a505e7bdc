"""Every call that a controller of GPUs needs is answered by the simulated library."""

from __future__ import annotations

import pytest

from sharing.nvml.simulator.library import SimulatedLibrary
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
