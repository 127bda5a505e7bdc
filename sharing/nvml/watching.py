"""Waiting for what the driver reports; made for a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
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

    A GPU that does not answer when the watch begins joins it once it does.

    Args:
        binding: The driver.
        answering: UUID and handle of each GPU that answers now.
        count: How many GPUs there are, those that do not answer included.
    """

    def __init__(
        self,
        binding: Binding,
        answering: Callable[[], Iterable[tuple[str, Any]]],
        count: int,
    ) -> None:
        self._binding = binding
        self._answering = answering
        self._count = count
        self._closed = threading.Event()
        self._set: Any = binding.call("EventSetCreate")
        self._guard = threading.Lock()
        self._watched: set[str] = set()
        self._mute: set[str] = set()
        self._joined = -float("inf")
        self._lost = -float("inf")
        self._join()

    @property
    def unwatched(self) -> tuple[str, ...]:
        """GPUs that report no events: they have to be polled."""
        return tuple(sorted(self._mute))

    def wait(self, timeout_s: float) -> DriverEvent | None:
        """The next event; None if there was none in time, or after ``close``.

        Raises:
            DriverUnavailableError: The driver went away; open it again.
        """
        left_s = timeout_s
        while left_s >= 0 and not self._closed.is_set():
            slice_s = min(left_s, _LONGEST_WAIT_S)
            self._join()
            try:
                with self._guard:
                    if self._closed.is_set():
                        return None
                    data = self._binding.call("EventSetWait_v2", self._set, round(slice_s * 1000))
            except NvmlError as error:
                if error.code is Code.GPU_IS_LOST:
                    self._be_patient()
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

    def _join(self) -> None:
        """Watch the GPUs that answer and are not watched yet, once a second at most."""
        now = time.monotonic()
        everybody = len(self._watched) + len(self._mute) >= self._count
        if everybody or now - self._joined < _LONGEST_WAIT_S:
            return
        self._joined = now
        for uuid, handle in self._answering():
            if uuid not in self._watched and uuid not in self._mute:
                self._register(uuid, handle)

    def _be_patient(self) -> None:
        """Some drivers answer every wait that a GPU is lost: then one a second is enough.

        Source: NVIDIA/k8s-device-plugin#669.
        """
        now = time.monotonic()
        if now - self._lost < _LONGEST_WAIT_S:
            self._closed.wait(_LONGEST_WAIT_S)
        self._lost = now

    def _register(self, uuid: str, handle: Any) -> None:
        subject = f"GPU {uuid}"
        try:
            supported = self._binding.call("DeviceGetSupportedEventTypes", handle, subject=subject)
            types = supported & _WANTED
            self._binding.call("DeviceRegisterEvents", handle, types, self._set, subject=subject)
        except NvmlError as error:
            if error.code is Code.NOT_SUPPORTED:
                self._mute.add(uuid)
            elif error.code is not Code.GPU_IS_LOST:  # lost: it joins when it is back
                raise
        else:
            self._watched.add(uuid)

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
