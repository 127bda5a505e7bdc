"""What the driver's refusals mean to us, one class for each way to go on.

    DriverError
    └── NvmlError                     any return code; the classes below say what to do
        ├── DriverBusyError           something uses it: wait, never force
        ├── GpuLostError              it fell off the bus: no more calls to it
        ├── DriverUnsupportedError    this board, driver or mode cannot
        ├── DriverPermissionError     we may not
        ├── InsufficientResourcesError place, slice or engine is taken: observe again, plan again
        ├── InstanceNotFoundError     it is gone
        ├── DriverArgumentError       this driver never accepts it
        └── DriverUnavailableError    no driver, or not the one we opened: open again later

After any of them nothing is known about the GPU until it is observed again.
"""

from __future__ import annotations

from typing import Final

from sharing.errors import DriverError
from sharing.nvml.codes import Code


class NvmlError(DriverError):
    """A call to NVML that did not succeed.

    Args:
        subject: The GPU or instance, as the reader knows it.
        wrong: What was being done and how the driver refused it.
        expected: As in GpuSharingError.
        fix: As in GpuSharingError.
        example: As in GpuSharingError.
        code: NVML's return code.
        call: The NVML function.
    """

    def __init__(
        self,
        subject: str,
        wrong: str,
        *,
        expected: str = "",
        fix: str = "",
        example: str = "",
        code: Code = Code.UNKNOWN,
        call: str = "",
    ) -> None:
        super().__init__(subject, wrong, expected=expected, fix=fix, example=example)
        self.code = code
        self.call = call


class DriverBusyError(NvmlError):
    """Something uses what was to be changed."""


class GpuLostError(NvmlError):
    """The GPU does not answer any more."""


class DriverUnsupportedError(NvmlError):
    """The board, the driver or the current mode cannot do it."""


class DriverPermissionError(NvmlError):
    """The caller may not do it."""


class InsufficientResourcesError(NvmlError):
    """The place is taken, or slices, engines or the instance maximum are used up."""


class InstanceNotFoundError(NvmlError):
    """The GPU or instance is not there."""


class DriverArgumentError(NvmlError):
    """The driver accepts no such argument, whatever the state."""


class DriverUnavailableError(NvmlError):
    """There is no driver to talk to, or it changed under us."""


_MEANING: Final[dict[Code, tuple[type[NvmlError], str]]] = {
    Code.IN_USE: (DriverBusyError, "wait until nothing uses it, then try again"),
    Code.GPU_IS_LOST: (GpuLostError, "reset the GPU or restart the node"),
    Code.RESET_REQUIRED: (GpuLostError, "reset the GPU or restart the node"),
    Code.NOT_SUPPORTED: (
        DriverUnsupportedError,
        "check that the board has it and that MIG mode is as needed",
    ),
    Code.FUNCTION_NOT_FOUND: (DriverUnsupportedError, "upgrade the NVIDIA driver"),
    Code.ARGUMENT_VERSION_MISMATCH: (DriverUnsupportedError, "upgrade the NVIDIA driver"),
    Code.NO_PERMISSION: (
        DriverPermissionError,
        "run as root, or with read access to the capability mig/config",
    ),
    Code.INSUFFICIENT_RESOURCES: (
        InsufficientResourcesError,
        "observe the GPU again and plan with what is there",
    ),
    Code.NOT_FOUND: (InstanceNotFoundError, "observe the GPU again"),
    Code.GPU_NOT_FOUND: (InstanceNotFoundError, "observe the node again"),
    Code.INVALID_ARGUMENT: (DriverArgumentError, "observe the GPU again; handles may have changed"),
    Code.UNINITIALIZED: (DriverUnavailableError, "open the driver again"),
    Code.DRIVER_NOT_LOADED: (DriverUnavailableError, "load the NVIDIA driver"),
    Code.LIBRARY_NOT_FOUND: (
        DriverUnavailableError,
        "install the NVIDIA driver, or use simulated GPUs",
    ),
    Code.LIB_RM_VERSION_MISMATCH: (
        DriverUnavailableError,
        "the driver was upgraded while it ran: restart the node or reload its modules",
    ),
    Code.OPERATING_SYSTEM: (DriverUnavailableError, "check the device nodes in the container"),
    Code.NOT_READY: (DriverUnavailableError, "try again"),
}


def refusal(code: int, call: str, subject: str) -> NvmlError:
    """The error that a return code means.

    Args:
        code: NVML's return code, known or not.
        call: The NVML function.
        subject: What it was called for.
    """
    known = Code.of(code)
    kind, fix = _MEANING.get(known, (NvmlError, "observe the GPU again; see the kernel's log"))
    wrong = f"{call} answered {known.name} ({code})"
    return kind(subject, wrong, fix=fix, code=known, call=call)
