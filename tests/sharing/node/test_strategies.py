"""What a container gets by each strategy, and that its own variables take nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.cluster.kind import PODS
from sharing.plugin.allocation import VOLUME_ROOT
from sharing.plugin.binding import EditSettings
from sharing.plugin.settings import AnswerSettings, Strategy
from tests.support.agent_bench import NodeBench, node_bench

GREEDY = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


async def greedy_pod(node: NodeBench) -> None:
    """A pod with a whole GPU that names all GPUs in variables of its own."""
    amounts = {"nvidia.com/gpu": "1"}
    container: dict[str, Any] = {
        "name": "main", "image": "test.local/busybox:1",
        "env": [{"name": name, "value": value} for name, value in GREEDY.items()],
        "resources": {"limits": amounts, "requests": amounts},
    }  # fmt: skip
    await node.client.create(PODS, {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [container]},
    })  # fmt: skip
    await node.until(node.pods, lambda: node.phase("greedy") == "Running", lambda: "not running")


@pytest.mark.parametrize("strategy", [Strategy.CDI_CRI, Strategy.VOLUME_MOUNTS])
async def test_a_pods_own_variables_reach_no_other_gpu(strategy: Strategy) -> None:
    answers = AnswerSettings(strategy=strategy, edits=EditSettings(simulated=True))
    async with node_bench("4xH100-80GB") as node:
        await node.start_agent(answers=answers)
        await node.until_allocatable({"nvidia.com/gpu": 4})
        await greedy_pod(node)
        view = node.kubelet.view("default", "greedy", "main")
        assert view is not None
        env = dict(view.env)
        uuid = env["GPU_SHARING_DEVICES"]
        number = [gpu.uuid for gpu in node.machine().gpus].index(uuid)
        gpus = [one.path for one in view.nodes if one.path.removeprefix("/dev/nvidia").isdigit()]
        assert set(gpus) <= {f"/dev/nvidia{number}"}
        if strategy is Strategy.CDI_CRI:
            assert gpus == [f"/dev/nvidia{number}"]
            assert env["NVIDIA_VISIBLE_DEVICES"] == uuid
            assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        else:
            # The variable is the pod's; the runtime is told to look at mounts alone.
            named = {one.container_path for one in view.mounts if VOLUME_ROOT in one.container_path}
            assert named == {f"{VOLUME_ROOT}/{uuid}"}
