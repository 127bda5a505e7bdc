"""Keeping the node's memory on disk, and what it has no use for out of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from sharing.api.node import GpuNodeSpec
from sharing.layout import GpuLayout
from sharing.node.acquaintance import SECONDS_PER_DAY, acquainted
from sharing.node.health import Ailment
from sharing.node.held import gpu_of
from sharing.node.memory import Memory, recall
from sharing.node.observed import GpuState
from sharing.node.retreat import Retreat


class Recollection:
    """The memory of one node, read once and written when it changes.

    Args:
        path: Its file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.memory: Memory = recall(path)

    async def keep(
        self,
        gpus: Iterable[GpuState],
        *,
        wanted: GpuNodeSpec | None,
        served: Mapping[str, GpuLayout],
        ailments: Mapping[str, Ailment],
        retreats: Mapping[str, Retreat],
    ) -> None:
        """Take in what is so now; on disk when this returns. GPUs that are gone are forgotten.

        Raises:
            UnavailableError: The disk refuses.
        """
        today = int(time.time() // SECONDS_PER_DAY)
        known = acquainted(self.memory.gpus, gpus, today)
        applied = {**self.memory.applied, **served}
        memory = Memory(
            wanted=wanted,
            applied={uuid: layout for uuid, layout in applied.items() if uuid in known},
            ailments={one: ill for one, ill in ailments.items() if gpu_of(one) in known},
            gpus=known,
            retreats={uuid: one for uuid, one in retreats.items() if uuid in known},
        )
        if memory != self.memory:
            await asyncio.to_thread(memory.save, self._path)
            self.memory = memory
