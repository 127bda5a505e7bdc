"""kill -9 of a replica at each step of a rotation, before its write and after it."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.certificates import events
from benchmarks.certificates.replica import point_of
from certs.step import WRITING, Act
from tests.cluster.waiting import eventually

if TYPE_CHECKING:
    from benchmarks.certificates.process import Replica
    from benchmarks.certificates.scene import Scene

Cause = Callable[["Scene"], Awaitable[Any]]

_CAUSES: Final[Mapping[Act, Cause]] = {
    Act.MAKE: events.ask,
    Act.TRUST: events.ask,
    Act.PROMOTE: events.ask,
    Act.FORGET: events.ask,
    Act.REPAIR: events.empty_bundles,
    Act.HEAL: events.delete_secret,
}
"""What has a replica take a step."""
_SIDES: Final = ("before", "after")

STEPS: Final = tuple((kind, act) for kind in WRITING for act in sorted(kind.ACTS))
POINTS: Final = {
    f"{side} {point_of(kind, act)}": _CAUSES[act] for kind, act in STEPS for side in _SIDES
}
"""Before and after each step that writes, and what leads there; a step without a cause is an error
at once."""
_DIES_S: Final = 120.0


@dataclass(slots=True, kw_only=True)
class Kills:
    """Kills replicas of a scene; all of them have to be started with ``trigger``.

    Attributes:
        scene: Where they are.
        trigger: The file that arms them; whoever dies takes it along.
        done: The points at which one died.
    """

    scene: Scene
    trigger: Path
    done: list[str]

    async def start(self, count: int) -> list[Replica]:
        """Start replicas that can be killed so, and wait until they are ready."""
        made = [self.scene.start(arm=self.trigger) for _ in range(count)]
        await self.scene.until_ready(*made)
        return made

    async def take_over(self, count: int = 2) -> None:
        """Let no replica run but some that can be killed: others would take the steps for them."""
        others = self.scene.running()
        await self.start(count)
        for one in others:
            one.send(signal.SIGKILL)
            await one.ended()
            await self.scene.forget(one)

    async def all(self, points: Sequence[str]) -> None:
        """Kill one at each of the points; the others carry on, and one more takes its place."""
        for point in points:
            await self.one(point)

    async def one(self, point: str) -> None:
        """Kill whoever reaches a point first; returns when another certificate is served.

        Where nobody is left, the next one finds what the dead one left behind.
        """
        scene = self.scene
        before = (await scene.stored()).current
        running = scene.serving()
        self.trigger.write_text(point, "ascii")
        cause = POINTS[point]
        caused = events.in_background(cause(scene), point)

        async def died() -> bool:
            return any(not one.is_running for one in running)

        await eventually(f"a replica dies {point}", died, timeout_s=_DIES_S)
        for one in running:
            if not one.is_running:
                await scene.forget(one)
        await self.start(1)
        await caused
        if cause is not events.empty_bundles:
            await self._is_rotated(before)
        self.done.append(point)

    async def _is_rotated(self, before: object) -> None:
        async def look() -> bool:
            now = await self.scene.stored()
            return now.current not in {None, before} and now.next is None

        await eventually("another certificate is current", look, timeout_s=240)
