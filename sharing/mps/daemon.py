"""Keeps one daemon alive and honest.

A loop: start it (or find it), wait until it answers, set its limits and read them back, say that
it is ready, then look after it until it ends or goes silent; begin again after a growing pause.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

import structlog

from sharing.errors import GpuSharingError
from sharing.mps import process
from sharing.mps.compute import ComputeModeRecord
from sharing.mps.control import Control, MpsControl
from sharing.mps.control3 import MpsControl3
from sharing.mps.errors import MpsError, MpsMisreportError
from sharing.mps.process import DaemonProcess
from sharing.mps.program import DaemonFolders, MpsProgram, MpsVersion
from sharing.mps.version3 import LEAST_DRIVER
from sharing.mps.wanted import WantedDaemon

_log = structlog.get_logger()


class DaemonPhase(StrEnum):
    """Where a daemon stands."""

    STARTING = "starting"
    READY = "ready"
    """Answers, and its limits were read back."""
    SILENT = "silent"
    """Lives but does not answer; restarted if it stays so."""
    BACKING_OFF = "backing-off"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    """One daemon as it is now."""

    device_uuid: str
    phase: DaemonPhase
    reason: str
    """One sentence for a person; empty when ready."""
    pid: int | None
    starts: int
    """How often it was started or taken over since the agent started."""

    @property
    def ready(self) -> bool:
        """Whether clients may come."""
        return self.phase is DaemonPhase.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsPatience:
    """Deadlines and pauses towards daemons, in seconds."""

    answer_s: float = 5.0
    start_s: float = 15.0
    """From a daemon's start to its first answer."""
    start_poll_s: float = 0.1
    probe_s: float = 15.0
    silent_probes: int = 3
    """Unanswered probes before a daemon is restarted, which ends its clients."""
    end_s: float = 5.0
    first_retry_s: float = 0.5
    longest_retry_s: float = 30.0
    settled_s: float = 60.0
    """A daemon that was ready so long is restarted at once when it ends."""


class DaemonSupervisor:
    """Looks after the daemon of one device.

    Args:
        wanted: The device and its ceiling.
        folders: Where it meets its clients.
        program: How to run and ask it.
        modes: The record of compute modes; None where they are left alone.
        patience: Deadlines.
        on_change: Called after each change of phase.
    """

    def __init__(
        self,
        wanted: WantedDaemon,
        folders: DaemonFolders,
        *,
        program: MpsProgram,
        modes: ComputeModeRecord | None,
        patience: MpsPatience,
        on_change: Callable[[DaemonState], None],
    ) -> None:
        self.wanted = wanted
        self.folders = folders
        self.state = DaemonState(
            device_uuid=wanted.device_uuid,
            phase=DaemonPhase.STOPPED,
            reason="not started",
            pid=None,
            starts=0,
        )
        self.version = program.version
        """What the daemon speaks; one that lives on keeps what it has."""
        self.control = self._control(program, patience.answer_s)
        self._program = program
        self._modes = modes
        self._patience = patience
        self._on_change = on_change
        self._process: DaemonProcess | None = None
        self._pause_s = patience.first_retry_s
        self._relimit = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def _control(self, program: MpsProgram, timeout_s: float) -> Control:
        kind = MpsControl3 if program.version is MpsVersion.V3 else MpsControl
        return kind(program=program, folders=self.folders, timeout_s=timeout_s)

    def start(self) -> None:
        """Begin to look after the daemon."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"mps {self.wanted.device_uuid}")

    def change(self, wanted: WantedDaemon) -> None:
        """Another ceiling; verified anew before the daemon counts as ready again."""
        if wanted != self.wanted:
            self.wanted = wanted
            if self.state.ready:
                self._say(DaemonPhase.STARTING, "its limits are being changed")
            self._relimit.set()

    async def leave(self) -> None:
        """Look after it no more; it lives on for its clients."""
        await self._end_supervision()
        if self._process is not None:
            self._process.forget()
        self._process = None
        self._say(DaemonPhase.STOPPED, "not looked after")

    async def take_down(self) -> None:
        """End the daemon and give the GPU back as it was found."""
        await self._end_supervision()
        living = self._process or process.find(self._program, self.folders)
        if living is not None:
            self._speak(living.version)
            with suppress(MpsError):  # a daemon that cannot be asked is ended by signals
                await self.control.quit()
                await living.ended(self._patience.end_s)
            await living.kill(self._patience.end_s)
        self._process = None
        if self._modes is not None:
            await self._modes.restore(self.wanted.gpu_uuid)
        await asyncio.to_thread(process.clear_folders, self.folders)
        self._say(DaemonPhase.STOPPED, "not wanted")
        _log.info("MPS daemon was taken down", device=self.wanted.device_uuid)

    async def _end_supervision(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            ready_since: float | None = None
            try:
                living = await self._bring_up()
                ready_since = monotonic()
                why = await self._look_after(living)
            except GpuSharingError as error:
                why = str(error)
            if self._process is not None:
                await self._process.kill(self._patience.end_s)
                self._process = None
            if ready_since and monotonic() - ready_since > self._patience.settled_s:
                self._pause_s = self._patience.first_retry_s
            _log.warning("MPS daemon failed", device=self.wanted.device_uuid, reason=why)
            self._say(DaemonPhase.BACKING_OFF, why)
            await asyncio.sleep(self._pause_s * random.uniform(0.75, 1.25))
            self._pause_s = min(2 * self._pause_s, self._patience.longest_retry_s)

    async def _bring_up(self) -> DaemonProcess:
        """A daemon that answers and has its limits.

        Raises:
            GpuSharingError: It does not start, answer or agree, or the driver refuses.
        """
        self._say(DaemonPhase.STARTING, "being started")
        if self._modes is not None and self.wanted.exclusive:
            await self._modes.make_exclusive(self.wanted.gpu_uuid)
        living = process.find(self._program, self.folders)
        found = living is not None
        if living is None:
            living = await process.start(self._program, self.folders, self.wanted)
        self._process = living
        self._speak(living.version)
        self._say(DaemonPhase.STARTING, "waits for its first answer", started=True)
        await self._first_answer(living)
        await self._limit()
        self._say(DaemonPhase.READY, "")
        _log.info(
            "MPS daemon is ready", device=self.wanted.device_uuid, pid=living.pid, found=found
        )
        return living

    def _speak(self, version: MpsVersion) -> None:
        """Ask in a daemon's own words: it is not restarted under its clients for others."""
        if version is not self.version:
            program = self._program.speaking(version)
            self.version, self.control = version, self._control(program, self._patience.answer_s)

    async def _first_answer(self, living: DaemonProcess) -> None:
        try:
            async with asyncio.timeout(self._patience.start_s):
                while True:
                    with suppress(MpsError):
                        await self.control.servers()
                        return
                    if await living.ended(self._patience.start_poll_s):
                        raise self._ended(living)
        except TimeoutError:
            raise MpsError(
                f"MPS daemon of {self.wanted.device_uuid}",
                f"did not answer within {self._patience.start_s:g} s of its start",
                fix=f"look into {self.folders.log}",
            ) from None

    async def _limit(self) -> None:
        while True:
            self._relimit.clear()
            await self.control.limit(self.wanted)
            if not self._relimit.is_set():  # else they were changed meanwhile
                return

    async def _look_after(self, living: DaemonProcess) -> str:
        """Watch and probe until the daemon is lost; why it is.

        Raises:
            MpsError: It reports other limits than it was given, even when told again.
        """
        silent = 0
        while silent < self._patience.silent_probes:
            if await self._ended_or_told(living):
                return str(self._ended(living))
            try:
                await self._probe()
            except MpsError as error:
                silent += 1
                self._say(DaemonPhase.SILENT, str(error))
            else:
                silent = 0
                if not self._relimit.is_set():  # else it has the limits of before
                    self._say(DaemonPhase.READY, "")
        return f"did not answer {silent} times in a row; {self.state.reason}"

    async def _ended_or_told(self, living: DaemonProcess) -> bool:
        """Wait for the next probe's time, new limits or the daemon's end; whether it ended."""
        waits = (
            asyncio.create_task(living.ended()),
            asyncio.create_task(self._relimit.wait()),
        )
        try:
            await asyncio.wait(
                waits, timeout=self._patience.probe_s, return_when=asyncio.FIRST_COMPLETED
            )
            return waits[0].done()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _probe(self) -> None:
        if self._relimit.is_set():
            await self._limit()
            return
        try:
            await self.control.probe(self.wanted)
        except MpsMisreportError as error:
            _log.warning(
                "MPS daemon was told its limits again",
                device=self.wanted.device_uuid,
                reason=str(error),
            )
            await self._limit()

    def _ended(self, living: DaemonProcess) -> MpsError:
        code = living.exit_code
        how = "ended" if code is None else f"ended with exit code {code}"
        said = process.last_words(self.folders)
        fix = f"nothing to do, it is started again; look into {self.folders.log} if it stays so"
        if self.version is MpsVersion.V3:
            fix += f"; MPS v3 needs driver {LEAST_DRIVER} or later"
        return MpsError(
            f"MPS daemon of {self.wanted.device_uuid}", f"{how}: {said}" if said else how, fix=fix
        )

    def _say(self, phase: DaemonPhase, reason: str, *, started: bool = False) -> None:
        state = DaemonState(
            device_uuid=self.wanted.device_uuid,
            phase=phase,
            reason=reason,
            pid=self._process.pid if self._process else None,
            starts=self.state.starts + started,
        )
        if state != self.state:
            self.state = state
            self._on_change(state)
