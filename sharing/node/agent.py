"""The agent of one node: a loop that makes its GPUs what they shall be and offers their shares.

Each turn looks at the driver and the kubelet, takes stock, tells the kubelet what it may hand out,
does the steps that nothing blocks, and publishes. Between turns it sleeps until an event, a watch
or a slow timer wakes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from sharing.cluster.backoff import Backoff
from sharing.cluster.client import Client
from sharing.errors import DriverError, GpuSharingError
from sharing.layout import GpuLayout
from sharing.node.background import Background
from sharing.node.census import Census
from sharing.node.closeness import ClosenessMatrix
from sharing.node.equipment import inquiry, mps_daemons, node_api, pod_resources
from sharing.node.forerunner import Forerunner
from sharing.node.gpus import Gpus
from sharing.node.infirmary import Infirmary
from sharing.node.journal import Journal
from sharing.node.listing import Listing
from sharing.node.lookout import Lookout
from sharing.node.notice import Notice
from sharing.node.pace import AT_ONCE, nap_s, waits_for_process
from sharing.node.plan import Kubelet
from sharing.node.recollection import Recollection
from sharing.node.retreats import Retreats
from sharing.node.rivalry import Rivals
from sharing.node.settings import AgentSettings
from sharing.node.sharemetrics import ShareMetrics
from sharing.node.status import GpuReport, NodeReport
from sharing.node.step import Advertise, Withdraw
from sharing.node.stock import Knowledge, take_stock
from sharing.node.turns import time_slices
from sharing.node.wishes import Wish, Wishes
from sharing.node.work import Workshop
from sharing.nvml.observed import DriverEvent

_log: Final = structlog.get_logger()
_NOT_OURS: Final = "the Node has no label gpu.sharing/managed=true"
_LONGEST_NAP_S: Final = 4.0
"""Between two tries of a turn that fails: shares are back 5 s after the driver at the latest."""
_SERVING_S: Final = 0.2
"""How long one turn waits for the kubelet to listen."""


class Agent:
    """Serves the GPUs of one node.

    Args:
        settings: What to serve and where.
        client: The API server; None to work from the layout file alone.
        journal: Where plans under way are noted; in the state folder if None.
        early: What serves already.

    Raises:
        InputError: The layout file cannot be understood.
        UnavailableError: The state folder cannot be made.
    """

    def __init__(
        self,
        settings: AgentSettings,
        client: Client | None = None,
        *,
        journal: Journal | None = None,
        early: Forerunner | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        """Set once everything wanted is offered, and published where there is an API server."""
        self.report = NodeReport()
        """What is known after the latest turn."""
        self._settings = settings
        self._tempo = settings.tempo
        self._early = early or Forerunner(settings)
        self._recollection = Recollection(settings.state_dir / "memory.json")
        self._wake = asyncio.Event()
        self._api = None if client is None else node_api(client, settings, self._wake.set)
        self._notice = Notice(self._api)
        memory = self._recollection.memory
        self._wishes = Wishes(settings, self._api, memory.wanted)
        self._rivals = Rivals(settings, self._api)
        self._retreats = Retreats(settings.retreat, memory.retreats)
        self._gpus = Gpus(settings.simulate, self._on_event, wait_s=settings.tempo.event_wait_s)
        self._kubelet = pod_resources(settings, self._early.plugins)
        self._early.plugins.who_holds = inquiry(self._kubelet, self._api).who_holds
        self._daemons = mps_daemons(settings, self._gpus, self._retell)
        self._census = Census(settings, self._gpus, self._kubelet, self._api, daemons=self._daemons)
        self._slices = time_slices(settings)
        self._work = Workshop(
            gpus=self._gpus,
            daemons=self._daemons,
            journal=journal or Journal(settings.state_dir / "journal.json"),
            tempo=settings.tempo,
        )
        self.infirmary = Infirmary(settings.health, dict(memory.ailments), self._notice.hear)
        self._lookout = Lookout(self._gpus, self.infirmary, self._daemons.servers)
        matrix = ClosenessMatrix(self._gpus.topology)
        self._listing = Listing(self._early, self._daemons, lambda: self.infirmary.ailments, matrix)
        self.metrics = ShareMetrics(
            lambda: self.report,
            self._listing.plugins,
            self._daemons,
            self._slices,
            by_share=settings.metrics_by_share,
        )
        self._served: dict[str, GpuLayout] = {}
        self._met_daemons = False
        self._background = Background(self._wake.set)
        self._closing = False

    # -- life

    async def run(self) -> None:
        """Serve until cancelled. Pods and MPS daemons outlive it, as the settings say."""
        self._work.recover()
        try:
            if self._api is not None:
                self._background.spawn(self._api.run())
            await self._early.start()
            self._listing.take_over()
            if self._api is not None:
                await self._api.wait_synced(self._tempo.api_wait_s)
            await self._loop()
        finally:
            await self._close()

    async def _close(self) -> None:
        self._closing = True
        await self._background.end()
        await self._listing.plugins.stop()
        await self._daemons.stop(leave_running=self._settings.leave_mps_running)
        await self._kubelet.close()
        await self._gpus.close()

    async def _loop(self) -> None:
        waits = Backoff(first_s=0.2, cap_s=_LONGEST_NAP_S).waits()
        trouble = ""
        while True:
            self._wake.clear()
            try:
                nap_s = await self._turn()
            except GpuSharingError as error:
                nap_s = next(waits)
                self._lookout.stale = True
                if str(error) != trouble:
                    _log.warning("turn failed", error=str(error))
                trouble = str(error)
                self._notice.publish(self.report.in_trouble(trouble))
            else:
                if trouble:
                    _log.info("turns go on", after=trouble)
                    trouble, waits = "", Backoff(first_s=0.2, cap_s=_LONGEST_NAP_S).waits()
            if nap_s > AT_ONCE:
                with suppress(TimeoutError):
                    async with asyncio.timeout(nap_s):
                        await self._wake.wait()

    # -- one turn

    async def _turn(self) -> float:
        """One turn; how many seconds to sleep after it."""
        fresh = await self._look()
        pods = None if self._api is None else self._api.pods()
        kubelet = (await self._kubelet.view(pods)).with_told(self._listing.told)
        wish = self._wishes.now(tuple(self._lookout.states.values()))
        self.infirmary.note_cordoned(wish.wanted.cordoned)
        await self._rivals.look(kubelet.offered, self._lookout.states)
        await self._meet_daemons(kubelet, wish)
        await self._remember()
        await self._census.take(self._lookout.states, kubelet, self.report.gpus)
        reports = self._stock(wish, kubelet)
        await self._listing.tell(reports, () if self._rivals.plugin else kubelet.offered)
        self.report = self._noted(reports, wish)
        nap_s = await self._act(reports, fresh=fresh)
        self._notice.publish(self.report)
        layouts = self._recollection.memory.applied if wish.managed else {}
        await self._slices.serve(layouts, self._lookout.states)
        if nap_s > AT_ONCE:
            await self._settle(reports)
        return nap_s

    async def _look(self) -> bool:
        """Look at the GPUs if that is due; whether it was."""
        tempo = self._tempo
        due_s = tempo.probe_s if self.infirmary.occupied else tempo.observe_s
        try:
            looked = await self._lookout.look(due_s, self._work.mps)
        except DriverError as error:
            self.infirmary.lose_sight(self._lookout.states.values(), str(error))
            await self._listing.retell(blind=True)
            raise
        if looked:
            await self._work.see(self._lookout.states.values())
        return looked

    async def _meet_daemons(self, kubelet: Kubelet, wish: Wish) -> None:
        if not self._met_daemons:
            applied = self._recollection.memory.applied
            await self._work.take_over(self._lookout.states.values(), kubelet, applied, wish.wanted)
            self._met_daemons = True
            self._lookout.note_mps(self._work.mps)

    def _stock(self, wish: Wish, kubelet: Kubelet) -> tuple[GpuReport, ...]:
        memory = self._recollection.memory
        known = Knowledge(
            served=self._served,
            applied=memory.applied,
            ailments=self.infirmary.ailments,
            failures=self._work.failures,
            retreats=self._retreats.standing(),
            gpus=memory.gpus,
            withheld=self._census.accounts.withheld,
        )
        return tuple(
            take_stock(
                gpu,
                wish.wanted,
                kubelet,
                known,
                managed=wish.managed and not self._rivals.plugin,
                rival=self._rivals.mig_manager,
            )
            for gpu in self._lookout.states.values()
        )

    async def _act(self, reports: Sequence[GpuReport], *, fresh: bool) -> float:
        awake = [one for one in reports if not self._work.rests(one.gpu.uuid)]
        ready = [step for one in awake for step in one.plan.ready]
        withdrawals = [step for step in ready if isinstance(step, Withdraw)]
        physical = [step for step in ready if not isinstance(step, Withdraw | Advertise)]
        for step in (*withdrawals, *physical):
            self._served.pop(step.gpu, None)
        if physical:
            if not fresh:
                self._lookout.stale = True
                return AT_ONCE
            await self._work.do(physical)
            self._retreats.consider(reports, self._recollection.memory.applied, self._work)
            self._lookout.note_mps(self._work.mps)
            self._lookout.stale = True
            return AT_ONCE
        gone = {share for step in withdrawals for share in step.shares}
        if gone and await self._kubelet.agrees(gone, self._tempo):
            return AT_ONCE
        if await self._adopt(awake):
            return AT_ONCE
        return self._nap_s(reports)

    async def _adopt(self, reports: Sequence[GpuReport]) -> bool:
        """Take note of the layouts that are served in full now; whether there are new ones."""
        served = {
            one.gpu.uuid: step.layout
            for one in reports
            for step in one.plan.ready
            if isinstance(step, Advertise)
        }
        if not served:
            return False
        self._served |= served
        for uuid, layout in sorted(served.items()):
            self._work.forgive(uuid)
            self._retreats.end(uuid, layout)
            _log.info("layout is served", gpu=uuid, layout=str(layout))
        return True

    def _nap_s(self, reports: Sequence[GpuReport]) -> float:
        if waits_for_process(reports):
            self._lookout.stale = True
        return nap_s(
            reports,
            self._tempo,
            rests=[
                *(self._work.rests(one.gpu.uuid) for one in reports),
                *self._retreats.rests(),
            ],
            disputed=bool(self._rivals.plugin or self._census.accounts.lingering),
            probing=self.infirmary.occupied,
            by_file=self._settings.layout_file is not None,
        )

    # -- what is told and kept

    def _noted(self, reports: tuple[GpuReport, ...], wish: Wish) -> NodeReport:
        if not any(one.plan.steps for one in reports):
            self._work.done = 0
        return NodeReport(
            driver_version=self._lookout.driver_version,
            gpus=reports,
            generation=wish.generation,
            done=self._work.done,
            trouble=self._rivals.plugin or ("" if wish.managed else _NOT_OURS),
            complaint=wish.complaint,
            rival=self._rivals.plugin or self._rivals.mig_manager,
            mig_config=wish.by_label,
            silent=self.infirmary.nameless,
            accounts=self._census.accounts,
            daemons=self._daemons.states(),
            excesses=self._census.excesses,
        )

    async def _settle(self, reports: Sequence[GpuReport]) -> None:
        """Say that we are ready, once all that can be done is done."""
        if self.ready.is_set() or any(
            one.plan.steps and not one.plan.blocked_by for one in reports
        ):
            return
        if await self._listing.plugins.wait_serving(_SERVING_S) and await self._notice.heard():
            self.ready.set()
        else:
            self._wake.set()

    async def _remember(self) -> None:
        """Keep what must outlive us; on disk before anything is done for it."""
        await self._recollection.keep(
            self._lookout.states.values(),
            wanted=self._wishes.last,
            served=self._served,
            ailments=self.infirmary.ailments,
            retreats=self._retreats.known,
        )

    # -- what wakes it

    def _on_event(self, event: DriverEvent) -> None:
        self._lookout.stale = True
        if self.infirmary.hear(event, self._lookout.states.values()):
            self._listing.worsen()
            self._retell()
        self._wake.set()

    def _retell(self) -> None:
        """A device's health changed: the kubelet hears of it at once, whatever we are at."""
        if self._closing:
            return
        self._background.spawn(self._listing.retell())
        self._wake.set()
