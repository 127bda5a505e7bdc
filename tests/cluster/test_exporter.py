"""An exporter that lists PodResources all the time costs no pod its share, and gives none twice.

Kubelets forget what they assign while somebody lists and a pod has ended meanwhile
(kubernetes#137534). Here it happens when it happens; ``test_lost_count`` has it happen.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import grpc
import pytest

from sharing.plugin.proto import podresources_pb2 as api
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub
from tests.cluster.box.box import Box
from tests.cluster.needs import Tier
from tests.support.crowd import come_and_go
from tests.support.trials import Trial

pytestmark = [
    pytest.mark.cluster(Tier.NODE.value),
    pytest.mark.asyncio(loop_scope="session"),
]

PODS: Final = 300 if os.environ.get("GPU_SHARING_PATIENT") == "1" else 60
_PAUSE_S: Final = 0.015
"""A kubelet answers a hundred calls a second at most, and others ask too."""


@pytest.mark.timeout(120 + 3 * PODS)
async def test_nothing_is_held_twice_however_often_an_exporter_lists(
    trial: Trial, own_box: Box
) -> None:
    await trial.counts_agree(lambda offered: len(offered) == 7)
    over = asyncio.Event()
    exporter = asyncio.create_task(list_all_the_time(own_box.pod_resources, over))
    try:
        crowd = await come_and_go(trial, PODS, seed=11)
    finally:
        over.set()
        lists = await exporter

    assert lists > PODS
    assert crowd.failed == {}
    assert crowd.ran > PODS / 2
    assert await trial.held() == {}


async def list_all_the_time(socket: Path, over: asyncio.Event) -> int:
    """List until it is over; how many lists there were."""
    lists = 0
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = PodResourcesListerStub(channel)
        while not over.is_set():
            try:
                await stub.List(api.ListPodResourcesRequest(), timeout=5)
                lists += 1
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error  # noqa: PT017 - others list too
            await asyncio.sleep(_PAUSE_S)
    return lists
