"""Serving share classes to a kubelet over real sockets: appear, change, disappear, restart."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import orjson
import pytest

from sharing.plugin.binding import ShareBinding
from sharing.plugin.errors import PluginError
from sharing.plugin.plugins import DevicePlugins
from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.server import SOCKET_PREFIX
from sharing.plugin.session import ClassState
from sharing.plugin.settings import Patience
from tests.support.plugin_bindings import gpu_uuid, mig, mps, slice_, whole
from tests.support.plugin_kubelet import PluginKubelet
from tests.support.plugin_waiting import eventually

GPU = "nvidia.com/gpu"
MPS4 = "gpu.sharing/mps-1of4"
SLICE4 = "gpu.sharing/timeslice-1of4"
QUICK = Patience(first_retry_s=0.02, longest_retry_s=0.2, poll_s=0.02, stream_opens_s=0.5)


def ids(*bindings: ShareBinding) -> set[str]:
    return {one.device_id for one in bindings}


@pytest.fixture
def not_ready() -> dict[str, str]:
    """Why shares are not ready, by device id."""
    return {}


@pytest.fixture
async def plugins(folder: Path, not_ready: dict[str, str]) -> AsyncIterator[DevicePlugins]:
    one = DevicePlugins(
        folder / "k",
        cdi_dir=folder / "cdi",
        state_dir=folder / "state",
        patience=QUICK,
    )
    one.why_not_ready = lambda binding: not_ready.get(binding.device_id)
    (folder / "k").mkdir(exist_ok=True)
    await one.start()
    yield one
    await one.stop()


def own_sockets(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "k").glob(f"{SOCKET_PREFIX}*"))


async def test_a_class_is_registered_with_bare_endpoint_and_equal_options(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([mps(0, 0), mps(0, 1)])
    await kubelet.until_healthy(MPS4, ids(mps(0, 0), mps(0, 1)))
    request = kubelet.requests[0]
    assert request.version == "v1beta1"
    assert request.endpoint in own_sockets(kubelet.folder.parent)
    assert request.options == kubelet.endpoints[MPS4].options
    assert request.options.pre_start_required
    assert request.options.get_preferred_allocation_available


async def test_only_mps_asks_to_be_called_before_a_start(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    assert not kubelet.endpoints[GPU].options.pre_start_required


async def test_two_classes_are_served_at_once(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0), slice_(1, 0), slice_(1, 1)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    await kubelet.until_healthy(SLICE4, ids(slice_(1, 0), slice_(1, 1)))
    assert await plugins.wait_serving(5)
    assert [(one.resource, one.healthy) for one in plugins.status()] == [(SLICE4, 2), (GPU, 1)]


async def test_numa_nodes_are_told_where_they_are_known(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0, numa=1), whole(1)])
    await kubelet.until_healthy(GPU, ids(whole(0), whole(1)))
    first, second = sorted(kubelet.endpoints[GPU].devices, key=lambda one: one.ID)
    assert [node.ID for node in first.topology.nodes] == [1]
    assert not second.HasField("topology")


async def test_a_change_arrives_on_the_open_stream(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([slice_(0, 0)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0)))
    delivery = await plugins.advertise([slice_(0, 0, healthy=False), slice_(0, 1)])
    assert delivery.delivered == (SLICE4,)
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 1)))
    assert kubelet.endpoints[SLICE4].lists[-1] == {
        slice_(0, 0).device_id: "Unhealthy",
        slice_(0, 1).device_id: "Healthy",
    }
    assert len(kubelet.requests) == 1


async def test_an_equal_list_is_not_told_again(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([slice_(0, 0)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0)))
    await plugins.advertise([slice_(0, 0)])
    await plugins.advertise([slice_(0, 0), slice_(0, 1)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0), slice_(0, 1)))
    assert len(kubelet.endpoints[SLICE4].lists) == 2


async def test_a_class_that_disappears_says_so_with_an_empty_list_and_leaves(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([slice_(0, 0), whole(1)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0)))
    await kubelet.until_healthy(GPU, ids(whole(1)))
    endpoint = kubelet.endpoints[SLICE4]
    await plugins.advertise([whole(1)])
    await kubelet.until(lambda: endpoint.ended)
    assert endpoint.lists[-1] == {}
    assert [one.resource for one in plugins.status()] == [GPU]
    assert own_sockets(folder) == [kubelet.endpoints[GPU].name]


async def test_a_gpu_that_changes_class_is_gone_before_it_comes_back(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    """At no moment does the kubelet know the same GPU as two classes."""
    await kubelet.start()
    both = [slice_(0, 0), slice_(1, 0), whole(2)]
    await plugins.advertise(both)
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0), slice_(1, 0)))
    await kubelet.until_healthy(GPU, ids(whole(2)))
    told: list[tuple[int, int]] = []

    def look() -> bool:
        told.append((len(kubelet.healthy[SLICE4]), len(kubelet.healthy[GPU])))
        return kubelet.healthy[GPU] == ids(whole(1), whole(2))

    looking = asyncio.create_task(kubelet.until(look))
    await plugins.advertise([slice_(0, 0), whole(1), whole(2)])
    await looking
    assert told[-1] == (1, 2)
    assert (2, 2) not in told


async def test_a_class_with_held_shares_stays_registered_for_its_containers_restarts(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([mps(0, 0), mps(0, 1)])
    await kubelet.until_healthy(MPS4, ids(mps(0, 0), mps(0, 1)))
    await plugins.advertise([], held=[mps(0, 1)])
    await kubelet.until_healthy(MPS4, set())
    await kubelet.pre_start(MPS4, [mps(0, 1).device_id])
    await kubelet.allocate(MPS4, [mps(0, 1).device_id])
    devices = orjson.loads((folder / "cdi" / f"gpu.sharing-share_{gpu_uuid(0)}.json").read_bytes())
    assert [one["name"] for one in devices["devices"]] == [mps(0, 1).device_id]
    await plugins.advertise([])
    assert plugins.status() == ()
    assert list((folder / "cdi").iterdir()) == []


async def test_advertising_does_not_wait_for_an_absent_kubelet(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    async with asyncio.timeout(5):
        delivery = await plugins.advertise([whole(0)])
    assert delivery.pending == (GPU,)
    assert not await plugins.wait_serving(0.1)
    assert plugins.status()[0].state is ClassState.WAITING
    assert str(kubelet.socket) in plugins.status()[0].reason
    await plugins.advertise([whole(0), whole(1)])
    await kubelet.start()
    await kubelet.until_healthy(GPU, ids(whole(0), whole(1)))


async def test_a_refused_registration_is_tried_again_on_a_fresh_socket(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    kubelet.refusals = ["not now", "still not"]
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    names = [request.endpoint for request in kubelet.requests]
    assert len(set(names)) == 3
    assert own_sockets(kubelet.folder.parent) == [names[-1]]


async def test_a_refusal_is_told_with_the_kubelets_own_words(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    kubelet.refusals = ["resource name is not pretty"] * 1000
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until(lambda: len(kubelet.requests) > 1)
    await eventually(lambda: "not pretty" in plugins.status()[0].reason)


async def test_a_restarted_kubelet_gets_everything_again(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    bindings = [whole(0), mps(1, 0), mig(2, 0)]
    await plugins.advertise(bindings)
    for binding in bindings:
        await kubelet.until_healthy(binding.resource, ids(binding))
    await kubelet.restart()
    for binding in bindings:
        await kubelet.until_healthy(binding.resource, ids(binding), timeout_s=5)


async def test_a_new_kubelet_is_told_even_while_the_old_ones_stream_lives(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    """Only the socket file says that there is another kubelet now."""
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    second = PluginKubelet(kubelet.folder)
    await second.start(clears=False)
    try:
        await second.until_healthy(GPU, ids(whole(0)), timeout_s=5)
    finally:
        await second.stop()


async def test_a_kubelet_that_returns_late_and_to_a_new_folder_is_found(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    await kubelet.stop()
    shutil.rmtree(kubelet.folder)
    await eventually(lambda: plugins.status()[0].state is ClassState.WAITING)
    await kubelet.start()
    await kubelet.until_healthy(GPU, ids(whole(0)), timeout_s=5)


async def test_a_dead_kubelets_socket_file_leads_to_no_storm(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    await kubelet.stop()
    kubelet.socket.touch()  # a file where the socket was; nobody listens
    before = plugins.status()[0].registrations
    await eventually(lambda: "did not register" in plugins.status()[0].reason)
    assert plugins.status()[0].registrations == before
    kubelet.socket.unlink()
    await kubelet.start()
    await kubelet.until_healthy(GPU, ids(whole(0)), timeout_s=5)


async def test_a_deleted_socket_of_ours_is_noticed(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    first = kubelet.endpoints[GPU].name
    (kubelet.folder / first).unlink()
    await kubelet.until(lambda: kubelet.endpoints[GPU].name != first)
    await kubelet.until_healthy(GPU, ids(whole(0)))


async def test_a_kubelet_that_opens_no_stream_is_asked_again(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    kubelet.forgets_streams = 1
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    assert len(kubelet.requests) == 2


async def test_a_stream_that_the_kubelet_drops_is_opened_by_a_new_registration(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    first = kubelet.endpoints[GPU]
    assert first.stream is not None
    first.stream.cancel()
    await kubelet.until(lambda: kubelet.endpoints[GPU] is not first)
    await kubelet.until_healthy(GPU, ids(whole(0)))


async def test_the_late_end_of_an_old_stream_takes_nothing_from_kubelets_that_go_by_name(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    """kubernetes#121994: the old stream has ended before the new registration begins."""
    kubelet.by_name = True
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    first = kubelet.endpoints[GPU]
    (kubelet.folder / first.name).unlink()
    await kubelet.until(lambda: kubelet.endpoints[GPU] is not first)
    assert first.ended
    await kubelet.until_healthy(GPU, ids(whole(0)))


async def test_a_share_that_is_not_ready_makes_its_container_wait_and_says_why(
    plugins: DevicePlugins, kubelet: PluginKubelet, not_ready: dict[str, str]
) -> None:
    share = mps(0, 0)
    await kubelet.start()
    await plugins.advertise([share])
    await kubelet.until_healthy(MPS4, ids(share))
    not_ready[share.device_id] = "the MPS daemon is being started"
    await kubelet.allocate(MPS4, [share.device_id])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await kubelet.pre_start(MPS4, [share.device_id])
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "the MPS daemon is being started" in str(caught.value.details())
    not_ready.clear()
    await kubelet.pre_start(MPS4, [share.device_id])


async def test_a_share_that_is_gone_does_not_start(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([mps(0, 0)])
    await kubelet.until_healthy(MPS4, ids(mps(0, 0)))
    with pytest.raises(grpc.aio.AioRpcError, match="does not exist any more"):
        await kubelet.pre_start(MPS4, ["GPU-gone::0"])


async def test_an_unknown_device_is_refused_with_words(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    with pytest.raises(grpc.aio.AioRpcError, match=r"'GPU-x' does not exist; expected one of"):
        await kubelet.allocate(GPU, ["GPU-x"])


async def test_preferred_allocation_answers_whatever_is_asked(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0), whole(1)])
    await kubelet.until_healthy(GPU, ids(whole(0), whole(1)))
    both = sorted(ids(whole(0), whole(1)))
    assert await kubelet.preferred(GPU, both, [both[1]], 1) == [both[1]]
    assert await kubelet.preferred(GPU, [], [], 3) == []
    assert await kubelet.preferred(GPU, ["strange"], [], 1) == ["strange"]
    assert await kubelet.preferred(GPU, both, [], -1) == []


async def test_several_whole_gpus_come_as_one_cdi_device_that_is_on_disk(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0), whole(1)])
    await kubelet.until_healthy(GPU, ids(whole(0), whole(1)))
    answer = await kubelet.allocate(GPU, [gpu_uuid(1), gpu_uuid(0)])
    (device,) = answer.cdi_devices
    kind, _, name = device.name.partition("=")
    document = orjson.loads((folder / "cdi" / f"gpu.sharing-share_{name}.json").read_bytes())
    assert document["kind"] == kind == "gpu.sharing/share"
    edits = document["devices"][0]["containerEdits"]
    assert f"NVIDIA_VISIBLE_DEVICES={gpu_uuid(0)},{gpu_uuid(1)}" in edits["env"]
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/nvidia0", "/dev/nvidia1"]


async def test_a_combined_device_comes_back_after_a_reboot(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0), whole(1)])
    await kubelet.until_healthy(GPU, ids(whole(0), whole(1)))
    await kubelet.allocate(GPU, [gpu_uuid(0), gpu_uuid(1)])
    before = {path.name: path.read_bytes() for path in (folder / "cdi").iterdir()}
    await plugins.stop()
    shutil.rmtree(folder / "cdi")
    later = DevicePlugins(
        folder / "k", cdi_dir=folder / "cdi", state_dir=folder / "state", patience=QUICK
    )
    try:
        await later.start()
        await later.advertise([whole(0)])
        await later.advertise([whole(0), whole(1)])
        assert {path.name: path.read_bytes() for path in (folder / "cdi").iterdir()} == before
    finally:
        await later.stop()


async def test_a_lost_cdi_file_is_written_again_before_the_answer(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([slice_(0, 0), slice_(0, 1)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0), slice_(0, 1)))
    path = folder / "cdi" / f"gpu.sharing-share_{gpu_uuid(0)}.json"
    before = path.read_bytes()
    path.unlink()
    await kubelet.allocate(SLICE4, [slice_(0, 0).device_id])
    assert path.read_bytes() == before


async def test_one_id_in_two_classes_is_refused_and_changes_nothing(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([slice_(0, 0)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0)))
    with pytest.raises(PluginError, match="is offered twice"):
        await plugins.advertise([slice_(0, 0), mps(0, 0)])
    assert kubelet.healthy == {SLICE4: ids(slice_(0, 0))}


async def test_an_unwritable_cdi_folder_offers_nothing(
    folder: Path, kubelet: PluginKubelet
) -> None:
    (folder / "cdi").write_text("a file, not a folder")
    await kubelet.start()
    one = DevicePlugins(folder / "k", cdi_dir=folder / "cdi", patience=QUICK)
    try:
        await one.start()
        with pytest.raises(PluginError, match="cannot be written"):
            await one.advertise([whole(0)])
        assert one.status() == ()
    finally:
        await one.stop()


async def test_stopping_leaves_no_socket_but_the_cdi_files(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    await plugins.stop()
    assert own_sockets(folder) == []
    assert len(list((folder / "cdi").iterdir())) == 1


async def test_dead_sockets_of_an_earlier_agent_are_removed_and_living_ones_are_not(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    living = own_sockets(folder)
    dead = folder / "k" / f"{SOCKET_PREFIX}gpu-00000000.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(dead))
    second = DevicePlugins(folder / "k", cdi_dir=None, patience=QUICK)
    await second.start()
    await second.stop()
    assert own_sockets(folder) == living


async def test_several_containers_in_one_question_are_answered_in_their_order(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    """The messages allow it, though kubelets ask for one at a time."""
    await kubelet.start()
    await plugins.advertise([slice_(0, 0), slice_(1, 0)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0), slice_(1, 0)))
    chosen = [slice_(1, 0).device_id, slice_(0, 0).device_id]
    stub = kubelet.stub(SLICE4)
    answer = await stub.Allocate(
        pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=[one]) for one in chosen]
        )
    )
    named = [one.cdi_devices[0].name for one in answer.container_responses]
    assert named == [f"gpu.sharing/share={one}" for one in chosen]
    advice = await stub.GetPreferredAllocation(
        pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(available_deviceIDs=[one], allocation_size=1)
                for one in chosen
            ]
        )
    )
    assert [list(one.deviceIDs) for one in advice.container_responses] == [[one] for one in chosen]


async def test_a_kubelet_that_appears_after_us_is_registered_with_once(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    """bottlerocket-os/bottlerocket#4250: the event of a socket that was served already."""
    await plugins.advertise([whole(0), slice_(1, 0)])
    await kubelet.start()
    await kubelet.until_healthy(GPU, ids(whole(0)))
    await kubelet.until_healthy(SLICE4, ids(slice_(1, 0)))
    await plugins.advertise([whole(0, healthy=False), slice_(1, 0)])  # a look or more later
    await kubelet.until_healthy(GPU, set())
    assert sorted(one.resource_name for one in kubelet.requests) == [SLICE4, GPU]
    assert {one.registrations for one in plugins.status()} == {1}


async def test_a_disk_that_does_not_answer_fails_no_pod(
    plugins: DevicePlugins, kubelet: PluginKubelet, folder: Path
) -> None:
    """A kubelet sets no deadline for Allocate: a plugin that hangs stops all admissions."""
    await kubelet.start()
    await plugins.advertise([whole(0)])
    await kubelet.until_healthy(GPU, ids(whole(0)))
    spec = folder / "cdi" / f"gpu.sharing-share_{gpu_uuid(0)}.json"
    spec.unlink()
    os.mkfifo(spec)  # whoever reads it waits for a writer
    try:
        async with asyncio.timeout(10):
            answer = await kubelet.allocate(GPU, [gpu_uuid(0)])
        assert len(answer.cdi_devices) == 1
    finally:
        os.close(os.open(spec, os.O_WRONLY))


async def test_what_became_unfit_is_told_at_once_and_no_older_list_heals_it(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    ill, well, unfit = slice_(0, 0), slice_(1, 0), set[str]()
    plugins.unfit = lambda binding: binding.gpu_uuid in unfit
    await kubelet.start()
    await plugins.advertise([ill, well])
    await kubelet.until_healthy(SLICE4, ids(ill, well))
    heard = kubelet.endpoints[SLICE4].lists
    before = len(heard)

    unfit.add(ill.gpu_uuid)
    plugins.worsen()
    await kubelet.until_healthy(SLICE4, ids(well))
    await plugins.advertise([ill, well, slice_(1, 1)])
    await kubelet.until_healthy(SLICE4, ids(well, slice_(1, 1)))

    assert {one[ill.device_id] for one in heard[before:]} == {"Unhealthy"}
    unfit.clear()
    await plugins.advertise([ill, well])
    await kubelet.until_healthy(SLICE4, ids(ill, well))


async def test_nothing_is_told_where_nothing_became_unfit(
    plugins: DevicePlugins, kubelet: PluginKubelet
) -> None:
    await kubelet.start()
    await plugins.advertise([slice_(0, 0)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0)))

    plugins.worsen()
    await plugins.advertise([slice_(0, 0), slice_(0, 1)])
    await kubelet.until_healthy(SLICE4, ids(slice_(0, 0), slice_(0, 1)))

    assert len(kubelet.endpoints[SLICE4].lists) == 2
