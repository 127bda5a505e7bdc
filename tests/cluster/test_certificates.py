"""Certificates change, and so does everything around them; nobody's pod notices.

Two replicas of the webhook behind a real Service of a real API server, pods created all the while;
what failed is counted by the API server. ``python -m benchmarks.certificates`` does the same at
length.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio

from benchmarks.certificates import events
from benchmarks.certificates.counts import failures
from benchmarks.certificates.kills import Kills
from benchmarks.certificates.load import Load, Seen
from benchmarks.certificates.scene import API_FLAGS, Scene
from benchmarks.certificates.wallclock import WallClock
from sharing.cluster.kind import MUTATING_WEBHOOKS
from tests.cluster import leftovers
from tests.cluster.controlplane import ETCD, ControlPlane

pytestmark = [
    pytest.mark.cluster("control plane"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

RATE: Final = 60.0
"""A second: a load at which a test run's other tests still find a processor."""
CALLERS: Final = 16
DRAIN_S: Final = 1.5
"""The API server hears of an end within half a second here."""
KILLS: Final = (
    "after make make",
    "after patch trust",
    "before write promote",
    "before patch forget",
    "before patch repair",
    "after write heal",
)
"""Each purpose once; the benchmark kills before and after each step."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    folder = leftovers.make_folder()
    try:
        with ControlPlane(folder, api_flags=API_FLAGS) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def clock(plane: ControlPlane) -> WallClock:
    """Of the replicas' nodes."""
    home = plane.logs.parent / "clock"
    home.mkdir()
    return WallClock(home)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(plane: ControlPlane, clock: WallClock) -> AsyncIterator[Scene]:
    """Two replicas that serve; each test leaves as many, under the clock."""
    home = plane.logs.parent / "scene"
    home.mkdir()
    async with Scene(
        plane=plane, folder=home, drain_delay_s=DRAIN_S, environment=clock.environment
    ) as made:
        await made.start_ready(2)
        yield made


@asynccontextmanager
async def nothing_fails(scene: Scene) -> AsyncIterator[Load]:
    """Pods are created meanwhile, and none fails; afterwards it is looked whether any could."""
    load = scene.load(rate=RATE, connections=CALLERS)
    await scene.counts.read()
    before, seen = scene.counts.total, Seen()
    load.start()
    try:
        await _has_created(load, 10)
        yield load
        await _has_created(load, len(load.seen.times_s) + 10)
    finally:
        seen = await load.stop()
    await scene.counts.read()
    counted = scene.counts.total - before
    assert failures(counted) == 0, counted
    assert not seen.failed, seen.failed
    assert counted["code 200"] >= 20
    assert scene.observer.violations == []


async def _has_created(load: Load, count: int) -> None:
    async with asyncio.timeout(60):
        while load.seen.created < count:  # noqa: ASYNC110 - callers are many, there is no one event
            await asyncio.sleep(0.05)


async def test_rotations_fail_no_review(scene: Scene) -> None:
    # gatekeeper#1045, cert-controller#50: TLS errors after each renewal.
    before = len(scene.observer.served)
    async with nothing_fails(scene):
        await events.rotate(scene, 2)

    assert len(scene.observer.served) >= before + 2
    assert scene.observer.most_authorities <= 3


async def test_a_rolling_restart_in_the_midst_of_rotations_fails_no_review(scene: Scene) -> None:
    # kubernetes#127335, knative/pkg#1509 and #3295: SIGTERM under load, and callers saw EOF.
    async with nothing_fails(scene), events.rotating(scene):
        await events.roll_all(scene)


async def test_a_secret_that_is_deleted_comes_back_and_fails_no_review(scene: Scene) -> None:
    async with nothing_fails(scene):
        await events.delete_secret(scene)


async def test_replicas_whose_clocks_jump_by_a_day_fail_no_review(
    scene: Scene, clock: WallClock
) -> None:
    try:
        async with nothing_fails(scene):
            await events.jump(scene, [clock], 1)
            await events.jump(scene, [clock], -1)
    finally:
        clock.set(0)


async def test_an_api_server_that_is_killed_finds_the_webhook_as_before(scene: Scene) -> None:
    async with nothing_fails(scene) as load:
        await events.restart_api_server(scene, load, kill=True)


async def test_an_etcd_that_is_killed_fails_no_review(scene: Scene) -> None:
    async with nothing_fails(scene):
        await events.restart_etcd(scene)


async def test_a_bundle_that_others_empty_is_whole_again_in_a_moment(scene: Scene) -> None:
    # Until then the API server itself trusts nobody, so this is about how long.
    took_s = [await events.empty_bundles(scene) for _ in range(3)]

    assert min(took_s) < 2.0
    assert scene.observer.violations == []


async def test_what_a_replica_asks_for_is_the_cache_that_admission_goes_by(scene: Scene) -> None:
    """And not what is stored: with an etcd that answers nobody, the cache does."""
    path = MUTATING_WEBHOOKS.path(name="gpu-sharing")
    stored = await scene.admin.get(MUTATING_WEBHOOKS, "gpu-sharing")
    etcd = scene.plane.pids()[ETCD]
    os.kill(etcd, signal.SIGSTOP)
    try:
        cached = await scene.admin.request("GET", path, query={"resourceVersion": "0"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await scene.admin.request("GET", path)
    finally:
        os.kill(etcd, signal.SIGCONT)

    assert cached["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


async def test_kill_9_at_each_step_of_a_rotation_leaves_nothing_untrusted(scene: Scene) -> None:
    kills = Kills(scene=scene, trigger=scene.folder / "arm", done=[])
    await kills.take_over()

    await kills.all(KILLS)

    assert kills.done == list(KILLS)
    assert scene.observer.violations == []
    assert scene.observer.most_authorities <= 3


async def test_a_replica_that_is_ended_while_it_starts_ends_at_once(scene: Scene) -> None:
    """And in good order, however far it has come: at once, while it imports, while it reads."""
    for delay_s in (0.0, 0.3, 0.6, 0.9, 1.2, 1.5):
        one = scene.start()
        await asyncio.sleep(delay_s)  # the moment is what is tested
        one.send(signal.SIGTERM)
        status = await one.ended(timeout_s=scene.drain_delay_s + 10)
        await scene.forget(one)

        # Before Python itself runs there is nobody who could hear it.
        assert status in {0, -signal.SIGTERM}, scene.said(one)


async def test_all_that_were_replaced_ended_in_good_order(scene: Scene) -> None:
    await scene.roll(scene.serving()[0])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await asyncio.shield(asyncio.gather(scene.all_buried()))

    assert [end for end in scene.ends if end.status != 0] == []
