"""What happens to the certificates and to those who use them; each returns when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from benchmarks.certificates.observer import bundles_of
from benchmarks.certificates.replica import NAMESPACE
from certs.cluster import Cluster, Place
from sharing.cluster.client import PatchType
from sharing.cluster.kind import MUTATING_WEBHOOKS, SECRETS
from tests.cluster.controlplane import APISERVER, ETCD
from tests.cluster.waiting import eventually

if TYPE_CHECKING:
    from benchmarks.certificates.load import Load
    from benchmarks.certificates.scene import Scene
    from benchmarks.certificates.wallclock import WallClock

DAY_S: Final = 86_400
_CONFIGURATION: Final = "gpu-sharing"


async def ask(scene: Scene) -> None:
    """Ask for a rotation and go."""
    await Cluster(scene.admin, Place()).ask(f"asked-{asyncio.get_running_loop().time()}")


def in_background(work: Awaitable[Any], name: str) -> asyncio.Future[Any]:
    """Something that goes on meanwhile, to be awaited later."""
    task = asyncio.ensure_future(work)
    if isinstance(task, asyncio.Task):
        task.set_name(name)
    return task


async def rotate(scene: Scene, times: int) -> None:
    """Ask for rotations, one after another."""
    for _ in range(times):
        await scene.rotate()


async def rotate_by_themselves(scene: Scene, times: int) -> None:
    """Wait until certificates that live short were replaced so often."""
    seen = {(await scene.stored()).current}

    async def look() -> bool:
        seen.add((await scene.stored()).current)
        return len(seen) > times

    await eventually(f"{times} rotations", look, timeout_s=120.0 * times)


async def roll_all(scene: Scene, clocks: Sequence[WallClock] = ()) -> None:
    """One rolling restart: replace each replica once, by one under a clock if there is one."""
    for number, old in enumerate(scene.serving()):
        under = clocks[number].environment if number < len(clocks) else None
        await scene.roll(old, environment=under)


@asynccontextmanager
async def rotating(scene: Scene) -> AsyncIterator[list[int]]:
    """Has one rotation after another go on meanwhile; counts them in the list's one number."""
    count = [0]

    async def again() -> None:
        while True:
            await scene.rotate()
            count[0] += 1

    task = asyncio.create_task(again(), name="rotations")
    try:
        yield count
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def jump(scene: Scene, clocks: list[WallClock], days: int) -> None:
    """Put clocks forward or back under running replicas, or right, and have one rotation."""
    for clock in clocks:
        clock.set(days * DAY_S)
    await scene.rotate()


async def delete_secret(scene: Scene) -> None:
    """Delete the Secret; it comes back, and then another certificate does."""
    before = (await scene.stored()).current
    await scene.admin.delete(SECRETS, Place().secret, namespace=NAMESPACE)

    async def look() -> bool:
        now = await scene.stored()
        return now.current not in {None, before} and now.next is None

    await eventually("the Secret is back and another certificate in it", look, timeout_s=240)


async def empty_bundles(scene: Scene) -> float:
    """Empty each caBundle, as a deployment tool does; seconds until all are whole again."""
    item = await scene.admin.get(MUTATING_WEBHOOKS, _CONFIGURATION)
    count = len(item["webhooks"])
    path = "/webhooks/{}/clientConfig/caBundle"
    patch = [{"op": "remove", "path": path.format(at)} for at in range(count)]
    with scene.observer.excused():
        began_s = asyncio.get_running_loop().time()
        await scene.admin.patch(MUTATING_WEBHOOKS, _CONFIGURATION, patch, patch_type=PatchType.JSON)
        while not all(bundles_of(await scene.admin.get(MUTATING_WEBHOOKS, _CONFIGURATION))):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return asyncio.get_running_loop().time() - began_s


async def restart_api_server(scene: Scene, load: Load, *, kill: bool) -> float:
    """Restart the API server, in order or by kill -9; for how long it was away, seconds."""
    await scene.counts.read()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    if not kill:
        # Who is told to end is no longer sent anybody; what is under way is answered.
        load.hold()
    await asyncio.to_thread((scene.plane.kill if kill else scene.plane.stop), APISERVER)
    load.hold()
    await asyncio.to_thread(scene.plane.start, APISERVER)
    load.go_on()
    away_s = loop.time() - began_s
    await scene.rotate()
    return away_s


async def restart_etcd(scene: Scene) -> float:
    """Kill etcd and start it on the same data; for how long nothing was stored, seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.to_thread(scene.plane.restart, ETCD)
    await eventually(
        "the API server is ready", lambda: asyncio.to_thread(scene.plane.access.is_ready)
    )
    away_s = loop.time() - began_s
    await scene.rotate()
    return away_s
