"""The loop that keeps a serving program's certificate good, and says whether it is.

Every replica runs one; none leads. It looks when something changed (a watch), and at
least every half minute by a timer, because a watch can be silent and because a timer of
days would stop while a machine sleeps: the date is compared at every look instead.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from certs.cluster import Outcome, read_configuration
from certs.errors import CertificateError
from certs.healing import voucher_print
from certs.leaf import find_faults, fingerprint
from certs.rotation import Situation, next_step
from certs.serving import choose_served
from certs.sight import Sight, live_bundles
from certs.step import Act, Patch, Rest, Step, Wait
from sharing.cluster.backoff import Backoff
from sharing.cluster.kind import SECRETS
from sharing.cluster.watching import EventType
from sharing.errors import GpuSharingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from certs.bundle import Bundle
    from certs.cluster import Cluster, Look
    from certs.context import HotContext
    from certs.metrics import CertsMetrics
    from certs.schedule import RotationSettings
    from certs.sight import Configuration, Served
    from sharing.cluster.events import EventRecorder
    from sharing.cluster.kind import Kind

_log: Final = structlog.get_logger()
_WATCH_PAUSE_S: Final = 1.0
_LOOKS: Final = 10
"""While API servers are waited for, in the time that they get."""
_EVENTS: Final = {
    Act.MAKE: ("CertificateMade", False),
    Act.PROMOTE: ("CertificateRotated", False),
    Act.REPAIR: ("BundleRepaired", True),
    Act.HEAL: ("CertificateSecretRepaired", True),
}
"""Acts that people want to read about, and whether somebody should look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a keeper looks.

    Attributes:
        poll_s: At least so often, seconds.
        jitter_s: Before each write, up to so long, so that replicas seldom collide.
        silence_s: How long an API server may be away before we are unready, seconds: others may
            withdraw their trust in what is served here no sooner than a rotation's overlap after
            the last look; half of that if None.
        patience_s: How long without a look, seconds, makes the wait for API servers begin anew; at
            least that wait itself, and two polls.
    """

    poll_s: float = 30.0
    jitter_s: float = 0.5
    silence_s: float | None = None
    patience_s: float = 5.0


class Keeper:
    """Keeps one program's certificate.

    Args:
        cluster: Where the Secret and the bundles are.
        context: What the program listens with.
        settings: Names and times.
        metrics: What is counted.
        recorder: Writes events about the Secret; None for none.
        pace: How often to look.
        monotonic: Seconds that no clock change touches.
        chance: Source of jitter.
    """

    def __init__(  # noqa: PLR0913 - each part may be another's
        self,
        cluster: Cluster,
        context: HotContext,
        settings: RotationSettings,
        *,
        metrics: CertsMetrics,
        recorder: EventRecorder | None = None,
        pace: Pace | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._cluster = cluster
        self._context = context
        self._settings = settings
        self._metrics = metrics
        self._recorder = recorder
        self._pace = pace or Pace()
        wait_s = settings.propagation.total_seconds()
        self._patience_s = max(wait_s, 2 * self._pace.poll_s, self._pace.patience_s)
        self._monotonic = monotonic
        self._chance = chance or random.Random()
        self._changed = asyncio.Event()
        self._sight = Sight()
        self._look: Look | None = None
        self._looked_s: float | None = None
        self.trust: tuple[Bundle, ...] = ()
        """What API servers trusted at the last look, by each of our configurations' entries; what
        they would be told to trust where there is no configuration yet."""
        self.serving = asyncio.Event()
        """Set once there is a certificate to serve."""

    async def run(self) -> None:
        """Look, decide and act until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, namespace, name in self._cluster.place.watched:
                group.create_task(self._follow(kind, namespace, name), name=f"watch {name}")
            group.create_task(self._keep(), name="certificates")

    async def turn(self) -> Step:
        """Look once, swap if that is right, and take one step.

        Raises:
            ApiError: The API server refuses or does not answer.
        """
        look = await self._cluster.look(self._sight.served)
        situation = self._see(look)
        step = next_step(situation)
        if isinstance(step, Wait | Rest):
            self._metrics.count(step.act, Outcome.DONE)
        else:
            await self._do(step, look)
        return step

    async def _do(self, step: Step, look: Look) -> None:
        try:
            outcome = await self._cluster.carry_out(step, look, self._settings)
        except GpuSharingError:
            self._metrics.count(step.act, Outcome.FAILED)
            raise
        self._tell(step, outcome, look)
        self._metrics.count(step.act, outcome)

    def unready_reason(self) -> str:
        """Why callers would not accept what is served; empty where they do.

        An API server that is away makes nobody unready until so much time has passed that
        others may have withdrawn their trust in what is served here.
        """
        served, look = self._sight.served, self._look
        if served is None or look is None or self._looked_s is None:
            return _unserved(look, self.trust)
        faults = find_faults(served.leaf, now=self._cluster.clock(), names=self._settings.names[:1])
        if faults:
            return str(faults[0])
        if not _all_trust(fingerprint(served.authority), self.trust):
            return "the webhook configurations do not trust what is served yet"
        silence_s = self._monotonic() - self._looked_s
        bearable_s = self._pace.silence_s
        if bearable_s is None:
            bearable_s = self._settings.overlap.total_seconds() / 2
        if silence_s > bearable_s:
            return f"the certificates' Secret could not be read for {silence_s:.0f} s"
        return ""

    def _see(self, look: Look) -> Situation:
        """Take a look into memory, and serve what is best now."""
        sight = self._sight.look(
            look.stored,
            look.configurations,
            at_s=self._monotonic(),
            cached=look.cached,
            patience_s=self._patience_s,
        )
        situation = Situation(
            stored=look.stored,
            configurations=look.configurations,
            sight=sight,
            now=self._cluster.clock(),
            settings=self._settings,
        )
        served = choose_served(situation)
        if served is not None and served is not sight.served and self._swap(served, situation):
            sight = replace(sight, served=served)
        self._sight, self._looked_s, self._look = sight, sight.at_s, look
        self.trust = live_bundles(look.configurations) or (look.stored.trusted,)
        self._metrics.note(look.stored, look.configurations)
        return replace(situation, sight=sight)

    def _swap(self, served: Served, situation: Situation) -> bool:
        try:
            self._context.swap(
                served.leaf,
                names=[situation.name],
                authorities=situation.stored.trusted,
                subject="tls.crt",
            )
        except CertificateError as error:
            self._metrics.count_swap_failure(error.fault)
            _log.warning("certificate was not taken into service", error=str(error))
            return False
        self._metrics.note_served(served.leaf)
        self.serving.set()
        _log.info(
            "certificate was taken into service",
            serial=f"{served.leaf.certificate.serial_number:x}",
            not_after=served.leaf.not_after.isoformat(),
        )
        return True

    def _tell(self, step: Step, outcome: Outcome, look: Look) -> None:
        if outcome is not Outcome.DONE:
            _log.debug("somebody else was faster", act=step.act.value)
            return
        _log.info("certificate step was taken", act=step.act.value, reason=step.why)
        reason, warning = _EVENTS.get(step.act, ("", False))
        if self._recorder is not None and reason:
            about = look.secret or {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": self._cluster.place.secret,
                    "namespace": self._cluster.place.namespace,
                },
            }
            self._recorder.record(about, reason, step.why, warning=warning)

    async def _keep(self) -> None:
        complaint = ""
        waits = Backoff().waits(self._chance)
        while True:
            self._changed.clear()
            try:
                step = await self.turn()
            except GpuSharingError as error:
                if str(error) != complaint:
                    _log.warning("certificates could not be looked after", error=str(error))
                complaint = str(error)
                await asyncio.sleep(next(waits))
                continue
            complaint, waits = "", Backoff().waits(self._chance)
            await self._pause(step)

    async def _pause(self, step: Step) -> None:
        """Until the next look: soon after a write, else when something changes or is due."""
        if isinstance(step, Wait | Rest):
            often_s = self._pace.poll_s
            if isinstance(step, Wait):
                # An API server that is behind is to be met before the wait is over.
                often_s = min(often_s, self._settings.propagation.total_seconds() / _LOOKS)
                often_s = min(often_s, step.duration.total_seconds())
            try:
                async with asyncio.timeout(max(often_s, 0.0)):
                    await self._changed.wait()
            except TimeoutError:
                pass
        await asyncio.sleep(self._chance.uniform(0.0, self._pace.jitter_s))

    async def _follow(self, kind: Kind, namespace: str, name: str) -> None:
        """Notice changes of one object; what they are is read again in any case."""
        selector = f"metadata.name={name}"
        while True:
            try:
                events = self._cluster.client.watch(
                    kind, namespace=namespace, field_selector=selector
                )
                async with aclosing(events):
                    async for event in events:
                        if event.type is EventType.MODIFIED and kind is not SECRETS:
                            await self._mend(read_configuration(kind.kind, event.item))
                        self._changed.set()
            except GpuSharingError as error:
                # The timer looks all the same, and reports what is wrong.
                _log.debug("watch ended", kind=kind.kind, name=name, error=str(error))
            await asyncio.sleep(_WATCH_PAUSE_S * (1 + self._chance.random()))

    async def _mend(self, configuration: Configuration) -> None:
        """Put back at once what somebody took out of a bundle: calls fail until it is there.

        The next look does the same with more care and a pause; this goes by the last look, as
        long as that is so recent that no certificate can have come into service since.
        """
        served, look = self._sight.served, self._look
        if served is None or look is None or self._looked_s is None:
            return
        age_s = self._monotonic() - self._looked_s
        if age_s > self._settings.propagation.total_seconds():
            return
        if _all_trust(fingerprint(served.authority), live_bundles((configuration,))):
            return
        step = Patch(
            act=Act.REPAIR,
            bundle=look.stored.trusted,
            configurations=(configuration,),
            why="others took out what is in use",
        )
        await self._do(step, look)


def _unserved(look: Look | None, trust: tuple[Bundle, ...]) -> str:
    """Why nothing is served."""
    if look is not None and look.stored.current is not None:
        voucher = voucher_print(look.stored.current, look.stored.trusted)
        if not _all_trust(voucher, trust):
            return "the webhook configurations do not trust the certificate yet"
    return "there is no certificate to serve yet"


def _all_trust(authority: str, bundles: tuple[Bundle, ...]) -> bool:
    """Whether every bundle holds an authority, by its fingerprint."""
    return all(authority in bundle.fingerprints for bundle in bundles)
