"""One process's use of the simulated library: initialisation, handles, and each call's way.

A call's way: is it initialised, may the caller, is a failure ordered, does it take time, then the
handler. State is read from the file at each call, so changes by other processes are seen at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from sharing.errors import GpuSharingError
from sharing.nvml.codes import Code
from sharing.nvml.simulator.hardware import RefusedError, compute_instance, gpu_instance
from sharing.nvml.simulator.operate import with_gpu
from sharing.nvml.simulator.state import (
    ComputeInstance,
    Failure,
    Gpu,
    GpuInstance,
    Machine,
    Permission,
)
from sharing.nvml.simulator.store import Store
from sharing.nvml.simulator.symbols import Export, Privilege, address_of

_FIRST_ADDRESS: Final = 0x10_0000
_ADDRESS_STEP: Final = 0x40
_WITHOUT_INIT: Final = frozenset({"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString"})
Result = TypeVar("Result")


class HandleKind(StrEnum):
    """What an opaque handle stands for."""

    GPU = "gpu"
    MIG_DEVICE = "mig-device"
    GPU_INSTANCE = "gpu-instance"
    COMPUTE_INSTANCE = "compute-instance"


class Target(NamedTuple):
    """What a handle means: a GPU and, for instances, the serial that is never reused."""

    kind: HandleKind
    uuid: str
    serial: int = 0


class MigDevice(NamedTuple):
    """A MIG device with everything that it lies in."""

    gpu: Gpu
    instance: GpuInstance
    compute: ComputeInstance


@dataclass(slots=True)
class EventSet:
    """What a caller waits for: by GPU, the wanted types and the next event's number."""

    sources: dict[str, tuple[int, int]] = field(default_factory=dict)
    told_lost: set[str] = field(default_factory=set)
    freed: bool = False


class GpmSample(NamedTuple):
    """One reading of the performance monitors, of a GPU or a GPU instance."""

    uuid: str
    gi_id: int | None
    busy_percent: int


class Session:
    """The library as one process has it loaded."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.event_sets: dict[int, EventSet] = {}
        self.gpm_samples: dict[int, GpmSample | None] = {}
        self._users = 0
        self._boot = 0
        self._targets: dict[int, Target] = {}
        self._addresses: dict[Target, int] = {}
        self._last_address = _FIRST_ADDRESS
        self._guard = threading.Lock()

    # The way of a call

    def call(self, wanted: Export, arguments: tuple[Any, ...]) -> None:
        """Do one call, or raise the refusal that becomes its return code."""
        try:
            machine = self.store.read()
            if wanted.name not in _WITHOUT_INIT:
                self._must_be_usable(machine)
            _must_be_allowed(machine, wanted)
            failure = self._take_failure(machine, wanted, arguments)
            if failure and not failure.takes_effect:
                raise RefusedError(Code.of(failure.code), "failure on request")
            if wanted.delay:
                self._take_time(machine, getattr(machine.delays, wanted.delay))
            wanted.handler(self, *arguments)
        except GpuSharingError as error:
            raise RefusedError(Code.UNKNOWN, str(error)) from error
        if failure:
            raise RefusedError(Code.of(failure.code), "failure on request, after the effect")

    def _take_time(self, machine: Machine, seconds: float) -> None:
        """Let a slow call take its time, on the machine's own account and in reality."""
        if not seconds:
            return

        def spend(now: Machine) -> tuple[Machine, None]:
            return replace(now, spent_s=now.spent_s + seconds), None

        self.store.change(spend)
        time.sleep(seconds * machine.delays.pace)

    def machine(self) -> Machine:
        """The machine as it is now."""
        return self.store.read()

    def change_gpu(self, uuid: str, step: Callable[[Machine, Gpu], tuple[Gpu, Result]]) -> Result:
        """Replace one GPU's state, all or nothing."""

        def on_machine(machine: Machine) -> tuple[Machine, Result]:
            gpu, result = step(machine, _gpu(machine, uuid))
            return with_gpu(machine, gpu), result

        return self.store.change(on_machine)

    # Initialisation

    def start(self) -> None:
        """Count one more user. After a reboot nothing of the old process would be left."""
        machine = self.store.read()
        if not machine.driver_loaded:
            raise RefusedError(Code.DRIVER_NOT_LOADED, "no driver")
        if machine.version_mismatch:
            raise RefusedError(Code.LIB_RM_VERSION_MISMATCH, "driver upgraded under us")
        with self._guard:
            self._users = 1 if machine.boot != self._boot else self._users + 1
            self._boot = machine.boot

    def stop(self) -> None:
        """Count one user less."""
        with self._guard:
            self._users = max(0, self._users - 1)

    def _must_be_usable(self, machine: Machine) -> None:
        if self._users == 0 or machine.boot != self._boot:
            raise RefusedError(Code.UNINITIALIZED, "not initialised since the last boot")
        if not machine.driver_loaded:
            raise RefusedError(Code.DRIVER_NOT_LOADED, "the driver was unloaded")

    # Handles

    def handle(self, kind: HandleKind, uuid: str, serial: int = 0) -> int:
        """The address that stands for a target; the same one each time."""
        wanted = Target(kind, uuid, serial)
        with self._guard:
            known = self._addresses.get(wanted)
            if known is None:
                known = self._new_address()
                self._addresses[wanted] = known
                self._targets[known] = wanted
            return known

    def new_event_set(self) -> int:
        """The address of a new event set."""
        with self._guard:
            address = self._new_address()
            self.event_sets[address] = EventSet()
            return address

    def new_gpm_sample(self) -> int:
        """The address of a new, empty sample."""
        with self._guard:
            address = self._new_address()
            self.gpm_samples[address] = None
            return address

    def event_set(self, handle: Any) -> EventSet:
        """The event set of a handle."""
        found = self.event_sets.get(address_of(handle))
        if found is None:
            raise RefusedError(Code.INVALID_ARGUMENT, "no event set")
        return found

    def gpu(self, handle: Any) -> Gpu:
        """The GPU of a handle; MIG devices are refused."""
        wanted = self._target(handle, HandleKind.GPU)
        return _gpu(self.machine(), wanted.uuid)

    def device(self, handle: Any) -> Gpu | MigDevice:
        """The GPU or the MIG device of a handle."""
        wanted = self._target(handle, HandleKind.GPU, HandleKind.MIG_DEVICE)
        if wanted.kind is HandleKind.GPU:
            return _gpu(self.machine(), wanted.uuid)
        return self._mig_device(wanted)

    def mig_device(self, handle: Any) -> MigDevice:
        """The MIG device of a handle."""
        return self._mig_device(self._target(handle, HandleKind.MIG_DEVICE))

    def gpu_instance(self, handle: Any) -> tuple[Gpu, GpuInstance]:
        """The GPU instance of a handle."""
        wanted = self._target(handle, HandleKind.GPU_INSTANCE)
        gpu = _gpu(self.machine(), wanted.uuid)
        return gpu, gpu_instance(gpu, wanted.serial)

    def compute_instance(self, handle: Any) -> MigDevice:
        """The compute instance of a handle."""
        return self._mig_device(self._target(handle, HandleKind.COMPUTE_INSTANCE))

    def _mig_device(self, wanted: Target) -> MigDevice:
        gpu = _gpu(self.machine(), wanted.uuid)
        return MigDevice(gpu, *compute_instance(gpu, wanted.serial))

    def _target(self, handle: Any, *kinds: HandleKind) -> Target:
        found = self._targets.get(address_of(handle))
        if found is None or found.kind not in kinds:
            raise RefusedError(Code.INVALID_ARGUMENT, "handle of another kind")
        return found

    def _new_address(self) -> int:
        self._last_address += _ADDRESS_STEP
        return self._last_address

    # Failures on request

    def _take_failure(
        self, machine: Machine, wanted: Export, arguments: tuple[Any, ...]
    ) -> Failure | None:
        if not machine.failures:
            return None
        known = self._targets.get(address_of(arguments[0])) if arguments else None
        uuid = known.uuid if known else ""

        def matches(failure: Failure) -> bool:
            return failure.function == wanted.name and failure.uuid in {"", uuid}

        if not any(matches(failure) for failure in machine.failures):
            return None

        def take(now: Machine) -> tuple[Machine, Failure | None]:
            chosen = next((each for each in now.failures if matches(each)), None)
            if chosen is None:
                return now, None
            left = [
                replace(each, times=each.times - 1) if each is chosen else each
                for each in now.failures
            ]
            kept = tuple(each for each in left if each.times > 0)
            return replace(now, failures=kept), chosen

        return self.store.change(take)


def _gpu(machine: Machine, uuid: str) -> Gpu:
    for gpu in machine.gpus:
        if gpu.uuid == uuid:
            if gpu.lost:
                raise RefusedError(Code.GPU_IS_LOST, f"{uuid} fell off the bus")
            return gpu
    raise RefusedError(Code.INVALID_ARGUMENT, f"{uuid} is not in this machine any more")


def _must_be_allowed(machine: Machine, wanted: Export) -> None:
    allowed = {
        Permission.ROOT: (Privilege.NONE, Privilege.CONFIG, Privilege.ROOT),
        Permission.CONFIG: (Privilege.NONE, Privilege.CONFIG),
        Permission.NONE: (Privilege.NONE,),
    }[machine.permission]
    if wanted.privilege not in allowed:
        raise RefusedError(Code.NO_PERMISSION, f"{wanted.name} needs {wanted.privilege}")
