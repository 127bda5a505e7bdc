"""Counts, now and then, what runs on the GPUs and for whom; see ``usage`` and ``excess``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sharing.mps.daemons import MpsDaemons
from sharing.node.api import NodeApi
from sharing.node.caps import MemoryCaps
from sharing.node.cgroup import Place
from sharing.node.excess import Excess, excesses
from sharing.node.gpus import Activity, Gpus
from sharing.node.held import gpu_of
from sharing.node.observed import GpuState
from sharing.node.plan import Kubelet
from sharing.node.podresources import PodResources
from sharing.node.processes import own_pods, whereabouts
from sharing.node.rollcall import RollCall
from sharing.node.seats import seats_of
from sharing.node.settings import AgentSettings
from sharing.node.status import GpuReport
from sharing.node.tenures import Tenures
from sharing.node.usage import Accounts, Register, Seat, Task, account
from sharing.nvml.observed import ProcessKind

_US: Final = 1_000_000
_COUNTS_A_ROLL_CALL: Final = 3


class Census:
    """The processes of a node's GPUs, put down to shares.

    Args:
        settings: How often to count, when memory use counts as excess, and whether the GPUs are
            simulated.
        gpus: The driver.
        kubelet: Whose checkpoint tells the uids of pods.
        api: The API server; None where there is none.
        daemons: The MPS daemons, whose clients are counted too.
    """

    def __init__(
        self,
        settings: AgentSettings,
        gpus: Gpus,
        kubelet: PodResources,
        api: NodeApi | None,
        *,
        daemons: MpsDaemons,
    ) -> None:
        self.accounts = Accounts()
        """As of the last count."""
        self.excesses: Mapping[str, Excess] = {}
        """Shares above their budget, by device id."""
        self._every_s = settings.tempo.holders_s
        self._gpus = gpus
        self._kubelet = kubelet
        self._api = api
        self._policy = settings.excess
        self._roll_call = RollCall(daemons, every_s=_COUNTS_A_ROLL_CALL * self._every_s)
        self._caps = MemoryCaps(gpus) if settings.enforce_memory else None
        self._whereabouts = whereabouts(settings.simulate)
        self._ambient = own_pods()
        self._tenures = Tenures(settings.state_dir / "tenures.json")
        self._counted: tuple[tuple[Seat, ...], frozenset[str] | None] = ((), None)
        self._at = -float("inf")

    async def take(
        self, states: Mapping[str, GpuState], kubelet: Kubelet, reports: Iterable[GpuReport]
    ) -> None:
        """Count, if that is due or if somebody came or went.

        Args:
            states: The GPUs as they are, by UUID.
            kubelet: Who holds what.
            reports: What was offered so far.

        Raises:
            DriverUnavailableError: The driver went away.
        """
        pods = None if self._api is None else self._api.pods()
        seats = seats_of(kubelet.held.holds, self._kubelet.entries, pods)
        living = None if pods is None else frozenset(pods)
        changed = self._counted != (seats, living)
        if not changed and time.monotonic() - self._at < self._every_s:
            return
        await self._tenures.note(seats, self._kubelet.entries, states)
        register = Register(
            seats=seats,
            living=living,
            containers={} if self._api is None else self._api.containers(),
            former=dict(self._tenures.former),
            ambient=self._ambient,
        )
        await self._count([gpu for gpu in states.values() if not gpu.lost], register)
        self._counted, self._at = (seats, living), time.monotonic()
        shares = {
            share.device_id: share
            for report in reports
            for share in (*report.offer.shares, *report.offer.draining)
        }
        if self._caps is not None:
            await self._caps.apply(shares, self.accounts.uses)
        self.excesses = excesses(
            self.excesses, shares, self.accounts.uses, now=time.time(), policy=self._policy
        )

    async def _count(self, gpus: Iterable[GpuState], register: Register) -> None:
        since_us = int((time.time() - self._every_s) * _US)
        found: dict[str, tuple[GpuState, Activity]] = {}
        for gpu in gpus:
            instances = [one.gi_id for one in gpu.instances]
            activity = await self._gpus.activity(gpu.uuid, since_us, instances)
            if activity is not None:
                found[gpu.uuid] = (gpu, activity)
        await self._roll_call.take(
            found.values(), {gpu_of(one.device_id) for one in register.seats}
        )
        pids = frozenset(one.pid for _, activity in found.values() for one in activity.processes)
        places = await asyncio.to_thread(self._whereabouts.of, pids)
        tasks = [task for gpu, activity in found.values() for task in _tasks(gpu, activity, places)]
        busy = {
            device_id: activity.busy[one.gi_id]
            for gpu, activity in found.values()
            for one in gpu.instances
            if one.gi_id in activity.busy and (device_id := one.device_id(gpu.uuid)) is not None
        }
        self.accounts = replace(
            account(tasks, register, frozenset(found), busy=busy),
            disputed=self._roll_call.disputed,
        )


def _tasks(
    gpu: GpuState, activity: Activity, places: Mapping[int, tuple[Place, ...]]
) -> Iterable[Task]:
    """The GPU's processes; those that have ended since are left out."""
    instances = {one.gi_id: one.device_id(gpu.uuid) for one in gpu.instances}
    busy = activity.sm_percent
    for one in activity.processes:
        if one.pid not in places:
            continue
        yield Task(
            pid=one.pid,
            gpu=gpu.uuid,
            memory_mib=one.memory_mib,
            sm_percent=None if busy is None else busy.get(one.pid, 0),
            device_id=None if one.gi_id is None else instances.get(one.gi_id),
            in_instance=one.gi_id is not None,
            is_mps_client=one.kind is ProcessKind.MPS,
            places=places[one.pid],
        )
