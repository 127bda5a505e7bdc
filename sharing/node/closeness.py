"""How close the GPUs of a node are to each other, as one number for each pair.

The driver is asked once for all pairs and the answer is kept: asking while a pod is admitted would
make one lost GPU fail the admission of all (NVIDIA/k8s-device-plugin#231, #2038). A GPU that does
not answer keeps the distances that it had.

The numbers are those by which NVIDIA's plugin scores pairs, so that both choose alike.
Source: NVIDIA/go-gpuallocator, "calculateGPUPairScore"; facts are NVML's topology levels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

import structlog

from sharing.errors import DriverError
from sharing.nvml.codes import TopologyLevel
from sharing.nvml.observed import Link

_BY_LEVEL: Final[Mapping[TopologyLevel, int]] = {
    TopologyLevel.INTERNAL: 60,
    TopologyLevel.SINGLE: 50,
    TopologyLevel.MULTIPLE: 40,
    TopologyLevel.HOSTBRIDGE: 30,
    TopologyLevel.NODE: 20,
    TopologyLevel.SYSTEM: 10,
}
_BY_NVLINK: Final = 100
_log: Final = structlog.get_logger()


def closeness(links: Iterable[Link]) -> dict[frozenset[str], int]:
    """Closeness of GPU pairs by their UUIDs, higher is closer."""
    return {
        frozenset((link.one, link.other)): _BY_LEVEL[link.level] + _BY_NVLINK * link.nvlinks
        for link in links
    }


class ClosenessMatrix:
    """The closeness of all pairs, asked for again when a GPU appears.

    Args:
        ask: The driver's topology.
    """

    def __init__(self, ask: Callable[[], Awaitable[tuple[Link, ...]]]) -> None:
        self._ask = ask
        self._asked_for: frozenset[str] = frozenset()
        self._known: dict[frozenset[str], int] = {}
        self._lock = asyncio.Lock()

    async def of(self, gpus: Collection[str]) -> Mapping[frozenset[str], int]:
        """What is known of these GPUs; never an error, since it is advice only.

        Args:
            gpus: The UUIDs of the GPUs that answer now.
        """
        async with self._lock:
            if not self._asked_for >= set(gpus):
                try:
                    self._known |= closeness(await self._ask())
                except DriverError as error:
                    _log.warning("topology was not read", error=str(error))
                else:
                    self._asked_for = frozenset(gpus)
            return self._known
