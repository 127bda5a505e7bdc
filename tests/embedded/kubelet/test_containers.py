"""Containers: start, waiting with a reason, restart, completion, what they see."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from embedded.errors import EmbeddedError
from embedded.kubelet.view import Origin
from sharing.cluster.kind import CONFIG_MAPS, PODS
from sharing.plugin.proto import deviceplugin_pb2 as api
from tests.support.kubelet_bench import Bench, container, pod

RETRY_S = 10.0


def waiting(item: dict[str, Any], name: str = "main") -> dict[str, Any]:
    statuses = item["status"].get("containerStatuses", []) + item["status"].get(
        "initContainerStatuses", []
    )
    for status in statuses:
        if status["name"] == name:
            found: dict[str, Any] = status["state"].get("waiting") or {}
            return found
    return {}


def cdi(*names: str) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs={"NVIDIA_VISIBLE_DEVICES": "allocate"},
        cdi_devices=[api.CDIDevice(name=name) for name in names],
    )


def write_spec(node: Bench, device: str, *env: str) -> None:
    document = {
        "cdiVersion": "0.6.0",
        "kind": "gpu.sharing/share",
        "devices": [{"name": device, "containerEdits": {"env": list(env)}}],
    }
    (node.folder / "cdi" / f"{device}.json").write_bytes(orjson.dumps(document))


async def test_a_container_sees_the_cdi_edit_whatever_its_pod_says(node: Bench) -> None:
    write_spec(node, "a", "NVIDIA_VISIBLE_DEVICES=GPU-a", "CUDA_MPS_PIPE_DIRECTORY=/mps")
    await node.plugin("a", answers={"a": cdi("gpu.sharing/share=a")})
    await node.client.create(
        CONFIG_MAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "m", "namespace": "default"},
            "data": {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_MPS_PIPE_DIRECTORY": "/x", "M": "1"},
        },
    )
    main = {
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "envFrom": [{"configMapRef": {"name": "m"}}],
    }
    await node.run(pod("p", shares=1, main=main))
    view = node.kubelet.view("default", "p", "main")
    assert view is not None
    assert view.env == {
        "CUDA_MPS_PIPE_DIRECTORY": "/mps",
        "M": "1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a",
    }
    assert view.env_from["NVIDIA_VISIBLE_DEVICES"] is Origin.CDI
    folder = node.kubelet.runtime.folder("default", "p", view.uid)
    assert json.loads((folder / "main.json").read_text())["env"] == view.env
    await node.delete("p")
    assert not folder.exists()


async def test_without_cdi_the_pods_env_wins_over_allocate(node: Bench) -> None:
    await node.plugin("a")
    main = {"env": [{"name": "DEVICE", "value": "mine"}]}
    await node.run(pod("p", shares=1, main=main))
    view = node.kubelet.view("default", "p", "main")
    assert view is not None
    assert view.env == {"DEVICE": "mine"}


async def test_an_unknown_cdi_name_lets_the_container_wait_and_is_tried_again(
    node: Bench,
) -> None:
    plugin = await node.plugin("a", answers={"a": cdi("gpu.sharing/share=a")})
    await node.create(pod("p", shares=1))
    item = await node.until_pod("p", lambda one: "reason" in waiting(one))
    assert item["status"]["phase"] == "Pending"
    assert waiting(item)["reason"] == "CreateContainerError"
    assert "unresolvable CDI devices gpu.sharing/share=a" in waiting(item)["message"]
    await node.clock.until_sleeper(RETRY_S)
    write_spec(node, "a", "X=1")
    node.clock.advance(RETRY_S)
    await node.until_phase("p", "Running")
    assert len(plugin.allocated) == 1


async def test_pre_start_is_asked_before_each_start_and_its_error_is_waited_out(
    node: Bench,
) -> None:
    plugin = await node.plugin("a", pre_start_required=True, pre_start_error="daemon is away")
    await node.create(pod("p", shares=1))
    item = await node.until_pod("p", lambda one: "reason" in waiting(one))
    assert waiting(item)["reason"] == "CreateContainerConfigError"
    assert "daemon is away" in waiting(item)["message"]
    await node.clock.until_sleeper(RETRY_S)
    plugin.pre_start_error = ""
    node.clock.advance(RETRY_S)
    await node.until_phase("p", "Running")
    assert plugin.started == [["a"], ["a"]]
    await node.kubelet.finish("default", "p", exit_code=1)
    await node.until_pod(
        "p", lambda one: one["status"]["containerStatuses"][0]["restartCount"] == 1
    )
    assert len(plugin.started) == 3
    assert len(plugin.allocated) == 1, "a restart does not call Allocate"


async def test_a_missing_config_map_is_a_config_error(node: Bench) -> None:
    main = {"envFrom": [{"configMapRef": {"name": "none"}}]}
    await node.create(pod("p", main=main))
    item = await node.until_pod("p", lambda one: "reason" in waiting(one))
    assert waiting(item) == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "none" not found',
    }


async def test_a_restart_in_place_uses_the_cached_answer_while_the_plugin_is_away(
    node: Bench,
) -> None:
    plugin = await node.plugin("a")
    await node.run(pod("p", shares=1))
    await plugin.close()
    await node.until_offer(1, 0)
    await node.kubelet.finish("default", "p", exit_code=3)
    item = await node.until_pod(
        "p", lambda one: one["status"]["containerStatuses"][0]["restartCount"] == 1
    )
    status = item["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert "running" in status["state"]
    view = node.kubelet.view("default", "p", "main")
    assert view is not None
    assert view.env["DEVICE"] == "a"


async def test_init_containers_complete_in_order_and_a_failing_one_holds_up_the_rest(
    node: Bench,
) -> None:
    broken: dict[str, Any] = {"envFrom": [{"configMapRef": {"name": "none"}}]}
    init = [container("one"), container("two", **broken), container("three")]
    await node.create(pod("p", init=init))
    item = await node.until_pod("p", lambda one: "message" in waiting(one, "two"))
    states = {one["name"]: one["state"] for one in item["status"]["initContainerStatuses"]}
    assert states["one"]["terminated"]["exitCode"] == 0
    assert "waiting" in states["three"]
    assert item["status"]["phase"] == "Pending"
    conditions = {one["type"]: one["status"] for one in item["status"]["conditions"]}
    assert conditions["Initialized"] == "False"


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 5, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_a_pod_that_completes_gives_its_devices_back(
    node: Bench, policy: str, code: int, phase: str
) -> None:
    await node.plugin("a b")
    side = container("side", 1, restartPolicy="Always")
    await node.run(pod("p", shares=1, init=[side], restartPolicy=policy))
    await node.kubelet.finish("default", "p", exit_code=code)
    item = await node.until_phase("p", phase)
    assert item["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code
    assert "terminated" in item["status"]["initContainerStatuses"][0]["state"], "sidecars end, too"
    assert await node.pod_resources() == {}
    await node.run(pod("q", shares=2))


async def test_ending_what_does_not_run_is_refused(node: Bench) -> None:
    with pytest.raises(EmbeddedError, match="default/none: it does not run on this node"):
        await node.kubelet.finish("default", "none")
    await node.run(pod("p"))
    with pytest.raises(EmbeddedError, match="container other of it does not run"):
        await node.kubelet.finish("default", "p", container="other")


async def test_a_running_pod_is_ready_and_says_where_it_is(node: Bench) -> None:
    await node.run(pod("p"))
    status = (await node.client.get(PODS, "p", namespace="default"))["status"]
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert conditions["Ready"] == conditions["ContainersReady"] == "True"
    assert status["podIP"].startswith("10.98.")
    assert status["containerStatuses"][0]["ready"] is True
