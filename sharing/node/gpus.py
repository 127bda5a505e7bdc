"""The driver, for an event loop: every call in one thread, its events in a second one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import structlog

from sharing.board import Placement
from sharing.errors import DriverError
from sharing.migprofile import MigProfile
from sharing.node import reset
from sharing.nvml.codes import ComputeMode
from sharing.nvml.driver import Driver
from sharing.nvml.errors import DriverUnavailableError, InstanceNotFoundError, NvmlError
from sharing.nvml.observed import (
    DriverEvent,
    GpuProcess,
    Link,
    MigInstance,
    ModeChange,
    ObservedGpu,
    ObservedNode,
)

T = TypeVar("T")
_REOPEN_S: Final = 2.0
_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One look at all GPUs: what they are and what runs on them."""

    node: ObservedNode
    processes: dict[str, tuple[GpuProcess, ...] | None]
    """None for a GPU whose processes the driver does not list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What runs on one GPU."""

    processes: tuple[GpuProcess, ...]
    sm_percent: Mapping[int, int] | None
    """Per cent of its time by pid; None where the hardware cannot tell."""
    busy: Mapping[int, int] = field(default_factory=dict)
    """Per cent of time that MIG instances were busy, where their board can tell; by GI id."""


class ModeChangeError(DriverError):
    """MIG mode did not change."""


class Gpus:
    """The GPUs of this node; also the compute modes that MPS needs.

    Args:
        simulate: State file of simulated GPUs; the real driver if None.
        on_event: Called in the event loop for each event.
        wait_s: For one wait for events; closing takes as long.
        reset_by: How to reset a GPU; the usual way if None.
    """

    def __init__(
        self,
        simulate: Path | None,
        on_event: Callable[[DriverEvent], None],
        *,
        wait_s: float = 1.0,
        reset_by: reset.Reset | None = None,
    ) -> None:
        self._wait_s = wait_s
        self._driver = Driver(simulate)
        usual = reset.by_command() if simulate is None else reset.simulated(simulate)
        self._reset = reset_by or usual
        self._on_event = on_event
        self._calls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvml")
        self._closing = threading.Event()
        self._may_watch = threading.Event()
        self._may_watch.set()
        self._session = threading.Lock()
        """Held by whoever needs the driver open, or closed, for longer than a call."""
        self._watching: threading.Thread | None = None
        self._open = False
        self._unlisted: dict[str, str] = {}
        """Why processes of GPUs were not listed at the last look, by UUID."""

    async def open(self) -> None:
        """Open the driver and begin to listen; does nothing if it is open.

        Raises:
            DriverError: There is no driver, or it does not answer.
        """
        if self._open:
            return
        await self._run(self._driver.open)
        self._open = True
        if self._watching is None:
            loop = asyncio.get_running_loop()
            self._watching = threading.Thread(
                target=self._watch, args=(loop,), name="nvml events", daemon=True
            )
            self._watching.start()

    async def close(self) -> None:
        """Stop listening and close the driver."""
        self._closing.set()
        self._may_watch.set()
        if self._watching is not None:
            await asyncio.to_thread(self._watching.join)
        await self._run(self._driver.close)
        self._calls.shutdown(wait=False)

    async def look(self) -> Sighting:
        """All GPUs as they are now.

        Raises:
            DriverError: The driver went away; it is opened again by the next ``open``.
        """
        try:
            return await self._run(self._look)
        except DriverUnavailableError:
            self._open = False
            raise

    async def topology(self) -> tuple[Link, ...]:
        """How each pair of GPUs that answers is connected. Raises DriverError."""
        return await self._run(self._driver.topology)

    async def activity(
        self, uuid: str, since_us: int, instances: Sequence[int] = ()
    ) -> Activity | None:
        """What runs on a GPU and how busy it keeps it; None if it does not answer.

        Args:
            uuid: The GPU.
            since_us: Older samples of use do not count; microseconds since the epoch.
            instances: Its MIG instances, by the driver's number.

        Raises:
            DriverUnavailableError: The driver went away.
        """
        return await self._run(lambda: self._activity(uuid, since_us, instances))

    def _activity(self, uuid: str, since_us: int, instances: Sequence[int]) -> Activity | None:
        try:
            return Activity(
                processes=self._driver.processes(uuid),
                sm_percent=self._driver.utilisation(uuid, since_us),
                busy=self._driver.busy(uuid, instances) if instances else {},
            )
        except DriverUnavailableError:
            raise
        except NvmlError as error:
            _log.warning("use of a GPU was not read", gpu=uuid, error=str(error))
            return None

    async def set_mig_mode(self, uuid: str, *, enabled: bool) -> bool:
        """Change a GPU's MIG mode; False if the change waits for a reset of the GPU.

        Raises:
            DriverError: It did not change.
        """
        change = await self._run(lambda: self._driver.set_mig_mode(uuid, on=enabled))
        if change is ModeChange.IN_USE:
            raise _held(uuid, f"MIG mode cannot be turned {'on' if enabled else 'off'} now")
        return change is ModeChange.APPLIED

    async def reset_for_mode(self, uuid: str, *, enabled: bool) -> None:
        """Reset one GPU so that the MIG mode that waits comes into force.

        Nothing may use it. The driver is asked once more to do it by itself. For the reset our
        own session with the driver is closed: it would be in the way.

        Raises:
            DriverError: It is in use, or was not reset.
        """
        busy = await self._run(lambda: self._driver.processes(uuid))
        if busy:
            raise _held(uuid, f"is not reset while process {busy[0].pid} uses it")
        if await self.set_mig_mode(uuid, enabled=enabled):
            return
        self._may_watch.clear()
        try:
            await self._run(lambda: self._reset_closed(uuid))
        finally:
            self._may_watch.set()
        if (gpu := await self._run(lambda: self._driver.observe().gpu(uuid))) is None:
            raise InstanceNotFoundError(f"GPU {uuid}", "did not come back from its reset")
        if gpu.mig_mode is not enabled:
            raise ModeChangeError(
                f"GPU {uuid}",
                "its MIG mode did not change by a reset",
                fix="restart the node",
            )

    def _reset_closed(self, uuid: str) -> None:
        with self._session:
            self._driver.close()
            try:
                self._reset(uuid)
            finally:
                self._driver.open()

    async def create(self, uuid: str, profile: MigProfile, placement: Placement) -> MigInstance:
        """Create an instance at a place. Raises DriverError."""
        return await self._run(lambda: self._driver.create_instance(uuid, profile, placement))

    async def destroy(self, uuid: str, gi_id: int) -> None:
        """Destroy an instance. Raises DriverError."""
        await self._run(lambda: self._driver.destroy_instance(uuid, gi_id))

    async def limit_memory(self, uuid: str, cgroup: str, memory_mib: int) -> bool:
        """Limit a cgroup's GPU memory; False where this driver cannot. Raises DriverError."""
        return await self._run(lambda: self._driver.limit_memory(uuid, cgroup, memory_mib))

    async def get(self, gpu_uuid: str) -> int:
        """A GPU's compute mode, for MPS. Raises DriverError."""
        gpu = await self._run(lambda: self._driver.observe().gpu(gpu_uuid))
        if gpu is None:
            raise InstanceNotFoundError(f"GPU {gpu_uuid}", "is not there")
        return int(gpu.compute_mode)

    async def set(self, gpu_uuid: str, mode: int) -> None:
        """Change a GPU's compute mode, for MPS. Raises DriverError."""
        await self._run(lambda: self._driver.set_compute_mode(gpu_uuid, ComputeMode(mode)))

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._calls, call)

    def _look(self) -> Sighting:
        node = self._driver.observe()
        return Sighting(node=node, processes={gpu.uuid: self._processes(gpu) for gpu in node.gpus})

    def _processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...] | None:
        if not gpu.readable:
            return ()
        try:
            listed = self._driver.processes(gpu.uuid)
        except DriverUnavailableError:
            raise
        except NvmlError as error:
            if self._unlisted.get(gpu.uuid) != str(error):
                _log.warning("processes were not listed", gpu=gpu.uuid, error=str(error))
            self._unlisted[gpu.uuid] = str(error)
            return None
        self._unlisted.pop(gpu.uuid, None)
        return listed

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing.is_set():
            self._may_watch.wait()
            try:
                with self._session, self._driver.watch() as watch:
                    while not self._closing.is_set() and self._may_watch.is_set():
                        event = watch.wait(self._wait_s)
                        if event is not None:
                            loop.call_soon_threadsafe(self._on_event, event)
            except (DriverError, RuntimeError) as error:
                # RuntimeError: the loop was closed under us.
                if not self._closing.wait(_REOPEN_S):
                    _log.warning("GPU events were interrupted", error=str(error))


def _held(uuid: str, wrong: str) -> ModeChangeError:
    return ModeChangeError(
        f"GPU {uuid}",
        f"{wrong}: something holds the GPU",
        fix="stop monitoring agents and other clients of this GPU; it is tried again",
    )
