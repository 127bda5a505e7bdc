"""After each trouble the kubelet's counts are ours again, and pods keep what they hold.

The same tests on the embedded cluster and on a real node. Each begins and ends with all shares
free and offered, so that their order does not matter.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import pytest_asyncio

from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES, NAMESPACES, PODS
from sharing.nvml.simulator import operate
from tests.cluster.waiting import eventually
from tests.support.forms import IMAGE, LAYOUT
from tests.support.running import running
from tests.support.trials import PodKey, Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUMBERS = itertools.count()
FULL = {
    "nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-3g.40gb": 2, "gpu.sharing/mps-1of2": 1,
    "gpu.sharing/mps-1of4": 2, "gpu.sharing/timeslice-1of2": 1, "gpu.sharing/timeslice-1of4": 2,
    "nvidia.com/gpu": 4,
}  # fmt: skip
"""What ``forms.LAYOUT`` makes of eight GPUs."""
SPACES = ("mig", "mps", "time-slicing")


def asking(namespace: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"r{next(NUMBERS)}", "namespace": namespace,
            "annotations": {f"gpu.sharing/{key}": value for key, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "main", "image": IMAGE}]},
    }  # fmt: skip


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def all_free(trial: Trial) -> AsyncIterator[None]:
    """Everything is offered and nothing held, before and after each test."""
    await trial.counts_agree(lambda offered: offered == FULL)
    async with trial.watched():
        yield
    await trial.counts_agree(lambda offered: offered == FULL)

    async def nothing_held() -> bool:
        return await trial.held() == {}

    await eventually("nothing is held", nothing_held)


def one_of_each() -> list[dict[str, Any]]:
    return [asking(namespace, fraction="1/4") for namespace in SPACES]


async def stays(trial: Trial, keys: list[PodKey], held: Any, uids: Mapping[PodKey, str]) -> None:
    """The same pods run and hold what they held."""

    async def same() -> bool:
        return bool(await trial.held() == held)

    await eventually("everybody holds what it held", same)
    assert await uids_of(trial, keys) == uids


async def uids_of(trial: Trial, keys: list[PodKey]) -> dict[PodKey, str]:
    pods = [await trial.client.get(PODS, name, namespace=space) for space, name in keys]
    return {
        key: pod["metadata"]["uid"]
        for key, pod in zip(keys, pods, strict=True)
        if pod["status"]["phase"] == "Running"
    }


@pytest.mark.parametrize(
    "trouble", ["kill agent", "end agent", "end kubelet", "kill kubelet", "kill API server"]
)
async def test_pods_keep_their_shares_when_a_program_starts_again(
    trial: Trial, trouble: str
) -> None:
    async with running(trial, *one_of_each()) as keys:
        held, uids = await trial.held(), await uids_of(trial, keys)
        assert len(held) == len(uids) == len(keys)

        if trouble == "kill agent":
            await trial.kill_agent()
        elif trouble == "end agent":
            await trial.agent.stop()
            await trial.agent.start()
        elif trouble == "kill API server":
            await trial.restart_api_server()
        else:
            sent = signal.SIGKILL if trouble == "kill kubelet" else signal.SIGTERM
            await trial.restart_kubelet(sent)

        await trial.counts_agree(lambda offered: offered == FULL)
        await stays(trial, keys, held, uids)
        async with running(trial, asking("mps", fraction="1/2")):
            assert len(await trial.held()) == len(keys) + 1


async def test_without_the_agent_nothing_is_offered_and_pods_run_on(trial: Trial) -> None:
    async with running(trial, asking("mps", fraction="1/4")) as keys:
        uids = await uids_of(trial, keys)
        await trial.agent.stop(signal.SIGKILL)
        try:

            async def withdrawn() -> bool:
                return await trial.offered() == {}

            await eventually("nothing is offered", withdrawn)
            assert await uids_of(trial, keys) == uids
        finally:
            await trial.agent.start()


async def test_after_a_reboot_every_share_is_made_and_counted_again(trial: Trial) -> None:
    """GPUs have forgotten their MIG instances, and the agent starts after the kubelet.

    The pods of before start again, or are refused by the kubelet, which meets them before it
    meets the plugins; in neither case is anything held by nobody.
    """
    async with running(trial, *one_of_each()) as keys:
        await trial.reboot()

        await trial.counts_agree(lambda offered: offered == FULL)
        outcomes: dict[PodKey, str] = {}

        async def books_are_right() -> bool:
            outcomes.update(await outcomes_of(trial, keys))
            running_ = {key for key, outcome in outcomes.items() if outcome == "Running"}
            return {key[:2] for key in await trial.held()} == running_

        await eventually("who runs holds a share", books_are_right)
        assert set(outcomes.values()) <= {"Running", "UnexpectedAdmissionError"}, outcomes
    async with running(trial, *one_of_each()):
        assert len(await trial.held()) == len(keys)


async def outcomes_of(trial: Trial, keys: list[PodKey]) -> dict[PodKey, str]:
    """Each pod's phase, or why it failed."""
    pods = [await trial.client.get(PODS, name, namespace=space) for space, name in keys]
    return {
        key: pod["status"].get("reason") or pod["status"]["phase"]
        for key, pod in zip(keys, pods, strict=True)
    }


async def test_a_layout_changes_under_load_without_touching_who_runs(trial: Trial) -> None:
    """GPU 2 is held and keeps its layout until its pod has gone; GPU 3 changes at once."""
    other: list[Mapping[str, Any]] = [
        {"gpus": "0-1", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}},
        {"gpus": "2", "mode": "exclusive"},
        {"gpus": "3", "mode": "time-slicing", "sizes": {"1of8": 8}},
        {"gpus": "rest", "mode": "exclusive"},
    ]
    after = {"nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-3g.40gb": 2,
             "gpu.sharing/timeslice-1of8": 8, "nvidia.com/gpu": 5}  # fmt: skip
    try:
        async with running(trial, asking("mps", fraction="1/4")) as keys:
            held, uids = await trial.held(), await uids_of(trial, keys)
            await lay_out(trial, other)
            await trial.counts_agree(lambda offered: offered.get("gpu.sharing/timeslice-1of8") == 8)
            await stays(trial, keys, held, uids)
        await trial.counts_agree(lambda offered: offered == after)
    finally:
        await lay_out(trial, LAYOUT)


async def lay_out(trial: Trial, entries: Sequence[Mapping[str, Any]]) -> None:
    await trial.client.patch(GPU_LAYOUTS, "all", {"spec": {"gpus": list(entries)}})


async def test_without_the_webhook_only_pods_that_ask_for_gpus_wait(trial: Trial) -> None:
    plain = asking("mps")
    plain["metadata"]["annotations"] = {}
    await trial.kill_webhook()
    try:
        with pytest.raises(ApiError, match=r"gpu\.sharing") as refused:
            await trial.create(asking("mps", fraction="1/4"))
        async with running(trial, plain) as keys:
            assert await trial.held() == {}
            assert len(await uids_of(trial, keys)) == 1
    finally:
        await trial.start_webhook()
    assert refused.value.code == 500

    async def served() -> bool:
        await trial.client.create(PODS, asking("mps", fraction="1/4"), dry_run=True)
        return True

    await eventually("the webhook answers", served)


async def test_faulty_gpus_take_no_pod_and_the_others_go_on(trial: Trial) -> None:
    """GPU 2 reports a double-bit error and GPU 3 falls off the bus; who runs there stays."""
    lost = ("gpu.sharing/mps-", "gpu.sharing/timeslice-")
    left = {name: count for name, count in FULL.items() if not name.startswith(lost)}
    async with running(trial, asking("mps", fraction="1/4")) as keys:
        uids = await uids_of(trial, keys)
        try:
            trial.gpus(lambda machine: operate.report_xid(machine, "2", 48))
            trial.gpus(lambda machine: operate.lose(machine, "3"))
            await trial.counts_agree(lambda offered: offered == left)
            assert await uids_of(trial, keys) == uids
            async with running(trial, asking("mig", fraction="1/2")):
                assert len(await trial.held()) == 2
        finally:
            await trial.delete(*keys)
            await trial.repair()


async def test_a_gpu_that_is_reset_comes_back_by_itself(trial: Trial) -> None:
    trial.gpus(lambda machine: operate.report_xid(machine, "2", 48))
    await trial.counts_agree(lambda offered: "gpu.sharing/mps-1of4" not in offered)

    trial.gpus(lambda machine: operate.reset(machine, "2"))

    await trial.counts_agree(lambda offered: offered == FULL)


async def test_a_namespace_deleted_while_pods_start_leaves_nothing_held(trial: Trial) -> None:
    name = f"going-{next(NUMBERS)}"
    labels = {"gpu.sharing/mode": "time-slicing"}
    await trial.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    await trial.installed.ground.namespace_made(trial.client, name)
    pods = [asking(name, fraction=fraction) for fraction in ("1/2", "1/4", "1/4", "1/4")]
    await asyncio.gather(*(trial.create(each) for each in pods))

    await trial.client.delete(NAMESPACES, name)

    async def gone() -> bool:
        try:
            await trial.client.get(NAMESPACES, name)
        except NotFoundError:
            return True
        return False

    await eventually("the namespace is gone", gone, timeout_s=60)
    status = (await trial.client.get(GPU_NODES, trial.place.name))["status"]
    assert status["gpus"]
