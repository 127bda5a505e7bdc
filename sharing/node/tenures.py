"""Which pod held each share last; on disk, since a process may outlive its pod and our restart."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final

from sharing.node import record
from sharing.node.checkpoint import Entry
from sharing.node.held import gpu_of
from sharing.node.usage import Seat

KIND: Final = "tenures"


class Tenures:
    """The last holder of each share of a node.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        content = record.recover(path, KIND) or {}
        self.former: Mapping[str, str] = {
            str(device_id): str(uid) for device_id, uid in content.items()
        }
        """Pod uids by device id."""

    async def note(
        self, seats: Iterable[Seat], entries: Iterable[Entry], gpus: Container[str]
    ) -> None:
        """Take in who holds what now.

        Args:
            seats: Who holds what.
            entries: The kubelet's checkpoint, which names pods that have ended too.
            gpus: GPUs that are there, by UUID; shares of others are forgotten.

        Raises:
            UnavailableError: The file cannot be written.
        """
        before = {device_id: one.pod_uid for one in entries for device_id in one.device_ids}
        now = {one.device_id: one.pod_uid for one in seats}
        known = {
            device_id: uid
            for device_id, uid in sorted({**before, **self.former, **now}.items())
            if gpu_of(device_id) in gpus
        }
        if known != self.former:
            await asyncio.to_thread(record.write, self._path, KIND, dict(known))
            self.former = known
