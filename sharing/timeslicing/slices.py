"""Makes time slices what layouts ask for, and gives them back.

What was found is on disk before it is changed, so that a crash cannot lose it. A slice is comfort
and no protection: a driver that refuses is told of and asked again later, and shares are served.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final

import structlog

from sharing.layout import GpuLayout
from sharing.timeslice import TimeSlice
from sharing.timeslicing.errors import TimeSliceError
from sharing.timeslicing.policy import ComputePolicy
from sharing.timeslicing.record import SliceRecord

RETRY_S: Final = 60.0
_log: Final = structlog.get_logger()


class TimeSlices:
    """The time slices of a node's GPUs.

    Args:
        policy: NVIDIA's command, or its stand-in.
        path: The file that remembers what was found.
        retry_s: From a refusal to the next try.
    """

    def __init__(self, policy: ComputePolicy, path: Path, *, retry_s: float = RETRY_S) -> None:
        self.failures: Mapping[str, str] = {}
        """Why a GPU's slice is not what it shall be, by UUID."""
        self._policy = policy
        self._record = SliceRecord(path)
        self._retry_s = retry_s
        self._ours: set[str] | None = None
        """GPUs whose slice we changed; None until the record was read."""
        self._done: dict[str, TimeSlice] = {}
        self._again_at: dict[str, float] = {}
        self._waiting: dict[str, TimeSlice | None] = {}

    async def serve(self, layouts: Mapping[str, GpuLayout], present: Container[str]) -> None:
        """Make the slices those that layouts ask for; see ``apply``.

        Args:
            layouts: What GPUs serve, by UUID.
            present: The GPUs that are there; of others nothing is asked.
        """
        wanted = {uuid: one.time_slice for uuid, one in layouts.items() if one.time_slice}
        await self.apply(wanted, present)

    async def apply(
        self, wanted: Mapping[str, TimeSlice], present: Container[str] | None = None
    ) -> None:
        """Make the slices these; what we changed before and is not named goes back as found.

        Costs nothing while nothing changed. Never raises for a GPU that refuses.

        Args:
            wanted: Slices by GPU UUID.
            present: The GPUs that are there; all if None.
        """
        if self._ours is None:
            self._ours = set(await asyncio.to_thread(self._record.read))
        known = sorted(
            uuid for uuid in self._ours.union(wanted) if present is None or uuid in present
        )
        now = time.monotonic()
        failures: dict[str, str] = {}
        for uuid in known:
            value = wanted.get(uuid)
            if value is not None and self._done.get(uuid) is value:
                continue
            same = self._waiting.get(uuid, self) is value
            if same and now < self._again_at.get(uuid, now):
                failures[uuid] = self.failures.get(uuid, "")
                continue
            try:
                await self._make(uuid, value)
            except TimeSliceError as error:
                failures[uuid] = str(error)
                self._waiting[uuid], self._again_at[uuid] = value, now + self._retry_s
                if self.failures.get(uuid) != str(error):
                    _log.warning("time slice was not set", gpu=uuid, error=str(error))
            else:
                self._waiting.pop(uuid, None)
        self.failures = failures

    async def _make(self, uuid: str, value: TimeSlice | None) -> None:
        found = await self._policy.get(uuid)
        if value is None:
            await self._give_back(uuid, found)
            return
        record = await asyncio.to_thread(self._record.read)
        if uuid not in record:
            await self._keep(record | {uuid: found})
        if found is not value:
            await self._policy.set(uuid, value)
            await self._check(uuid, value)
            _log.info("time slice was set", gpu=uuid, slice=str(value), before=str(found))
        self._done[uuid] = value

    async def _give_back(self, uuid: str, found: TimeSlice) -> None:
        record = await asyncio.to_thread(self._record.read)
        before = record.get(uuid)
        if before is not None and before is not found:
            await self._policy.set(uuid, before)
            await self._check(uuid, before)
            _log.info("time slice was given back", gpu=uuid, slice=str(before))
        await self._keep({gpu: one for gpu, one in record.items() if gpu != uuid})
        self._done.pop(uuid, None)

    async def _keep(self, record: Mapping[str, TimeSlice]) -> None:
        await asyncio.to_thread(self._record.write, record)
        self._ours = set(record)

    async def _check(self, uuid: str, value: TimeSlice) -> None:
        now = await self._policy.get(uuid)
        if now is not value:
            raise TimeSliceError(
                f"GPU {uuid}", f"its time slice is {now} after it was set", expected=str(value)
            )
