"""The real kubelet's counts are ours after troubles that only a real cluster has.

What both clusters have is in ``tests/trial``. Here the control plane itself goes: etcd, the API
server while others work, the whole machine. Each test begins and ends with all shares free.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from sharing.cluster.errors import ApiError
from sharing.cluster.kind import GPU_LAYOUTS, PODS
from sharing.names import MILLI_GPU
from sharing.nvml.simulator import operate
from tests.cluster.box.box import Box
from tests.cluster.needs import Tier
from tests.cluster.waiting import eventually
from tests.support.books import read_kubelet
from tests.support.forms import IMAGE, LAYOUT
from tests.support.running import key_of, running
from tests.support.trials import PodKey, Trial

pytestmark = [
    pytest.mark.cluster(Tier.NODE.value),
    pytest.mark.asyncio(loop_scope="session"),
]

NUMBERS: Final = itertools.count()
FULL: Final = {
    "nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-3g.40gb": 2, "gpu.sharing/mps-1of2": 1,
    "gpu.sharing/mps-1of4": 2, "gpu.sharing/timeslice-1of2": 1, "gpu.sharing/timeslice-1of4": 2,
    "nvidia.com/gpu": 4,
}  # fmt: skip
SPACES: Final = ("mig", "mps", "time-slicing")


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def all_free(trial: Trial) -> AsyncIterator[None]:
    """All books agree before and after, and nothing is handed out twice meanwhile."""
    await trial.counts_agree(lambda offered: offered == FULL)
    async with trial.watched():
        yield
    await trial.counts_agree(lambda offered: offered == FULL)


def asking(namespace: str, fraction: str = "1/4") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"k{next(NUMBERS)}", "namespace": namespace,
            "annotations": {"gpu.sharing/fraction": fraction},
        },
        "spec": {"containers": [{"name": "main", "image": IMAGE}]},
    }  # fmt: skip


async def state_of(trial: Trial, key: PodKey) -> tuple[str, str, int]:
    """A pod's uid, phase and number of restarts."""
    pod = await trial.client.get(PODS, key[1], namespace=key[0])
    restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses") or ())
    return pod["metadata"]["uid"], pod["status"]["phase"], restarts


async def states_of(trial: Trial, keys: list[PodKey]) -> list[tuple[str, str, int]]:
    return [await state_of(trial, key) for key in keys]


async def test_etcd_may_be_killed_under_pods(trial: Trial, own_box: Box) -> None:
    async with running(trial, *map(asking, SPACES)) as keys:
        held, states = await trial.held(), await states_of(trial, keys)

        await asyncio.to_thread(own_box.restart, "etcd", signal.SIGKILL)

        await trial.counts_agree(lambda offered: offered == FULL)
        assert await trial.held() == held
        assert await states_of(trial, keys) == states
        async with running(trial, asking("mps", "1/2")):
            await trial.counts_agree(lambda offered: offered == FULL)


async def test_an_agent_that_starts_without_an_api_server_offers_what_was_wanted(
    trial: Trial, own_box: Box
) -> None:
    """It calls itself ready only once its GPUNode says so, which has to wait."""
    async with running(trial, *map(asking, SPACES)) as keys:
        held, states = await trial.held(), await states_of(trial, keys)
        before = (await trial.books()).kubelet.healthy
        await asyncio.to_thread(own_box.kill, "kube-apiserver")
        await trial.agent.stop(signal.SIGKILL)
        starting = asyncio.create_task(trial.agent.start())
        try:

            async def offered_again() -> bool:
                return (await read_kubelet(own_box.pod_resources)).healthy == before

            await eventually("the kubelet has every share", offered_again)
            assert await trial.held() == held
        finally:
            await asyncio.to_thread(own_box.start_program, "kube-apiserver")
            await starting

        await trial.counts_agree(lambda offered: offered == FULL)
        assert await states_of(trial, keys) == states


async def test_a_whole_machine_comes_back_with_its_books(trial: Trial, own_box: Box) -> None:
    """Control plane, node and all of our programs lose power together; disks keep what they have.

    Pods that are started before the plugins are back may fail at the kubelet; they hold nothing.
    """
    async with running(trial, *map(asking, SPACES)) as keys:
        boot_id = own_box.boot_id
        await trial.kill_webhook()
        await trial.installed.programs["controller"].stop(signal.SIGKILL)
        await trial.reboot(whole=True)
        await trial.installed.programs["controller"].start()
        await trial.start_webhook()

        assert own_box.boot_id != boot_id
        await trial.counts_agree(lambda offered: offered == FULL)

        async def those_who_run_hold() -> bool:
            phases = {key: (await state_of(trial, key))[1] for key in keys}
            runs = {key for key, phase in phases.items() if phase == "Running"}
            return {key[:2] for key in await trial.held()} == runs

        await eventually("who runs holds a share", those_who_run_hold)
    async with running(trial, *map(asking, SPACES)):
        await trial.counts_agree(lambda offered: offered == FULL)


async def test_a_device_that_is_ill_is_told_everywhere_and_comes_back(trial: Trial) -> None:
    """Capacity stays, allocatable goes, the holder runs on and reads it in its own status."""
    async with running(trial, asking("mps")) as (key,):
        state, well = await state_of(trial, key), await trial.books()
        trial.gpus(lambda machine: operate.report_xid(machine, "2", 48))
        await trial.counts_agree(lambda offered: "gpu.sharing/mps-1of4" not in offered)
        ill = await trial.books()
        assert ill.capacity["gpu.sharing/mps-1of4"] == 2
        assert well.allocatable[MILLI_GPU] - ill.allocatable[MILLI_GPU] == 1000
        await eventually("the pod reads it", lambda: health_is(trial, key, "Unhealthy"))
        assert await state_of(trial, key) == state

        await trial.kill_agent()
        await trial.counts_agree(lambda offered: "gpu.sharing/mps-1of4" not in offered)

        trial.gpus(lambda machine: operate.reset(machine, "2"))
        await trial.counts_agree(lambda offered: offered == FULL)
        await eventually("the pod reads it", lambda: health_is(trial, key, "Healthy"))
        assert await state_of(trial, key) == state


async def health_is(trial: Trial, key: PodKey, wanted: str) -> bool:
    pod = await trial.client.get(PODS, key[1], namespace=key[0])
    (container,) = pod["status"]["containerStatuses"]
    told = container.get("allocatedResourcesStatus") or ()
    return {one["health"] for each in told for one in each["resources"]} == {wanted}


async def test_a_layout_changes_while_pods_come_and_go_and_the_kubelet_dies(
    trial: Trial, own_box: Box
) -> None:
    """GPU 3 is cut anew under a crowd of pods; the kubelet is killed in the midst of it."""
    other = [
        {"gpus": "0-1", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}},
        {"gpus": "2", "mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
        {"gpus": "3", "mode": "time-slicing", "sizes": {"1of8": 8}},
        {"gpus": "rest", "mode": "exclusive"},
    ]
    over = asyncio.Event()
    crowds = [asyncio.create_task(come_and_go(trial, space, over)) for space in SPACES]
    try:
        await trial.client.patch(GPU_LAYOUTS, "all", {"spec": {"gpus": other}})
        await asyncio.to_thread(own_box.restart, "kubelet", signal.SIGKILL)
        await eventually("GPU 3 is cut anew", lambda: offers(trial, "gpu.sharing/timeslice-1of8"))
        await trial.client.patch(GPU_LAYOUTS, "all", {"spec": {"gpus": list(LAYOUT)}})
        await eventually("GPU 3 is as before", lambda: offers(trial, "gpu.sharing/timeslice-1of4"))
    finally:
        over.set()
        rounds = await asyncio.gather(*crowds)
    assert all(rounds), rounds


async def offers(trial: Trial, resource: str) -> bool:
    return resource in await trial.offered()


async def come_and_go(trial: Trial, namespace: str, over: asyncio.Event) -> int:
    """Pods one after the other until it is over; how many there were."""
    done = 0
    while not over.is_set() or not done:
        manifest = asking(namespace)
        try:
            await trial.create(manifest)
        except ApiError as error:
            assert "gpu.sharing" in error.message, error.message  # noqa: PT017 - in a helper
            await asyncio.sleep(0)
            continue
        await trial.reaches(key_of(manifest), "Running", "Failed", "Pending")
        await trial.delete(key_of(manifest))
        done += 1
    return done
