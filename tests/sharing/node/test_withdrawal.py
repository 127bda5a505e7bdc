"""What is withdrawn is answered for until the kubelet has agreed, then no more."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from benchmarks.serving.client import PluginClient
from tests.support.agent_bench import QUICK, node_bench
from tests.support.plugin_waiting import eventually

SLICES = "gpu.sharing/timeslice-1of4"


async def test_an_admission_that_meets_a_withdrawal_does_not_fail_its_pod() -> None:
    """The kubelet chose a device before it read the list without it; an error would be final."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_controller()
        await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
        await node.start_agent(tempo=replace(QUICK, admission_s=2.0))
        await node.until_allocatable({SLICES: 4})
        (device_id, *_) = sorted(node.kubelet.table.get(SLICES).all)
        async with PluginClient.of(node, SLICES) as kubelet:
            await node.layout({"gpus": "all", "mode": "exclusive"})
            await eventually(lambda: not node.kubelet.table.get(SLICES).all)

            assert await kubelet.allocate(device_id) > 0

            await node.until_allocatable({"nvidia.com/gpu": 1})
            with pytest.raises(grpc.aio.AioRpcError):
                await kubelet.allocate(device_id)
