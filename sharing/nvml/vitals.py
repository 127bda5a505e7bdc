"""Reading what a GPU measures of its own health, in as few calls as the driver allows."""

from __future__ import annotations

from typing import Any, Final

from sharing.nvml.binding import Binding
from sharing.nvml.codes import (
    FIELD_ECC_UNCORRECTED,
    FIELD_NVLINK_COUNT,
    FIELD_NVLINK_RECOVERIES,
    FIELD_NVLINK_STATE,
    FIELD_RECOVERY_ACTION,
    FIELDS_REMAPPED,
    TEMPERATURE_GPU,
    THRESHOLD_SLOWDOWN,
    Code,
)
from sharing.nvml.observed import Vitals

_FIELDS: Final = (
    FIELD_RECOVERY_ACTION,
    FIELD_ECC_UNCORRECTED,
    *FIELDS_REMAPPED[2:],
    FIELD_NVLINK_RECOVERIES,
)
_UNSIGNED_LONG_LONG: Final = 3
"""``NVML_VALUE_TYPE_UNSIGNED_LONG_LONG``; other counters are ints."""


def read_fields(
    binding: Binding, handle: Any, fields: tuple[int | tuple[int, int], ...], subject: str
) -> tuple[int | None, ...]:
    """Field values by number, or by number and scope; None for those that are not to be had."""
    values = binding.attempt(
        "DeviceGetFieldValues", handle, list(fields), default=None, subject=subject
    )
    if values is None:
        return (None,) * len(fields)
    return tuple(_value(value) for value in values[: len(fields)])


def read_vitals(
    binding: Binding, handle: Any, *, links: int, slowdown_c: int | None, subject: str
) -> tuple[int, Vitals]:
    """The driver's recommended recovery action, and what the GPU measures.

    Args:
        binding: The driver.
        handle: The GPU's handle.
        links: Its NVLinks.
        slowdown_c: Its slowdown temperature, which never changes.
        subject: The GPU, for errors.
    """
    states = tuple((FIELD_NVLINK_STATE, link) for link in range(links))
    told = read_fields(binding, handle, (*_FIELDS, *states), subject)
    action, ecc, pending, failed, recoveries = told[: len(_FIELDS)]
    temperature = binding.attempt(
        "DeviceGetTemperature", handle, TEMPERATURE_GPU, default=None, subject=subject
    )
    return action or 0, Vitals(
        ecc_uncorrected=ecc,
        rows_pending=bool(pending),
        rows_failed=bool(failed),
        temperature_c=temperature,
        slowdown_c=slowdown_c,
        nvlinks_down=tuple(
            link
            for link, state in enumerate(told[len(_FIELDS) :])
            if state is not None and not state
        ),
        nvlink_recoveries=recoveries,
    )


def read_slowdown_c(binding: Binding, handle: Any, subject: str) -> int | None:
    """Where the hardware slows itself down, degrees Celsius; None where it does not tell."""
    told = binding.attempt(
        "DeviceGetTemperatureThreshold", handle, THRESHOLD_SLOWDOWN, default=None, subject=subject
    )
    return None if told is None else int(told)


def read_link_count(binding: Binding, handle: Any, subject: str) -> int:
    """How many NVLinks a GPU has."""
    (told,) = read_fields(binding, handle, (FIELD_NVLINK_COUNT,), subject)
    return told or 0


def _value(value: Any) -> int | None:
    if value.nvmlReturn != Code.SUCCESS:
        return None
    wide = value.valueType == _UNSIGNED_LONG_LONG
    return int(value.value.ullVal if wide else value.value.uiVal)
