"""Simulated GPUs: an object in place of NVML's C library, with its state in one file.

Everything above stays real: pynvml's own code runs, in any number of processes that see the same
GPUs. ``bindings`` gives a pynvml of its own for each machine; ``install`` puts a machine behind
the pynvml that everybody imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sharing import catalogue
from sharing.errors import UnavailableError
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.library import SimulatedLibrary
from sharing.nvml.simulator.state import Machine
from sharing.nvml.simulator.store import Store

_NAME: Final = "pynvml"
_NUMBERS: Final = itertools.count(1)


def create(path: Path, gpus: str | Iterable[str], *, seed: str | None = None) -> Machine:
    """Make a simulated machine's state file, over whatever was there.

    Args:
        path: The file.
        gpus: ``8xH100-80GB``, or a list of board names.
        seed: Decides the UUIDs; the file's name without suffix if None.

    Raises:
        InputError: A board is not in the catalogue.
        UnavailableError: The file cannot be written.
    """
    boards = catalogue.parse_node_gpus(gpus if isinstance(gpus, str) else list(gpus))
    machine = operate.new_machine(boards, seed=seed or path.stem)
    Store(path).create(machine)
    return machine


def bindings(path: Path) -> ModuleType:
    """A pynvml of its own whose library is a simulated machine; others are not touched."""
    Store(path).read()
    real = importlib.util.find_spec(_NAME)
    if real is None or real.origin is None:
        raise UnavailableError("pynvml", "is not installed", fix="install nvidia-ml-py")
    name = f"_{_NAME}_simulated_{next(_NUMBERS)}"
    spec = importlib.util.spec_from_file_location(name, real.origin)
    if spec is None or spec.loader is None:
        raise UnavailableError("pynvml", f"cannot be loaded from {real.origin}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pynvml looks itself up while it is loaded
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    _put_behind(module, SimulatedLibrary(path))
    return module


def install(path: Path) -> None:
    """Put a simulated machine behind the pynvml that this process imports."""
    Store(path).read()
    _put_behind(importlib.import_module(_NAME), SimulatedLibrary(path))


def uninstall() -> None:
    """Take the simulated machine away; pynvml loads the real library at its next start."""
    module = sys.modules.get(_NAME)
    if module is not None:
        _put_behind(module, None)


def _put_behind(module: Any, library: SimulatedLibrary | None) -> None:
    # pynvml looks every function up by attribute and keeps what it found for good.
    module.nvmlLib = library
    module._nvmlLib_refcount = 0  # noqa: SLF001 - what pynvml offers no function for
    module._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - as above
