"""The object that pynvml takes for the loaded ``libnvidia-ml.so.1``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharing.nvml.simulator.calls import (
    computes,
    devices,
    events,
    health,
    instances,
    migdevices,
    monitors,
    system,
    topology,
    usage,
)
from sharing.nvml.simulator.session import Session
from sharing.nvml.simulator.store import Store
from sharing.nvml.simulator.symbols import EXPORTS, SINCE, ErrorStringSymbol, Symbol

CALLS = (
    system,
    devices,
    health,
    instances,
    computes,
    migdevices,
    usage,
    events,
    topology,
    monitors,
)
"""Modules whose functions are the library's; importing them registers them."""


class SimulatedLibrary:
    """Symbols by attribute, as a ctypes library has them.

    A function that this driver lacks raises AttributeError, which pynvml turns into
    FUNCTION_NOT_FOUND.
    """

    def __init__(self, path: Path) -> None:
        self._session = Session(Store(path))

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlErrorString":
            return ErrorStringSymbol()
        wanted = EXPORTS.get(name)
        if wanted is None:
            raise AttributeError(name)
        machine = self._session.machine()
        if name in machine.missing_functions or machine.driver_major < SINCE.get(name, 0):
            raise AttributeError(name)
        return Symbol(self._session, wanted)
