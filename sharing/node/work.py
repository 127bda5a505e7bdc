"""Doing the steps of a plan: one after the other, each in the journal before it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from sharing.cluster.backoff import Backoff
from sharing.errors import GpuSharingError
from sharing.layout import GpuLayout
from sharing.mps.daemons import MIG_DEVICE, MpsDaemons
from sharing.node.clients import daemons_of, mps_to_take_over
from sharing.node.gpus import Gpus, ModeChangeError
from sharing.node.journal import Journal
from sharing.node.observed import Cuttable, GpuState
from sharing.node.plan import Kubelet
from sharing.node.settings import Tempo
from sharing.node.step import (
    Advertise,
    CreateInstance,
    DestroyInstance,
    ResetGpu,
    SetMigMode,
    StartMps,
    Step,
    StopMps,
    Withdraw,
)
from sharing.node.wanted import Wanted
from sharing.nvml.errors import InstanceNotFoundError
from sharing.share import mig_device_id

_log: Final = structlog.get_logger()


@dataclass(slots=True)
class _Retry:
    """When a GPU's next step may be tried after the driver refused one."""

    delays: Iterable[float]
    at: float
    reason: str
    times: int = 0


@dataclass(slots=True)
class Workshop:
    """Carries out steps on GPUs and MPS daemons.

    A step that fails ends the work on its GPU for this time; the others go on. What the GPU is
    then has to be read from the driver again.
    """

    gpus: Gpus
    daemons: MpsDaemons
    journal: Journal
    tempo: Tempo
    cuttables: dict[str, Cuttable] = field(default_factory=dict)
    """What shares can be cut from, by device id of the MIG instance or the GPU's UUID."""
    mps: dict[str, GpuLayout] = field(default_factory=dict)
    """What each MPS daemon serves, by UUID of GPU or MIG device."""
    done: int = 0
    """Steps done since the last plan was finished."""
    _retries: dict[str, _Retry] = field(default_factory=dict)

    def recover(self) -> None:
        """Say which plan an earlier agent died in; what the GPUs are is read from the driver."""
        interrupted = self.journal.recover()
        if interrupted is not None:
            _log.warning(
                "plan was interrupted",
                step=interrupted.steps[interrupted.at : interrupted.at + 1],
                rebooted=interrupted.rebooted,
            )

    def rests(self, gpu: str) -> float:
        """For how many seconds a GPU is left alone after a failure; 0 if it is not."""
        retry = self._retries.get(gpu)
        return max(0.0, retry.at - time.monotonic()) if retry else 0.0

    @property
    def failures(self) -> dict[str, str]:
        """What went wrong last, by GPU."""
        return {gpu: retry.reason for gpu, retry in self._retries.items()}

    @property
    def tries(self) -> dict[str, int]:
        """How often in a row a step was refused, by GPU."""
        return {gpu: retry.times for gpu, retry in self._retries.items()}

    def forgive(self, gpu: str) -> None:
        """Try again at once: the plan of a GPU is done, or another one."""
        self._retries.pop(gpu, None)

    async def see(self, gpus: Iterable[GpuState]) -> None:
        """Know what there is now; the daemon of a MIG device that is gone ends.

        Args:
            gpus: The GPUs as they are.
        """
        self.cuttables = {place: one for gpu in gpus for place, one in gpu.cuttables.items()}
        there = {one.uuid for one in self.cuttables.values()}
        gone = sorted(
            uuid for uuid in self.mps if uuid.startswith(MIG_DEVICE) and uuid not in there
        )
        if gone:
            _log.warning("MIG devices with MPS daemons are gone", devices=gone)
            for uuid in gone:
                del self.mps[uuid]
            await self.apply_mps()

    async def take_over(
        self,
        gpus: Iterable[GpuState],
        kubelet: Kubelet,
        applied: Mapping[str, GpuLayout],
        wanted: Wanted,
    ) -> None:
        """Take over the MPS daemons of an earlier agent, once it is known who uses them.

        One that serves nobody and is not wanted any more is taken down.

        Args:
            gpus: The GPUs as they are.
            kubelet: Who holds what.
            applied: The layout that each GPU served last, by UUID.
            wanted: What they shall be.
        """
        for gpu in gpus:
            before = applied.get(gpu.uuid)
            self.mps |= mps_to_take_over(
                gpu, kubelet.held.on(gpu.uuid), before, wanted.of(gpu, before).layout
            )
        await self.daemons.start()
        await self.apply_mps()

    async def apply_mps(self) -> None:
        """Make the MPS daemons those that ``mps`` names."""
        await self.daemons.apply(daemons_of(self.mps, self.cuttables.values()))

    async def do(self, steps: Sequence[Step]) -> None:
        """Do steps in order."""
        self.journal.begin(steps)
        over: set[str] = set()
        started: list[str] = []
        for number, step in enumerate(steps):
            if step.gpu in over:
                continue
            try:
                await asyncio.to_thread(self.journal.starting, number)
                complete = await self._do(step)
            except GpuSharingError as error:
                over.add(step.gpu)
                self._fail(step, error)
                continue
            if not complete:
                over.add(step.gpu)
                _log.info("MIG mode waits for a reset", gpu=step.gpu, step=str(step))
                continue
            self.done += 1
            _log.info("step was done", gpu=step.gpu, step=str(step))
            if isinstance(step, StartMps):
                started.append(self.cuttables[step.place].uuid)
        await asyncio.gather(
            *(self.daemons.wait_ready(uuid, self.tempo.mps_ready_s) for uuid in started)
        )
        await asyncio.to_thread(self.journal.finish)

    async def _do(self, step: Step) -> bool:
        """Do one step; False if it is done by half and the next plan says how it goes on."""
        match step:
            case DestroyInstance(gpu=gpu, gi_id=gi_id):
                await self.gpus.destroy(gpu, gi_id)
            case CreateInstance(gpu=gpu, profile=profile, placement=placement):
                made = await self.gpus.create(gpu, profile, placement)
                if made.uuid is not None:
                    place = mig_device_id(gpu, profile, placement.start)
                    self.cuttables[place] = Cuttable(
                        uuid=made.uuid, gpu_uuid=gpu, memory_mib=made.memory_mib
                    )
            case SetMigMode(gpu=gpu, enabled=enabled):
                return await self._set_mig_mode(gpu, enabled=enabled, resets=step.resets)
            case ResetGpu(gpu=gpu, enabled=enabled):
                await self.gpus.reset_for_mode(gpu, enabled=enabled)
            case StartMps(place=place, layout=layout):
                self.mps[self._cuttable(place).uuid] = layout
                await self.apply_mps()
            case StopMps(place=place):
                self.mps.pop(self._cuttable(place).uuid, None)
                await self.apply_mps()
            case Withdraw() | Advertise():
                pass  # the agent's own part: it tells the kubelet before and after
        return True

    def _cuttable(self, place: str) -> Cuttable:
        found = self.cuttables.get(place)
        if found is None:
            raise InstanceNotFoundError(f"MIG instance {place}", "is not there any more")
        return found

    async def _set_mig_mode(self, gpu: str, *, enabled: bool, resets: bool) -> bool:
        if await self.gpus.set_mig_mode(gpu, enabled=enabled):
            return True
        if resets:
            return False
        raise ModeChangeError(
            f"GPU {gpu}",
            "its MIG mode waits for a reset of a kind that we do not do",
            fix="restart the node",
        )

    def _fail(self, step: Step, error: GpuSharingError) -> None:
        retry = self._retries.get(step.gpu)
        if retry is None:
            tempo = self.tempo
            waits = Backoff(first_s=tempo.first_retry_s, cap_s=tempo.longest_retry_s).waits()
            retry = self._retries[step.gpu] = _Retry(delays=waits, at=0.0, reason="")
        if retry.reason != str(error):
            _log.warning("step failed", gpu=step.gpu, step=str(step), error=str(error))
        retry.reason = str(error)
        retry.times += 1
        retry.at = time.monotonic() + next(iter(retry.delays))
