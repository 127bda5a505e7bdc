"""NVML's return codes and the few constants that both sides of pynvml need.

Kept apart from pynvml, which costs 8,000 lines to import and is wanted in the driver only.

Source: nvml.h of NVML 13.5.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class Code(IntEnum):
    """``nvmlReturn_t``, as far as it occurs with GPUs."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    INVALID_STATE = 29
    UNKNOWN = 999

    @classmethod
    def of(cls, value: int) -> Code:
        """The code of a number; UNKNOWN for one that this program has no name for."""
        return cls(value) if value in _KNOWN else cls.UNKNOWN


_KNOWN: Final = frozenset(int(code) for code in Code)


class EventType(IntFlag):
    """``nvmlEventType*``."""

    SINGLE_BIT_ECC = 0x1
    DOUBLE_BIT_ECC = 0x2
    XID = 0x8
    MIG_CONFIG_CHANGE = 0x100
    GPU_UNAVAILABLE = 0x4000
    RECOVERY_ACTION = 0x8000


class RecoveryAction(IntEnum):
    """``nvmlGpuRecoveryAction_t``: what the driver recommends, field value 230."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


TEMPERATURE_GPU: Final = 0
"""``NVML_TEMPERATURE_GPU``, the sensor on the die."""
THRESHOLD_SHUTDOWN: Final = 0
THRESHOLD_SLOWDOWN: Final = 1
"""``NVML_TEMPERATURE_THRESHOLD_*``, degrees Celsius."""


class ComputeMode(IntEnum):
    """``nvmlComputeMode_t``; 1 was removed from the driver."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class TopologyLevel(IntEnum):
    """``nvmlGpuTopologyLevel_t``: the closest thing that two GPUs share, nearest first."""

    INTERNAL = 0
    SINGLE = 10
    MULTIPLE = 20
    HOSTBRIDGE = 30
    NODE = 40
    SYSTEM = 50


FIELD_ECC_CORRECTED: Final = 3
"""Corrected memory errors since the driver was loaded."""
FIELD_ECC_UNCORRECTED: Final = 4
"""Memory errors since the driver was loaded that ECC could not correct."""
FIELD_NVLINK_RECOVERIES: Final = 59
"""Errors after which NVLinks had to be trained again, all links together."""
FIELD_NVLINK_COUNT: Final = 91
FIELDS_REMAPPED: Final = (142, 143, 144, 145)
"""Remapped rows: corrected, uncorrected, pending, failed."""
FIELD_NVLINK_STATE: Final = 165
"""Whether a link is up; the scope of the field is the link's number."""
FIELD_RESETLESS_MIG: Final = 184
FIELD_MIG_QUERY_ANY_MODE: Final = 199
"""Whether MIG profiles and placements can be listed while MIG mode is off."""
FIELD_RECOVERY_ACTION: Final = 230

WHOLE_DEVICE: Final = 0xFFFFFFFF
"""In place of an instance id: the event or process concerns the whole GPU, or the caller may not
see which instance it concerns."""

GPU_INSTANCE_PROFILES: Final = 18
"""Number of GPU-instance profile enums in this header; later drivers may answer to more."""
COMPUTE_ENUM_BY_SLICES: Final = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
"""``NVML_COMPUTE_INSTANCE_PROFILE_*`` by slice count."""
