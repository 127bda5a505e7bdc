"""A simulated machine in a temporary file, and hands to break it with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sharing.nvml import simulator
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Gpu, Machine
from sharing.nvml.simulator.store import Store

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """One machine. ``do`` applies what ``sharing.nvml.simulator.operate`` offers."""

    path: Path

    @property
    def machine(self) -> Machine:
        return Store(self.path).read()

    def gpu(self, index: int = 0) -> Gpu:
        return self.machine.gpus[index]

    def uuid(self, index: int = 0) -> str:
        return self.gpu(index).uuid

    def do(
        self, step: Callable[..., tuple[Machine, Result]], *arguments: Any, **options: Any
    ) -> Result:
        return Store(self.path).change(lambda machine: step(machine, *arguments, **options))

    def configure(self, **fields: Any) -> None:
        """Change fields of the machine: permission, delays, driver version …"""
        Store(self.path).change(lambda machine: (replace(machine, **fields), None))

    def configure_gpu(self, index: int = 0, **fields: Any) -> None:
        def step(machine: Machine) -> tuple[Machine, None]:
            return operate.with_gpu(machine, replace(machine.gpus[index], **fields)), None

        Store(self.path).change(step)

    def bindings(self) -> Any:
        """A pynvml of its own, initialised, over this machine."""
        module: Any = simulator.bindings(self.path)
        module.nvmlInit()
        return module


def simulated_gpus(path: Path, gpus: str | Iterable[str]) -> SimulatedGpus:
    """A new machine in a file."""
    simulator.create(path, gpus, seed="test")
    return SimulatedGpus(path)


def with_load(machine: Machine, pid: int, percent: int) -> tuple[Machine, None]:
    """Let a process keep its GPU busy."""
    for gpu in machine.gpus:
        for process in gpu.processes:
            if process.pid == pid:
                rest = [one for one in gpu.processes if one.pid != pid]
                loaded = replace(process, sm_percent=percent)
                return operate.with_gpu(machine, replace(gpu, processes=(*rest, loaded))), None
    raise AssertionError(pid)
