"""Exported symbols, and how to read and write the ctypes arguments that pynvml passes.

pynvml calls ``library.<symbol>(*arguments)`` and checks a plain int. Arguments are ctypes objects,
``byref`` results or plain numbers, as each wrapper has it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from sharing.nvml.codes import Code
from sharing.nvml.simulator.hardware import RefusedError

if TYPE_CHECKING:
    from sharing.nvml.simulator.session import Session

Handler = Callable[..., None]


class Privilege(StrEnum):
    """What a call asks of its caller. Source: nvml.h, the remarks on each function."""

    NONE = "none"
    CONFIG = "config"
    """Root, or read access to the ``mig/config`` capability."""
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class Export:
    """One function of the library."""

    name: str
    handler: Handler
    privilege: Privilege
    delay: str
    """Which field of ``Delays`` it takes; none if empty."""


EXPORTS: Final[dict[str, Export]] = {}

SINCE: Final = {
    "nvmlDeviceGetGpuInstanceProfileInfoV": 510,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": 510,
    "nvmlDeviceGetMemoryInfo_v2": 510,
    "nvmlDeviceGetComputeRunningProcesses_v2": 450,
    "nvmlDeviceGetGraphicsRunningProcesses_v2": 450,
    "nvmlDeviceGetMPSComputeRunningProcesses_v2": 470,
    "nvmlDeviceGetComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 510,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetNumaNodeId": 530,
    "nvmlDeviceGetGpuFabricInfoV": 545,
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV": 580,
    "nvmlGpmSampleAlloc": 520,
    "nvmlGpmSampleFree": 520,
    "nvmlGpmSampleGet": 520,
    "nvmlGpmMigSampleGet": 520,
    "nvmlGpmMetricsGet": 520,
    "nvmlGpmQueryDeviceSupport": 520,
    "nvmlDeviceSetMemoryLimits_v1": 615,
    "nvmlDeviceGetMemoryLimits_v1": 615,
}
"""Driver branches that first had a function, to the nearest; older ones lack the symbol."""


def export(
    name: str, privilege: Privilege = Privilege.NONE, *, delay: str = ""
) -> Callable[[Handler], Handler]:
    """Make a handler the library's function of a name."""

    def register(handler: Handler) -> Handler:
        EXPORTS[name] = Export(name, handler, privilege, delay)
        return handler

    return register


class Symbol:
    """What ``getattr(library, name)`` gives; pynvml may set ``restype`` on it, as on ctypes'."""

    def __init__(self, session: Session, wanted: Export) -> None:
        self._session = session
        self._export = wanted

    def __call__(self, *arguments: Any) -> int:
        """Do the call and answer with NVML's return code."""
        try:
            self._session.call(self._export, arguments)
        except RefusedError as refused:
            return int(refused.code)
        return int(Code.SUCCESS)


class ErrorStringSymbol:
    """``nvmlErrorString``, the one function that answers with a text."""

    def __call__(self, code: Any) -> bytes:
        """The text of a return code."""
        known = Code.of(int(number(code)))
        return known.name.replace("_", " ").capitalize().encode()


def number(argument: Any) -> int:
    """The number in a ctypes scalar or a plain int."""
    return argument if isinstance(argument, int) else int(argument.value)


def target(reference: Any) -> Any:
    """What a ``byref`` or pointer argument points to, or the object itself."""
    inner = getattr(reference, "_obj", reference)
    return inner.contents if hasattr(inner, "contents") else inner


def put(reference: Any, value: int) -> None:
    """Write a scalar through a reference."""
    target(reference).value = value


def put_text(buffer: Any, size: Any, text: str) -> None:
    """Write a text and its final zero into the caller's buffer."""
    data = text.encode()
    if len(data) >= number(size):
        raise RefusedError(Code.INSUFFICIENT_SIZE, f"{len(data) + 1} bytes are needed")
    buffer.value = data


def fill(reference: Any, **fields: int | bytes) -> None:
    """Write the fields of a struct."""
    struct = target(reference)
    for name, value in fields.items():
        setattr(struct, name, value)


def address_of(handle: Any) -> int:
    """The address in an opaque handle; 0 for a null handle or something that is none."""
    if handle is None or not isinstance(handle, ctypes._Pointer | ctypes.c_void_p):  # noqa: SLF001 - the public names do not include it
        return 0
    return ctypes.c_void_p.from_buffer(handle).value or 0


def put_address(reference: Any, address: int) -> None:
    """Write an opaque handle through a reference."""
    ctypes.c_void_p.from_buffer(getattr(reference, "_obj", reference)).value = address


def put_field_address(reference: Any, field: str, address: int) -> None:
    """Write an opaque handle into a field of a struct."""
    struct = target(reference)
    offset = getattr(type(struct), field).offset
    ctypes.c_void_p.from_buffer(struct, offset).value = address


def put_addresses(array: Any, addresses: list[int]) -> None:
    """Write opaque handles into the caller's array."""
    whole = getattr(array, "_obj", array)
    for index, address in enumerate(addresses):
        at = index * ctypes.sizeof(ctypes.c_void_p)
        ctypes.c_void_p.from_buffer(whole, at).value = address


def must_version(reference: Any, version: int) -> None:
    """Refuse a struct of another version than this driver knows."""
    if target(reference).version != version:
        raise RefusedError(Code.ARGUMENT_VERSION_MISMATCH, "struct of another version")
