# The signatures are NVML's.
# ruff: noqa: PLR0917
"""What a GPU measures of its own health: field values, remapped rows, temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sharing.board import Architecture
from sharing.nvml.codes import (
    FIELD_ECC_CORRECTED,
    FIELD_ECC_UNCORRECTED,
    FIELD_MIG_QUERY_ANY_MODE,
    FIELD_NVLINK_COUNT,
    FIELD_NVLINK_RECOVERIES,
    FIELD_NVLINK_STATE,
    FIELD_RECOVERY_ACTION,
    FIELD_RESETLESS_MIG,
    FIELDS_REMAPPED,
    TEMPERATURE_GPU,
    THRESHOLD_SHUTDOWN,
    THRESHOLD_SLOWDOWN,
    Code,
)
from sharing.nvml.simulator.calls.devices import can_query
from sharing.nvml.simulator.calls.topology import nvlink_count
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.session import Session
from sharing.nvml.simulator.state import Gpu
from sharing.nvml.simulator.symbols import export, number, put

_UNSIGNED_INT: Final = 1
_UNSIGNED_LONG_LONG: Final = 3
_THRESHOLDS_C: Final = {THRESHOLD_SHUTDOWN: 95, THRESHOLD_SLOWDOWN: 90}
_NO_REMAPPING: Final = frozenset({Architecture.VOLTA, Architecture.TURING})
"""They retire pages instead."""
_WIDE: Final = frozenset({FIELD_ECC_CORRECTED, FIELD_ECC_UNCORRECTED, FIELD_NVLINK_RECOVERIES})


@export("nvmlDeviceGetFieldValues")
def field_values(session: Session, handle: Any, amount: Any, values: Any) -> None:
    """Values by number; each has its own return code."""
    gpu = session.gpu(handle)
    known = _fields(session, gpu)
    array = getattr(values, "_obj", values)
    for value in array[: number(amount)]:
        found = known.get(value.fieldId)
        if value.fieldId == FIELD_NVLINK_STATE and value.scopeId < nvlink_count(gpu):
            found = int(value.scopeId not in gpu.nvlinks_down)
        value.nvmlReturn = int(Code.NOT_SUPPORTED if found is None else Code.SUCCESS)
        if found is None:
            continue
        if value.fieldId in _WIDE:
            value.valueType, value.value.ullVal = _UNSIGNED_LONG_LONG, found
        else:
            value.valueType, value.value.uiVal = _UNSIGNED_INT, found


@export("nvmlDeviceGetRemappedRows")
def remapped_rows(
    session: Session, handle: Any, corrected: Any, uncorrected: Any, pending: Any, failed: Any
) -> None:
    """Memory rows that were replaced, or are to be at the next reset."""
    gpu = session.gpu(handle)
    if gpu.model.architecture in _NO_REMAPPING:
        raise RefusedError(Code.NOT_SUPPORTED, f"{gpu.board} retires pages")
    answers = (corrected, uncorrected, pending, failed)
    for answer, value in zip(answers, gpu.remapped_rows, strict=True):
        put(answer, value)


@export("nvmlDeviceGetTemperature")
def temperature(session: Session, handle: Any, sensor: Any, answer: Any) -> None:
    """Degrees Celsius."""
    gpu = session.gpu(handle)
    if number(sensor) != TEMPERATURE_GPU:
        raise RefusedError(Code.INVALID_ARGUMENT, f"no sensor {number(sensor)}")
    put(answer, gpu.temperature_c)


@export("nvmlDeviceGetTemperatureThreshold")
def temperature_threshold(session: Session, handle: Any, threshold: Any, answer: Any) -> None:
    """Where the hardware slows itself down or shuts down, degrees Celsius."""
    session.gpu(handle)
    found = _THRESHOLDS_C.get(number(threshold))
    if found is None:
        raise RefusedError(Code.NOT_SUPPORTED, f"no threshold {number(threshold)}")
    put(answer, found)


def _fields(session: Session, gpu: Gpu) -> Mapping[int, int]:
    known = {
        FIELD_RESETLESS_MIG: int(gpu.model.resetless),
        FIELD_MIG_QUERY_ANY_MODE: int(can_query(session.machine(), gpu)),
        FIELD_RECOVERY_ACTION: gpu.recovery_action,
        FIELD_NVLINK_COUNT: nvlink_count(gpu),
        FIELD_ECC_CORRECTED: gpu.ecc_errors[0],
        FIELD_ECC_UNCORRECTED: gpu.ecc_errors[1],
    }
    if gpu.model.architecture not in _NO_REMAPPING:
        known |= dict(zip(FIELDS_REMAPPED, gpu.remapped_rows, strict=True))
    if nvlink_count(gpu):
        known[FIELD_NVLINK_RECOVERIES] = gpu.nvlink_recoveries
    return known
