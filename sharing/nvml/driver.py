"""The GPU driver as the node's agent uses it: observe, and change one thing at a time.

Calls block, so an event loop runs them in a thread. Changes are serialised, but other programs may
change GPUs behind our back: each change is read back, and after a failure nothing is known until
the next ``observe``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from sharing.board import BoardMigProfile, Placement
from sharing.migprofile import MigProfile
from sharing.nvml import reading
from sharing.nvml.binding import Binding
from sharing.nvml.codes import COMPUTE_ENUM_BY_SLICES, WHOLE_DEVICE, Code, ComputeMode
from sharing.nvml.connections import read_links
from sharing.nvml.errors import (
    DriverBusyError,
    DriverUnavailableError,
    DriverUnsupportedError,
    InstanceNotFoundError,
    NvmlError,
)
from sharing.nvml.memorylimits import limit_memory
from sharing.nvml.monitors import InstanceMonitors
from sharing.nvml.observed import (
    GpuProcess,
    Link,
    MigInstance,
    ModeChange,
    ObservedNode,
    ProcessKind,
)
from sharing.nvml.roster import Roster
from sharing.nvml.utilisation import process_utilisation
from sharing.nvml.watching import EventWatch

_MIB: Final = 1 << 20
_PROCESS_CALLS: Final = {
    ProcessKind.COMPUTE: "DeviceGetComputeRunningProcesses",
    ProcessKind.GRAPHICS: "DeviceGetGraphicsRunningProcesses",
    ProcessKind.MPS: "DeviceGetMPSComputeRunningProcesses",
}
_PROCESS_VERSIONS: Final = ("_v3", "_v2")
"""The third came with R510; both answer in the same words."""


class Driver:
    """The driver of this node's GPUs, real or simulated. Opens and closes with ``with``.

    Args:
        simulate: A simulated machine's state file; the real driver if None.
    """

    def __init__(self, simulate: Path | None = None) -> None:
        self._simulate = simulate
        self._roster: Roster | None = None
        self._monitors: InstanceMonitors | None = None
        self._lock = threading.RLock()

    def open(self) -> None:
        """Start using the driver; again, if it went away under us.

        Raises:
            DriverUnavailableError: There is no driver, or it was upgraded while it ran.
        """
        with self._lock:
            self.close()
            binding = Binding(self._simulate)
            binding.call("Init")
            self._roster, self._monitors = Roster(binding), InstanceMonitors(binding)

    def close(self) -> None:
        """Stop using the driver; does nothing if it is not open."""
        with self._lock:
            roster, self._roster = self._roster, None
            if roster is not None:
                try:
                    roster.binding.call("Shutdown")
                except NvmlError:
                    return  # gone already, or nothing that we could do; the next opening tells

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def observe(self) -> ObservedNode:
        """All GPUs as they are now. A GPU that does not answer never hides the others.

        Raises:
            DriverUnavailableError: The driver went away; open it again.
            DriverPermissionError: The caller may not list MIG instances.
        """
        with self._lock:
            return self._opened().observe()

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """What runs on a GPU and its instances, by pid.

        The driver leaves out processes that the caller's pid namespace does not show.

        Raises:
            NvmlError: The GPU does not answer.
        """
        handle, found = self._handle(uuid), []
        for kind, call in _PROCESS_CALLS.items():
            told = self._bound().newest(
                call, _PROCESS_VERSIONS, handle, default=(), subject=f"GPU {uuid}"
            )
            found += [_process(entry, kind) for entry in told]
        return tuple(sorted(found, key=lambda each: (each.pid, each.kind)))

    def utilisation(self, uuid: str, since_us: int) -> Mapping[int, int] | None:
        """Per cent of a GPU's time by pid; see ``utilisation.process_utilisation``."""
        handle = self._handle(uuid)
        return process_utilisation(self._bound(), handle, since_us, f"GPU {uuid}")

    def busy(self, uuid: str, instances: Iterable[int]) -> Mapping[int, int]:
        """Per cent of time that MIG instances were busy; see ``monitors``."""
        with self._lock:
            handle = self._handle(uuid)
            return {} if self._monitors is None else self._monitors.busy(uuid, handle, instances)

    def topology(self) -> tuple[Link, ...]:
        """How each pair of GPUs is connected; GPUs that do not answer are left out."""
        with self._lock:
            return read_links(self._bound(), dict(self._opened().answering()))

    def watch(self) -> EventWatch:
        """The events of all GPUs from now on; to be waited for in a thread of its own."""
        with self._lock:
            roster = self._opened()
            return EventWatch(roster.binding, roster.answering, roster.count())

    # Changing

    def set_mig_mode(self, uuid: str, *, on: bool) -> ModeChange:
        """Ask for a MIG mode and say what came of it, read back.

        Raises:
            NvmlError: The driver refuses, or answers success and does something else.
        """
        with self._lock:
            binding, handle, subject = self._bound(), self._handle(uuid), f"GPU {uuid}"
            try:
                status = binding.call("DeviceSetMigMode", handle, int(on), subject=subject)
            except DriverBusyError:
                return ModeChange.IN_USE
            # The GPU may have been enumerated again: ask for it anew.
            again = self._handle(uuid)
            current, pending = binding.call("DeviceGetMigMode", again, subject=subject)
            if status == Code.IN_USE:
                return ModeChange.IN_USE
            if bool(current) == on and bool(pending) == on:
                return ModeChange.APPLIED
            if bool(pending) == on:
                return ModeChange.PENDING
            raise NvmlError(
                subject,
                f"MIG mode is {current} and will be {pending} although {int(on)} was accepted",
                fix="see the kernel's log, then reset the GPU",
                code=Code.of(status),
                call="nvmlDeviceSetMigMode",
            )

    def create_instance(self, uuid: str, profile: MigProfile, placement: Placement) -> MigInstance:
        """Create a MIG instance, whole, in a place, and read it back.

        If its compute instance cannot be made, the GPU instance is taken back.

        Raises:
            LayoutError: The GPU does not offer the MIG profile.
            InsufficientResourcesError: The place is taken or something is used up.
            NvmlError: The driver refuses for another reason.
        """
        with self._lock:
            binding, handle = self._bound(), self._handle(uuid)
            facts = self._opened().facts(uuid)
            offered = facts.board.mig_profile(profile)
            subject = f"MIG instance {profile} at {placement.start} on GPU {uuid}"
            place = binding.nvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
            made = binding.call(
                "DeviceCreateGpuInstanceWithPlacement",
                handle,
                offered.id,
                ctypes.byref(place),
                subject=subject,
            )
            try:
                self._create_compute(made, offered, subject)
            except NvmlError as error:
                self._take_back(made, error, subject)
            return self._read_back(made, facts, profile, placement)

    def finish_instance(self, uuid: str, gi_id: int) -> MigInstance:
        """Give a half-made GPU instance its compute instance.

        Raises:
            InstanceNotFoundError: There is no such GPU instance.
            NvmlError: The driver refuses.
        """
        with self._lock:
            facts, instance = self._opened().facts(uuid), self._instance(uuid, gi_id)
            found = reading.read_instance(self._bound(), instance, facts, self._opened().memory)
            if not found.ci_ids:
                subject = f"MIG instance {gi_id} on GPU {uuid}"
                self._create_compute(instance, facts.board.mig_profile(found.profile), subject)
            return self._read_back(instance, facts, found.profile, found.placement)

    def destroy_instance(self, uuid: str, gi_id: int) -> None:
        """Destroy a GPU instance and what lies in it; one that is gone already is fine.

        Raises:
            DriverBusyError: A process runs in it. Nothing was destroyed then.
            NvmlError: The driver refuses. It may be half destroyed then.
        """
        with self._lock:
            facts = self._opened().facts(uuid)
            self._handle(uuid)  # a GPU that is not there is no success
            try:
                self._destroy(facts, gi_id)
            except InstanceNotFoundError:
                return  # gone already, by us before a crash or by somebody else

    def set_compute_mode(self, uuid: str, mode: ComputeMode) -> None:
        """Say who may create a context on a GPU; lost at reboot.

        Raises:
            NvmlError: The driver refuses, for example exclusive use in MIG mode.
        """
        with self._lock:
            handle, subject = self._handle(uuid), f"GPU {uuid}"
            self._bound().call("DeviceSetComputeMode", handle, int(mode), subject=subject)

    def limit_memory(self, uuid: str, cgroup: str, memory_mib: int) -> bool:
        """Limit the GPU memory of a cgroup; see ``memorylimits.limit_memory``."""
        with self._lock:
            handle, subject = self._handle(uuid), f"GPU {uuid}"
            return limit_memory(
                self._bound(), handle, cgroup, memory_mib=memory_mib, subject=subject
            )

    # Inside

    def _opened(self) -> Roster:
        if self._roster is None:
            raise DriverUnavailableError(
                "GPU driver", "is not open", fix="open it first", code=Code.UNINITIALIZED
            )
        return self._roster

    def _bound(self) -> Binding:
        return self._opened().binding

    def _handle(self, uuid: str) -> Any:
        return self._bound().call("DeviceGetHandleByUUID", uuid, subject=f"GPU {uuid}")

    def _instance(self, uuid: str, gi_id: int) -> Any:
        return self._bound().call(
            "DeviceGetGpuInstanceById",
            self._handle(uuid),
            gi_id,
            subject=f"MIG instance {gi_id} on GPU {uuid}",
        )

    def _create_compute(self, instance: Any, offered: BoardMigProfile, subject: str) -> None:
        binding, slices = self._bound(), offered.profile.gpu_slices
        enum = COMPUTE_ENUM_BY_SLICES.get(slices)
        found = None if enum is None else reading.compute_profile(binding, instance, enum, subject)
        if found is None:
            raise DriverUnsupportedError(
                subject,
                f"the driver offers no compute instance of {slices} slices",
                fix="upgrade the NVIDIA driver",
                code=Code.NOT_SUPPORTED,
                call="nvmlGpuInstanceGetComputeInstanceProfileInfo",
            )
        binding.call("GpuInstanceCreateComputeInstance", instance, found.id, subject=subject)

    def _take_back(self, instance: Any, cause: NvmlError, subject: str) -> NoReturn:
        """Destroy a GPU instance that stayed without compute instance, and tell why."""
        try:
            self._bound().call("GpuInstanceDestroy", instance, subject=subject)
        except NvmlError as error:
            cause.add_note(f"It is left half made: {error}")
        raise cause

    def _read_back(
        self, instance: Any, facts: reading.GpuFacts, profile: MigProfile, placement: Placement
    ) -> MigInstance:
        found = reading.read_instance(self._bound(), instance, facts, self._opened().memory)
        if found.profile != profile or found.placement != placement or not found.usable:
            raise NvmlError(
                f"GPU {facts.uuid}",
                f"made {found.profile} at {found.placement.start} of {profile} at "
                f"{placement.start}, {'usable' if found.usable else 'unusable'}",
                fix="observe the GPU again",
            )
        return found

    def _destroy(self, facts: reading.GpuFacts, gi_id: int) -> None:
        binding, subject = self._bound(), f"MIG instance {gi_id} on GPU {facts.uuid}"
        instance = self._instance(facts.uuid, gi_id)
        users = [str(each.pid) for each in self.processes(facts.uuid) if each.gi_id == gi_id]
        if users:
            raise DriverBusyError(
                subject,
                f"processes run in it: {', '.join(users)}",
                fix="wait until they end",
                code=Code.IN_USE,
            )
        found = reading.read_instance(binding, instance, facts, self._opened().memory)
        for ci_id in found.ci_ids:
            inside = binding.call(
                "GpuInstanceGetComputeInstanceById", instance, ci_id, subject=subject
            )
            binding.call("ComputeInstanceDestroy", inside, subject=subject)
        binding.call("GpuInstanceDestroy", instance, subject=subject)


def _process(entry: Any, kind: ProcessKind) -> GpuProcess:
    used = entry.usedGpuMemory
    return GpuProcess(
        pid=entry.pid,
        kind=kind,
        memory_mib=None if used is None else used // _MIB,
        gi_id=None if entry.gpuInstanceId == WHOLE_DEVICE else entry.gpuInstanceId,
        ci_id=None if entry.computeInstanceId == WHOLE_DEVICE else entry.computeInstanceId,
    )
