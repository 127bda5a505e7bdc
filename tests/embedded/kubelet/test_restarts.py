"""Restarts of kubelet and node: checkpoint, running containers, plugins that come late."""

from __future__ import annotations

import shutil

import grpc
import pytest
from structlog.testing import capture_logs

from embedded.kubelet import checkpoint
from sharing.cluster.kind import PODS
from sharing.plugin.proto import podresources_pb2 as api
from tests.support.kubelet_bench import SHARE, Bench, container, pod


async def test_a_kubelet_restart_leaves_running_pods_and_their_devices_alone(
    node: Bench,
) -> None:
    plugin = await node.plugin("a b c")
    before = await node.run(pod("p", shares=2))
    held = node.holding("p")
    await node.kubelet.restart()
    assert plugin.streams_ended.is_set()
    assert node.holding("p") == held
    assert (await node.pod_resources())["p"]["main"] == list(held)
    await plugin.close()
    again = await node.plugin("a b c")
    await node.run(pod("q", shares=1))
    assert not set(node.holding("q")) & set(held)
    assert again.allocated == [list(node.holding("q"))]
    after = await node.client.get(PODS, "p", namespace="default")
    ours, theirs = (one["status"]["containerStatuses"][0] for one in (before, after))
    assert ours["containerID"] == theirs["containerID"]
    assert theirs["restartCount"] == 0


async def test_capacity_is_zero_until_the_plugin_is_back_and_running_pods_stay(
    node: Bench,
) -> None:
    await node.plugin("a b")
    await node.run(pod("p", shares=1))
    await node.kubelet.restart()
    await node.until_offer(0, 0)
    failed = await node.run(pod("early", shares=1), "Failed")
    assert "no healthy devices present" in failed["status"]["message"]
    assert (await node.client.get(PODS, "p", namespace="default"))["status"]["phase"] == "Running"
    await node.plugin("a b")
    await node.until_offer(2, 2)
    await node.run(pod("late", shares=1))


async def test_a_restart_refuses_running_pods_whose_init_containers_had_devices(
    node: Bench,
) -> None:
    # kubernetes#138446: only containers that run are spared the question whether their
    # devices are well, and init containers have ended.
    await node.plugin("a b")
    await node.run(pod("p", shares=1, init=[container("init", 1)]))
    await node.kubelet.restart()
    failed = await node.until_phase("p", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"


async def test_a_reboot_refuses_pods_that_are_admitted_before_their_plugin_is_back(
    node: Bench,
) -> None:
    plugin = await node.plugin("a b")
    await node.run(pod("p", shares=1))
    await node.kubelet.stop()
    await plugin.close()
    node.kubelet.runtime.kill_all()
    await node.kubelet.start()
    # kubernetes#125579: the pod is admitted before the plugin is back.
    failed = await node.until_phase("p", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present" in failed["status"]["message"]
    assert await node.pod_resources() == {}


async def test_a_reboot_restarts_pods_without_devices(node: Bench) -> None:
    await node.run(pod("p", init=[container("init")]))
    await node.kubelet.reboot()
    item = await node.until_pod(
        "p", lambda one: one["status"]["containerStatuses"][0]["restartCount"] == 1
    )
    assert item["status"]["phase"] == "Running"


async def test_pods_deleted_while_the_kubelet_was_away_are_removed_at_its_start(
    node: Bench,
) -> None:
    await node.plugin("a b")
    await node.run(pod("graceful", shares=1))
    await node.run(pod("forced", shares=1))
    views = node.kubelet.settings.views
    assert len(list(views.iterdir())) == 2
    await node.kubelet.stop()
    await node.client.delete(PODS, "graceful", namespace="default")
    await node.client.delete(PODS, "forced", namespace="default", grace_s=0)
    await node.kubelet.start()
    await node.until_gone("graceful")
    assert await node.pod_resources() == {}
    assert list(views.iterdir()) == []
    await node.plugin("a b")
    await node.run(pod("next", shares=2))


async def test_a_lost_socket_folder_is_made_again_and_the_book_is_lost_with_it(
    node: Bench,
) -> None:
    plugin = await node.plugin("a")
    await node.run(pod("p", shares=1))
    await node.kubelet.restart(remove_folder=True)
    assert (node.kubelet.settings.plugin_folder / "kubelet.sock").is_socket()
    assert node.holding("p") == ()
    await plugin.close()
    await node.plugin("a")
    assert (await node.client.get(PODS, "p", namespace="default"))["status"]["phase"] == "Running"


async def test_a_folder_lost_under_way_fails_new_pods_and_no_old_ones(node: Bench) -> None:
    await node.plugin("a b")
    await node.run(pod("p", shares=1))
    shutil.rmtree(node.kubelet.settings.plugin_folder)
    failed = await node.run(pod("q", shares=1), "Failed")
    assert "failed to write checkpoint" in failed["status"]["message"]
    await node.delete("p")


async def test_a_damaged_checkpoint_is_ignored_with_a_warning(node: Bench) -> None:
    await node.plugin("a")
    await node.kubelet.stop()
    (node.kubelet.settings.plugin_folder / checkpoint.FILE_NAME).write_text("{")
    with capture_logs() as logs:
        await node.kubelet.start()
    assert "checkpoint was ignored" in [log["event"] for log in logs]
    await node.plugin("a")


async def test_pod_resources_lists_one_entry_a_device_with_its_topology(node: Bench) -> None:
    await node.plugin({"a": "Healthy", "b": "Healthy", "c": "Sick"}, numa={"a": 0, "b": 1})
    await node.run(pod("p", shares=2, init=[container("init", 1)]))
    async with node.lister() as stub:
        listed = await stub.List(api.ListPodResourcesRequest(), timeout=5)
        (only,) = listed.pod_resources
        assert (only.name, only.namespace) == ("p", "default")
        (main,) = only.containers
        assert [(one.resource_name, list(one.device_ids)) for one in main.devices] == [
            (SHARE, ["a"]),
            (SHARE, ["b"]),
        ]
        assert [one.topology.nodes[0].ID for one in main.devices] == [0, 1]
        offered = await stub.GetAllocatableResources(api.AllocatableResourcesRequest(), timeout=5)
        assert [list(one.device_ids) for one in offered.devices] == [["a"], ["b"]]
        request = api.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
        assert (await stub.Get(request, timeout=5)).pod_resources == only
        request.pod_name = "other"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Get(request, timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert caught.value.details() == "pod other in namespace default not found"
