"""Waiting for what the driver reports; made for a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, Self

from sharing.nvml.binding import Binding
from sharing.nvml.codes import WHOLE_DEVICE, Code, EventType
from sharing.nvml.errors import DriverUnavailableError, NvmlError
from sharing.nvml.observed import DriverEvent, EventKind

_KINDS: Final = {
    EventType.XID: EventKind.XID,
    EventType.MIG_CONFIG_CHANGE: EventKind.MIG_CONFIG,
    EventType.RECOVERY_ACTION: EventKind.RECOVERY_ACTION,
    EventType.SINGLE_BIT_ECC: EventKind.ECC,
    EventType.DOUBLE_BIT_ECC: EventKind.ECC,
    EventType.GPU_UNAVAILABLE: EventKind.UNAVAILABLE,
}
_WANTED: Final = sum(_KINDS)
_LONGEST_WAIT_S: Final = 1.0
"""A wait in the library cannot be interrupted, so ``close`` takes this long at most."""


class EventWatch:
    """The events of some GPUs from the moment it was made. Closes at the end of a ``with``.

    Args:
        binding: The driver.
        handles: Handles by UUID of the GPUs to watch.
    """

    def __init__(self, binding: Binding, handles: Mapping[str, Any]) -> None:
        self._binding = binding
        self._closed = threading.Event()
        self._set: Any = binding.call("EventSetCreate")
        self._guard = threading.Lock()
        self.unwatched: tuple[str, ...] = tuple(
            uuid for uuid, handle in sorted(handles.items()) if not self._register(uuid, handle)
        )
        """GPUs that report no events: they have to be polled."""

    def wait(self, timeout_s: float) -> DriverEvent | None:
        """The next event; None if there was none in time, or after ``close``.

        Raises:
            DriverUnavailableError: The driver went away; open it again.
        """
        left_s = timeout_s
        while left_s >= 0 and not self._closed.is_set():
            slice_s = min(left_s, _LONGEST_WAIT_S)
            try:
                with self._guard:
                    if self._closed.is_set():
                        return None
                    data = self._binding.call("EventSetWait_v2", self._set, round(slice_s * 1000))
            except NvmlError as error:
                if error.code is Code.GPU_IS_LOST:
                    return DriverEvent(kind=EventKind.LOST, uuid=None)
                if error.code is not Code.TIMEOUT:
                    raise
                left_s -= slice_s
                if left_s <= 0:
                    return None
            else:
                return self._event(data)
        return None

    def close(self) -> None:
        """End a wait, within a second, and give the event set back."""
        self._closed.set()
        with self._guard:
            if self._set is not None:
                taken, self._set = self._set, None
                try:
                    self._binding.call("EventSetFree", taken)
                except DriverUnavailableError:
                    return  # it went with the driver

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _register(self, uuid: str, handle: Any) -> bool:
        subject = f"GPU {uuid}"
        try:
            supported = self._binding.call("DeviceGetSupportedEventTypes", handle, subject=subject)
            types = supported & _WANTED
            self._binding.call("DeviceRegisterEvents", handle, types, self._set, subject=subject)
        except NvmlError as error:
            if error.code in {Code.NOT_SUPPORTED, Code.GPU_IS_LOST}:
                return False
            raise
        return True

    def _event(self, data: Any) -> DriverEvent:
        kinds = [kind for bit, kind in _KINDS.items() if data.eventType & bit]
        try:
            uuid = self._binding.text("DeviceGetUUID", data.device)
        except NvmlError as error:
            if error.code is not Code.GPU_IS_LOST:
                raise
            return DriverEvent(kind=EventKind.LOST, uuid=None, data=data.eventData)
        return DriverEvent(
            kind=kinds[0] if kinds else EventKind.OTHER,
            uuid=uuid,
            data=data.eventData,
            gi_id=_instance(data.gpuInstanceId),
            ci_id=_instance(data.computeInstanceId),
        )


def _instance(number: int) -> int | None:
    return None if number == WHOLE_DEVICE else number
