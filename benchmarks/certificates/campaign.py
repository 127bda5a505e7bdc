"""The whole campaign: phases, each with its own counts, under one load."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.certificates import events
from benchmarks.certificates.counts import failures
from benchmarks.certificates.cpu import used
from benchmarks.certificates.kills import POINTS, Kills
from benchmarks.certificates.load import Seen
from benchmarks.certificates.times import ASKED, BRIEF, SHORT_LIVED, UNHURRIED, Times
from benchmarks.certificates.wallclock import WallClock

if TYPE_CHECKING:
    from benchmarks.certificates.load import Load
    from benchmarks.certificates.scene import Scene

Work = Callable[[], Awaitable[dict[str, Any]]]

_SETTLE_S: Final = 0.5
"""After the end of a phase: what it left under way belongs to it."""
_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much happens."""

    rotations: int
    """By themselves, of certificates that live short."""
    rolls: int
    """Rolling restarts of two replicas, and as many of three."""
    jumpers: tuple[int, ...]
    """The clocks of so many nodes go a day forward, then back to a day ago, then right."""
    deletions: int
    emptyings: int
    restarts: int
    """Of API server and etcd each, half of the former by kill -9."""
    all_rotations: int
    """At the end there were at least so many in all."""
    kill_points: tuple[str, ...]
    """At each a replica is killed."""
    kill_counts: tuple[int, ...]
    """Of how many."""
    rate: float
    least_rate: float
    """Fewer reviews a second than this are no proof."""
    connections: int
    short_lived: Times
    """Where certificates are renewed by themselves."""
    asked: Times
    """Where their renewal is asked for."""
    waits_for_ends: bool = True
    """Whether replicas that were replaced may take the time that they need to end."""


FULL: Final = Size(
    rotations=20, rolls=5, jumpers=(1, 3), deletions=3, emptyings=10, restarts=2,
    all_rotations=50, kill_points=tuple(POINTS), kill_counts=(2, 1), rate=230.0, least_rate=200.0,
    connections=48, short_lived=SHORT_LIVED, asked=UNHURRIED,
)  # fmt: skip
QUICK: Final = Size(
    rotations=1, rolls=1, jumpers=(3,), deletions=1, emptyings=2, restarts=1,
    all_rotations=5, kill_points=("before write promote",), kill_counts=(2,), rate=110.0,
    least_rate=50.0, connections=24, short_lived=BRIEF, asked=ASKED, waits_for_ends=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one phase came to.

    Attributes:
        name: What happened in it.
        replicas: How many served.
        took_s: Its length.
        seen: What callers saw.
        counted: What the API server counted.
        extra: What the phase itself measured.
        ticks: What API server, etcd and the callers used of a processor.
    """

    name: str
    replicas: int
    took_s: float
    seen: Seen
    counted: Counter[str]
    extra: dict[str, Any]
    ticks: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Reviews that failed by the API server's own counters."""
        return failures(self.counted)

    @property
    def reviews(self) -> int:
        """Reviews that were answered, by the API server's own counters."""
        return self.counted["code 200"]

    @property
    def up_s(self) -> float:
        """How long there was an API server to call."""
        return float(max(self.took_s - self.extra.get("away_s", 0.0), 0.1))


@dataclass(slots=True, kw_only=True)
class Campaign:
    """The phases; ``run`` does all."""

    scene: Scene
    folder: Path
    size: Size
    say: Callable[[str], None]
    done: Callable[[], None]
    """Called after each phase."""
    phases: list[Phase] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    load: Load = field(init=False)
    clocks: list[WallClock] = field(default_factory=list)
    """Of the nodes: each replica that replaces another one stands under one."""

    async def run(self, only: Collection[str] = ()) -> None:
        """Everything, one after another, or some phases by their names."""
        scene, size = self.scene, self.size
        self.load = scene.load(rate=size.rate, connections=size.connections)
        for number in range(3):
            home = self.folder / f"clock-{number}"
            home.mkdir()
            self.clocks.append(WallClock(home))
        for name, work in self._works().items():
            if only and name not in only:
                continue
            if name == "many rotations" and self.rotations >= size.all_rotations:
                continue
            scene.times = size.short_lived if name == "rotations" else size.asked
            if missing := 2 - len(scene.serving()):
                await scene.start_ready(missing)
            await self._phase(name, work)
        if not only or "kills" in only:
            await self._kill()
        if size.waits_for_ends:
            await scene.all_buried()

    def _works(self) -> dict[str, Work]:
        return {
            "rotations": self._rotations,
            "rolling restarts": self._rolls,
            "a third replica": self._third,
            "rolling restarts of three": self._rolls,
            "clock jumps": self._jumps,
            "Secret deleted": self._deletions,
            "API server restarts": self._api_restarts,
            "etcd restarts": self._etcd_restarts,
            "bundles emptied": self._emptyings,
            "many rotations": self._rest,
        }

    async def _kill(self) -> None:
        """Without load: whoever is killed takes the reviews along that it was about to answer."""
        self.scene.times = ASKED
        kills = Kills(scene=self.scene, trigger=self.folder / "arm", done=self.kills)
        for count in self.size.kill_counts:
            await kills.take_over(count)
            await kills.all(self.size.kill_points)
            self.say(f"killed one of {count} at {len(self.size.kill_points)} points")
            self.done()

    async def _phase(self, name: str, work: Work) -> None:
        scene, loop = self.scene, asyncio.get_running_loop()
        await scene.counts.read()
        before, began_s, cost = scene.counts.total, loop.time(), self._cost()
        self.load.start()
        extra = await work()
        took_s = loop.time() - began_s
        seen = await self.load.stop()
        await asyncio.sleep(_SETTLE_S)
        await scene.counts.read()
        counted = scene.counts.total - before
        phase = Phase(
            name=name, replicas=len(scene.serving()), took_s=took_s, seen=seen, counted=counted,
            extra=extra, ticks=self._cost() - cost,
        )  # fmt: skip
        self.phases.append(phase)
        self.done()
        self.say(
            f"{name}: {took_s:.0f} s, {phase.reviews} reviews "
            f"({phase.reviews / phase.up_s:.0f}/s), {phase.failed} failed {extra or ''}"
        )

    def _cost(self) -> Counter[str]:
        return used({**self.scene.plane.pids(), "callers": os.getpid()})

    @property
    def rotations(self) -> int:
        """How many certificates there were until now, the first one not counted."""
        return len(self.scene.observer.served) - 1

    async def _rotations(self) -> dict[str, Any]:
        await events.rotate_by_themselves(self.scene, self.size.rotations)
        return {"rotations": self.size.rotations}

    async def _rolls(self) -> dict[str, Any]:
        async with events.rotating(self.scene) as count:
            for _ in range(self.size.rolls):
                await events.roll_all(self.scene, self.clocks)
        return {"rolls": self.size.rolls, "rotations": count[0]}

    async def _third(self) -> dict[str, Any]:
        await self.scene.start_ready(environment=self.clocks[2].environment)
        await self.scene.rotate()
        return {}

    async def _jumps(self) -> dict[str, Any]:
        """First one node's clock is wrong, then all nodes' are."""
        if not any(phase.name.startswith("rolling") for phase in self.phases):
            await events.roll_all(self.scene, self.clocks)
        for jumpers in self.size.jumpers:
            for days in (1, -1, 0):
                await events.jump(self.scene, self.clocks[:jumpers], days)
        return {"jumps": 3 * len(self.size.jumpers)}

    async def _deletions(self) -> dict[str, Any]:
        for _ in range(self.size.deletions):
            await events.delete_secret(self.scene)
        return {"deletions": self.size.deletions}

    async def _api_restarts(self) -> dict[str, Any]:
        away_s = 0.0
        for number in range(self.size.restarts):
            away_s += await events.restart_api_server(self.scene, self.load, kill=number % 2 == 0)
        return {"restarts": self.size.restarts, "away_s": round(away_s, 1)}

    async def _etcd_restarts(self) -> dict[str, Any]:
        away_s = 0.0
        for _ in range(self.size.restarts):
            away_s += await events.restart_etcd(self.scene)
        return {"restarts": self.size.restarts, "away_s": round(away_s, 1)}

    async def _emptyings(self) -> dict[str, Any]:
        took_s = []
        for _ in range(self.size.emptyings):
            took_s.append(await events.empty_bundles(self.scene))
            await asyncio.sleep(_PAUSE_S)
        return {"emptyings": len(took_s), "longest_ms": round(1000 * max(took_s), 1)}

    async def _rest(self) -> dict[str, Any]:
        missing = max(self.size.all_rotations - self.rotations, 0)
        await events.rotate(self.scene, missing)
        return {"rotations": missing}
