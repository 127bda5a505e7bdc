"""Has the driver keep time-sliced pods within their shares' memory, where it can.

Only where people ask for it: the call is new and unproven. A pod is limited as soon as a process
of it is seen on the GPU; what it took before that stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from sharing.errors import DriverError
from sharing.mode import Mode
from sharing.node.cgroup import from_the_root
from sharing.node.gpus import Gpus
from sharing.node.usage import ShareUse
from sharing.share import Share

_log: Final = structlog.get_logger()


class MemoryCaps:
    """The memory limits that were set on containers of this node.

    Args:
        gpus: The driver.
    """

    def __init__(self, gpus: Gpus) -> None:
        self.set: frozenset[tuple[str, str]] = frozenset()
        """Share and cgroup of each limit in force."""
        self._gpus = gpus
        self._incapable: set[str] = set()
        self._refused: set[tuple[str, str]] = set()

    async def apply(self, shares: Mapping[str, Share], uses: Mapping[str, ShareUse]) -> None:
        """Limit the containers that use time-sliced shares and are not limited yet.

        Args:
            shares: All shares of the node by device id.
            uses: What their holders use.
        """
        wanted = {
            (device_id, path)
            for device_id, use in uses.items()
            for cgroup in use.cgroups
            if (path := from_the_root(cgroup))
            and device_id in shares
            and shares[device_id].share_class.mode is Mode.TIME_SLICING
            and shares[device_id].share_class.cut_from is None  # the call takes no MIG device
            and use.gpu_uuid not in self._incapable
        }
        done = self.set & wanted
        for device_id, cgroup in sorted(wanted - done - self._refused):
            if await self._limit(shares[device_id], cgroup):
                done |= {(device_id, cgroup)}
        self.set, self._refused = done, self._refused & wanted

    async def _limit(self, share: Share, cgroup: str) -> bool:
        gpu = share.gpu_uuid
        if gpu in self._incapable:
            return False
        try:
            can = await self._gpus.limit_memory(gpu, cgroup, share.memory_mib)
        except DriverError as error:
            self._refused.add((share.device_id, cgroup))
            _log.warning("GPU memory was not limited", share=share.device_id, error=str(error))
            return False
        if not can:
            self._incapable.add(gpu)
            _log.warning("driver cannot limit GPU memory by cgroup", gpu=gpu)
            return False
        _log.info(
            "GPU memory was limited",
            share=share.device_id,
            cgroup=cgroup,
            memory_mib=share.memory_mib,
        )
        return True
