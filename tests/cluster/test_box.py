"""Tier b itself: a real node that runs pods, gives them devices, restarts and reboots."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from grpc import aio

from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError, ForbiddenError
from sharing.cluster.kind import NODES, PODS, VALIDATING_WEBHOOKS, Kind
from sharing.plugin.proto import podresources_pb2 as resources
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub
from tests.cluster.box.box import Box
from tests.cluster.plugin import SmallPlugin
from tests.cluster.waiting import eventually
from tests.cluster.workload import pod, reaches
from webhook.registration import client_by_service, client_by_url

pytestmark = pytest.mark.cluster

SERVICES = Kind(kind="Service", plural="services")
ENDPOINT_SLICES = Kind(kind="EndpointSlice", plural="endpointslices", group="discovery.k8s.io")


@pytest.fixture
async def admin(node_box: Box) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(node_box.access.kubeconfig()) as client:
        yield client


async def _allocatable(client: Client, node: str, resource: str) -> str:
    found = await client.get(NODES, node)
    return str(found["status"]["allocatable"].get(resource, "none"))


async def _is_allocatable(client: Client, node: str, resource: str, count: str) -> None:
    async def look() -> bool:
        return await _allocatable(client, node, resource) == count

    await eventually(f"{count} of {resource} are allocatable", look)


def _cdi(folder: Path, kind: str, ids: Sequence[str]) -> None:
    devices = [
        {
            "name": each,
            "containerEdits": {
                "env": [f"SEEN={each}"],
                "deviceNodes": [{"path": "/dev/thing", "hostPath": "/dev/zero"}],
            },
        }
        for each in ids
    ]
    spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices}
    (folder / f"{kind.replace('/', '-')}.json").write_text(json.dumps(spec))


async def test_the_node_is_ready_and_knows_its_boot(node_box: Box, admin: Client) -> None:
    node = await admin.get(NODES, node_box.node)

    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert node["status"]["nodeInfo"]["bootID"] == node_box.boot_id
    assert node_box.exec("cat", "/proc/sys/kernel/random/boot_id").strip() == node_box.boot_id


async def test_a_pod_runs_and_its_log_and_shell_are_within_reach(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    talking = pod("talking", command=["sh", "-c", "echo spoken; exec sleep 1000"])
    await admin.create(PODS, talking, namespace=box_namespace)
    await reaches(admin, box_namespace, "talking", "Running")

    assert node_box.kubectl("-n", box_namespace, "logs", "talking") == "spoken\n"
    assert node_box.kubectl("-n", box_namespace, "exec", "talking", "--", "id", "-u") == "0\n"


async def test_a_plugin_gives_a_container_its_cdi_device(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    resource, kind = "given.test.example/thing", "test.example/given"
    _cdi(node_box.cdi_dir, kind, ["t0", "t1"])
    healthy = {"t0": "Healthy", "t1": "Healthy"}
    async with SmallPlugin(node_box.device_plugins, resource, healthy, cdi_kind=kind) as plugin:
        await _is_allocatable(admin, node_box.node, resource, "2")
        asking = pod("asking", limits={resource: "1"}, env={"SEEN": "mine", "ALLOCATED": "mine"})
        await admin.create(PODS, asking, namespace=box_namespace)
        await reaches(admin, box_namespace, "asking", "Running")

        ((device,),) = plugin.allocated
        env = _env(node_box, box_namespace, "asking")
        assert env["SEEN"] == device, "a CDI edit must beat the pod's own env"
        assert env["ALLOCATED"] == "mine", "the pod's own env beats what Allocate says"
        listing = node_box.kubectl(
            "-n", box_namespace, "exec", "asking", "--", "ls", "-l", "/dev/thing"
        )
        assert listing.startswith("c")
        assert await _held(node_box, box_namespace, "asking") == {resource: [device]}


def _env(box: Box, namespace: str, name: str) -> dict[str, str]:
    text = box.kubectl("-n", namespace, "exec", name, "--", "env")
    return dict(line.split("=", 1) for line in text.splitlines())


async def _held(box: Box, namespace: str, name: str) -> dict[str, list[str]]:
    async with aio.insecure_channel(f"unix:{box.pod_resources}") as channel:
        stub = PodResourcesListerStub(channel)
        listed = await stub.List(resources.ListPodResourcesRequest(), timeout=5)
    held: dict[str, list[str]] = {}
    for each in listed.pod_resources:
        if (each.namespace, each.name) == (namespace, name):
            for container in each.containers:
                for devices in container.devices:
                    held.setdefault(devices.resource_name, []).extend(devices.device_ids)
    return held


async def test_a_kubelet_that_comes_back_makes_a_new_socket_for_the_plugin(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    resource = "back.test.example/thing"
    async with SmallPlugin(node_box.device_plugins, resource, {"d": "Healthy"}):
        await _is_allocatable(admin, node_box.node, resource, "1")
        await admin.create(PODS, pod("calm", limits={resource: "1"}), namespace=box_namespace)
        before = await reaches(admin, box_namespace, "calm", "Running")
        door = node_box.device_plugins / "kubelet.sock"
        made = door.stat().st_ctime_ns

        node_box.restart("kubelet", signal.SIGKILL)

        assert door.stat().st_ctime_ns > made
        after = await admin.get(PODS, "calm", namespace=box_namespace)
        assert _containers(after) == _containers(before)
    async with SmallPlugin(node_box.device_plugins, resource, {"d": "Healthy", "e": "Healthy"}):
        await _is_allocatable(admin, node_box.node, resource, "2")


def _containers(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (each["containerID"], each["restartCount"]) for each in found["status"]["containerStatuses"]
    ]


async def _refuse(request: web.Request) -> web.Response:
    uid = (await request.json())["request"]["uid"]
    verdict = {"uid": uid, "allowed": False, "status": {"message": "heard inside"}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return web.json_response({**review, "response": verdict})


@contextlib.asynccontextmanager
async def _refusing(box: Box, listener: socket.socket, *names: str) -> AsyncIterator[None]:
    """A webhook that refuses everything, on a listener inside."""
    app = web.Application()
    app.router.add_post("/", _refuse)
    pair = box.access.authority.server("webhook", names)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=tls).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def test_a_webhook_of_a_test_is_called_at_its_address(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    listener = node_box.listener()
    client = client_by_url(
        f"https://127.0.0.1:{listener.getsockname()[1]}/", node_box.access.ca.read_bytes()
    )
    async with _refusing(node_box, listener, "127.0.0.1"):
        assert "heard inside" in await _refusal(admin, "by-url", client, box_namespace)


async def test_a_webhook_of_a_test_is_called_by_its_service(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    listener = node_box.listener(host=node_box.spec.address)
    port = {"name": "https", "port": listener.getsockname()[1]}
    service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]}}
    endpoints = {
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "ports": [port],
        "endpoints": [{"addresses": [node_box.spec.address], "conditions": {"ready": True}}],
    }
    await admin.create(SERVICES, service, namespace=box_namespace)
    await admin.create(ENDPOINT_SLICES, endpoints, namespace=box_namespace)
    client = {
        **client_by_service(box_namespace, "hook", "/"),
        "caBundle": base64.b64encode(node_box.access.ca.read_bytes()).decode(),
    }
    async with _refusing(node_box, listener, f"hook.{box_namespace}.svc"):
        assert "heard inside" in await _refusal(admin, "by-service", client, box_namespace)


async def _refusal(admin: Client, name: str, client: dict[str, Any], namespace: str) -> str:
    """What a pod is refused with once a webhook for the namespace is in force."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    hook = {
        "name": f"{name}.test.example",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": client,
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }

    async def look() -> str:
        try:
            await admin.create(PODS, pod("tried"), namespace=namespace, dry_run=True)
        except ApiError as error:  # also that its endpoints are not known yet
            return error.message if "denied the request" in error.message else ""
        return ""

    await admin.create(VALIDATING_WEBHOOKS, {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        return await eventually("the webhook is in force", look)
    finally:
        await admin.delete(VALIDATING_WEBHOOKS, name)


async def test_a_server_of_this_machine_can_be_let_in(node_box: Box) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nfrom outside")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        inside = node_box.let_in(server.sockets[0].getsockname()[1])
        url = f"http://127.0.0.1:{inside}/"
        said = await asyncio.to_thread(node_box.exec, "/bin/busybox", "wget", "-qO-", url)

    assert said == "from outside"


async def test_a_program_of_a_test_runs_inside_and_starts_again(node_box: Box) -> None:
    node_box.start_program(
        "steady", ("/bin/sh", "-c", "echo $WORD; exec sleep 1000"), {"WORD": "w"}
    )
    first = node_box.status()["steady"]

    node_box.kill("steady")
    ended = node_box.status()["steady"]
    node_box.start_program("steady")
    second = node_box.status()["steady"]
    node_box.stop_program("steady")

    assert (first["exit"], ended["exit"], second["exit"]) == (None, -signal.SIGKILL, None)
    assert first["pid"] != second["pid"]
    assert "w" in node_box.log_tail("steady").split()


async def test_a_service_account_is_itself_on_the_node_too(
    node_box: Box, box_namespace: str
) -> None:
    account = node_box.access.service_account(box_namespace, "agent")
    async with Client.from_kubeconfig(account) as client:
        with pytest.raises(ForbiddenError, match=f"serviceaccount:{box_namespace}:agent"):
            await client.list(NODES)


async def test_a_whole_machine_reboots_with_its_objects(node_box: Box, admin: Client) -> None:
    before = await admin.get(NODES, node_box.node)
    programs = node_box.status()

    await asyncio.to_thread(node_box.reboot, whole=True)

    async with Client.from_kubeconfig(node_box.access.kubeconfig()) as again:
        after = await again.get(NODES, node_box.node)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    now = node_box.status()
    assert {name for name in now if now[name]["exit"] is None} >= {"etcd", "kubelet"}
    assert now["etcd"]["pid"] != programs["etcd"]["pid"]


async def test_a_reboot_keeps_disks_and_loses_memory(
    node_box: Box, admin: Client, box_namespace: str
) -> None:
    once = pod("once")
    again = pod("again", restart="Always")
    for each in (once, again):
        await admin.create(PODS, each, namespace=box_namespace)
    for name in ("once", "again"):
        await reaches(admin, box_namespace, name, "Running")
    apiserver, boot = node_box.status()["kube-apiserver"], node_box.boot_id
    (node_box.cdi_dir / "gone.json").write_text("{}")
    (node_box.kubelet_dir / "kept").write_text("")

    await asyncio.to_thread(node_box.reboot)

    assert node_box.boot_id != boot
    assert node_box.status()["kube-apiserver"] == apiserver
    assert not list(node_box.cdi_dir.iterdir())
    assert (node_box.kubelet_dir / "kept").exists()
    ended = await reaches(admin, box_namespace, "once", "Failed")
    assert ended["spec"]["nodeName"] == node_box.node

    async def restarted() -> bool:
        found = await admin.get(PODS, "again", namespace=box_namespace)
        (status,) = found["status"]["containerStatuses"]
        return bool(status["ready"] and status["restartCount"] == 1)

    await eventually("the other pod runs again", restarted, timeout_s=60)
