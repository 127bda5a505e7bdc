"""Registration, by section 1 of the device plugin contract and two kubelet generations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from embedded.errors import EmbeddedError
from embedded.kubelet.kubelet import Kubelet
from embedded.kubelet.settings import Settings
from sharing.plugin.proto import deviceplugin_pb2 as api
from sharing.plugin.proto.deviceplugin_pb2_grpc import RegistrationStub
from tests.support.kubelet_bench import SHARE, Bench, bench, pod
from tests.support.kubelet_plugin import ScriptedPlugin, register


async def refusal(folder: Path, resource: str, endpoint: str, version: str = "v1beta1") -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(folder, resource, endpoint, version=version)
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    return str(caught.value.details())


async def test_the_plugin_is_dialled_back_before_register_returns(node: Bench) -> None:
    folder = node.kubelet.settings.plugin_folder
    plugin = ScriptedPlugin(folder, SHARE, {"a": "Healthy"}, pre_start_required=True)
    await plugin.serve()
    await register(folder, SHARE, plugin.socket)
    plugins = node.kubelet._plugins
    assert plugins is not None
    endpoint = plugins.endpoint(SHARE)
    assert endpoint is not None
    assert endpoint.options.pre_start_required, "the answer counts, not what Register carried"
    await node.until_offer(1, 1)
    await plugin.close()


@pytest.mark.parametrize(
    ("resource", "version", "message"),
    [
        (SHARE, "v1alpha1", 'Supported version is "v1beta1"'),
        ("gpu", "v1beta1", 'the ResourceName "gpu" is invalid'),
        ("kubernetes.io/gpu", "v1beta1", "is invalid"),
        ("requests.gpu.sharing/mps-1of4", "v1beta1", "is invalid"),
        ("gpu.sharing/" + "x" * 64, "v1beta1", "is invalid"),
    ],
)
async def test_a_registration_that_cannot_be_is_refused_with_the_reason(
    node: Bench, resource: str, version: str, message: str
) -> None:
    assert message in await refusal(
        node.kubelet.settings.plugin_folder, resource, "x.sock", version
    )


async def test_a_socket_that_nobody_serves_fails_after_the_dial_timeout(short_dir: Path) -> None:
    async with bench(short_dir, dial_timeout_s=0.2) as node:
        said = await refusal(node.kubelet.settings.plugin_folder, SHARE, "nobody.sock")
    assert "failed to dial device plugin with socketPath" in said


async def test_the_same_socket_cannot_register_twice(node: Bench) -> None:
    plugin = await node.plugin("a")
    said = await refusal(node.kubelet.settings.plugin_folder, SHARE, plugin.socket)
    assert said.startswith("device plugin already connected")


async def test_the_newest_registration_wins_and_the_old_ones_end_changes_nothing(
    node: Bench,
) -> None:
    old = await node.plugin("a b")
    new = await node.plugin("c d e")
    await old.show(x="Healthy")
    await old.close()
    await old.streams_ended.wait()
    # An allocation through the new one, after the old one's end was seen.
    await node.run(pod("p", shares=1))
    assert new.allocated
    assert not old.allocated
    await node.until_offer(3, 3)
    assert new.streams == 1


async def test_an_old_kubelet_cuts_the_new_plugin_when_the_old_connection_ends(
    short_dir: Path,
) -> None:
    async with bench(short_dir, keyed_by_resource=True) as node:
        old = await node.plugin("a b")
        new = await node.plugin("c d e")
        await old.close()
        # kubernetes#121994: allocatable 0 although the plugin is well; it sees its stream end.
        await node.until_offer(3, 0)
        async with asyncio.timeout(10):
            await new.streams_ended.wait()
        await register(node.kubelet.settings.plugin_folder, SHARE, new.socket)
        await node.until_offer(3, 3)


async def test_a_start_deletes_sockets_and_nothing_else(node: Bench) -> None:
    folder = node.kubelet.settings.plugin_folder
    plugin = await node.plugin("a")
    (folder / "note.txt").write_text("x")
    await node.kubelet.stop()
    assert (folder / plugin.socket).is_socket()
    await node.kubelet.start()
    assert not (folder / plugin.socket).exists()
    assert (folder / "kubelet.sock").is_socket()
    assert (folder / "note.txt").exists()
    assert (folder / "kubelet_internal_checkpoint").exists()
    assert (folder / "DEPRECATION").read_bytes() == b""


async def test_several_resources_live_side_by_side(node: Bench) -> None:
    names = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "team-a.gpu.sharing/mps-1of4")
    for count, name in enumerate(names, start=1):
        await node.plugin(" ".join(f"d{n}" for n in range(count)), resource=name)
    for count, name in enumerate(names, start=1):
        await node.until_offer(count, count, name)


async def test_a_folder_too_deep_for_sockets_is_refused(node: Bench) -> None:
    settings = Settings(name="deep", root=Path("/tmp") / ("x" * 100))
    with pytest.raises(EmbeddedError, match="too long; expected at most 107 bytes"):
        Kubelet(node.client, settings)


async def test_register_survives_garbage_in_the_endpoint(short_dir: Path) -> None:
    async with bench(short_dir, dial_timeout_s=0.1) as node:
        for endpoint in ("", "..", "a" * 300, "\u0000"):
            await refusal(node.kubelet.settings.plugin_folder, SHARE, endpoint)
        address = f"unix:{node.kubelet.settings.plugin_folder}/kubelet.sock"
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await RegistrationStub(channel).Register(api.RegisterRequest(), timeout=5)
        await node.plugin("a")
