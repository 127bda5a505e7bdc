"""Others who manage a node's GPUs: each is known by its marks, and nothing is shared with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sharing.cluster.kind import NODES
from sharing.node.foreign import foreign_plugin
from sharing.node.rivals import announced, live_plugin
from sharing.node.target import Offered
from tests.support.agent_bench import NodeBench, node_bench
from tests.support.kubelet_plugin import ScriptedPlugin

GPU = "GPU-4f1435b6-d69b-59b5-828a-c09367ef9528"


@contextmanager
def listening(*paths: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()
        yield


@pytest.mark.parametrize(
    ("path", "beside", "who", "remedy"),
    [
        (
            "device-plugins/nvidia-gpu.sock",
            (),
            "NVIDIA's device plugin",
            "nvidia.com/gpu.deploy.device-plugin=false",
        ),
        (
            "device-plugins/nvidia-mig-1g.10gb.sock",
            (),
            "NVIDIA's device plugin",
            "nvidia.com/gpu.deploy.device-plugin=false",
        ),
        (
            "device-plugins/nvidia-gpu.sock",
            ("hami.io/node-nvidia-register",),
            "HAMi's device plugin",
            "gpu=on",
        ),
        ("device-plugins/aliyungpushare.sock", (), "Aliyun's gpushare", "gpushare=true"),
        ("plugins/gpu.nvidia.com/dra.sock", (), "NVIDIA's DRA driver", "kubelet plugin off"),
    ],
)
def test_a_live_socket_tells_who_it_is_and_what_to_do(
    short_dir: Path, path: str, beside: tuple[str, ...], who: str, remedy: str
) -> None:
    folder = short_dir / "device-plugins"
    with listening(short_dir / path):
        said = live_plugin(folder, beside)
        assert said.startswith(who)
        assert Path(path).name in said
        assert remedy in said

    assert live_plugin(folder, beside) == ""  # the socket file is still there, dead


def test_our_own_sockets_and_the_kubelets_are_no_rivals(short_dir: Path) -> None:
    with listening(short_dir / "kubelet.sock", short_dir / "gpu-sharing-gpu-1.sock"):
        assert live_plugin(short_dir) == ""


@pytest.mark.parametrize(
    ("resource", "device_id", "rival"),
    [
        ("volcano.sh/vgpu-number", f"{GPU}-0", True),
        ("nvidia.com/gpu.shared", f"{GPU}::3", True),
        ("aliyun.com/gpu-mem", f"{GPU}-_-7", True),
        ("nvidia.com/gpu", GPU, False),
        ("gpu.sharing/timeslice-1of4", f"{GPU}::0", False),
        ("team-a.gpu.sharing/mps-1of2", f"{GPU}::0", False),
        ("nvidia.com/mig-1g.10gb", f"{GPU}::1g.10gb-0", False),
        ("rdma/hca", "mlx5_0", False),
        ("amd.com/gpu", "0000:0c:00.0", False),
    ],
)
def test_a_resource_of_somebody_elses_with_our_gpus_is_a_rival_whatever_its_name(
    resource: str, device_id: str, rival: bool
) -> None:
    said = foreign_plugin([Offered(resource, device_id)], [GPU])

    assert bool(said) is rival
    assert not rival or resource in said


def test_what_is_announced_is_told_before_it_comes() -> None:
    assert announced({}) == ()
    assert announced({"nvidia.com/gpu.deploy.device-plugin": "false"}) == ()
    said = announced(
        {"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/mps.capable": "true"}
    )
    assert ["set it to false" in said[0], "mps-control-daemon=false" in said[1]] == [True, True]


async def ready_message(node: NodeBench, words: str) -> str:
    status = await node.until_status(
        lambda s: any(one.type == "Ready" and words in one.message for one in s.conditions)
    )
    return next(one.message for one in status.conditions if one.type == "Ready")


async def test_a_plugin_that_offers_our_gpus_by_another_name_stops_us_until_it_is_gone() -> None:
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent()
        await node.until_allocatable({"nvidia.com/gpu": 1})
        uuid = node.status.gpus[0].uuid

        rival = ScriptedPlugin(
            node.settings.plugin_dir, "volcano.sh/vgpu-number", {f"{uuid}-0": "Healthy"}
        )
        async with rival:
            said = await ready_message(node, "volcano.sh/vgpu-number")
            assert "handed out twice" in said
            await node.until_allocatable({"volcano.sh/vgpu-number": 1})
        await node.until_allocatable({"nvidia.com/gpu": 1})


async def test_hamis_plugin_is_called_by_its_name() -> None:
    async with node_bench("1xH100-80GB") as node:
        mark = {"metadata": {"annotations": {"hami.io/node-nvidia-register": "GPU-1,10,…"}}}
        await node.client.patch(NODES, "n1", mark)
        with listening(node.settings.plugin_dir / "nvidia-gpu.sock"):
            await node.start_agent(until_ready=False)
            assert "HAMi's device plugin" in await ready_message(node, "handed out twice")
            assert node.allocatable() == {}
