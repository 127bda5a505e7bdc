"""Our programs at work against a control plane, under the accounts of the chart.

Each function has one program do everything that it ever asks the API server for.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from certs.cluster import Cluster, Place, utc_now
from certs.context import HotContext
from certs.keeper import Keeper, Pace
from certs.metrics import CertsMetrics
from certs.schedule import RotationSettings
from embedded.kubelet.kubelet import Kubelet
from embedded.kubelet.settings import Settings
from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import NotFoundError
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import (
    EVENTS,
    GPU_LAYOUTS,
    GPU_NODES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SHARING_PROFILES,
    Kind,
)
from sharing.controller.controller import Controller, ControllerSettings
from sharing.node.agent import Agent
from sharing.node.settings import AgentSettings
from sharing.nvml import simulator
from tests.cluster.waiting import eventually
from webhook.live import LiveSource
from webhook.metrics import Metrics

DEADLINE_S: Final = 30.0
NODE: Final = "n1"
ILL_NODE: Final = "n2"
_PLACE: Final = Place()
_QUICK: Final = RotationSettings(
    names=("gpu-sharing-webhook.gpu-sharing.svc",),
    propagation=timedelta(seconds=0.1),
    settle=timedelta(seconds=0.2),
    overlap=timedelta(seconds=0.3),
)


@asynccontextmanager
async def at_work(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Has something run meanwhile."""
    task = asyncio.ensure_future(work())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# -- webhook


async def webhook(client: Client, admin: Client) -> None:
    """Read policies; make certificates, have them trusted, repair them twice, rotate them."""
    async with LiveSource(client, Metrics()) as source, asyncio.timeout(DEADLINE_S):
        await source.wait_ready()
    async with EventRecorder(client, "gpu-sharing-webhook") as recorder:
        keeper = Keeper(
            Cluster(client, _PLACE),
            HotContext(utc_now),
            _QUICK,
            metrics=CertsMetrics(CollectorRegistry()),
            recorder=recorder,
            pace=Pace(poll_s=0.1, jitter_s=0.01),
        )

        async def is_trusted() -> bool:
            return not keeper.unready_reason()

        async with at_work(keeper.run):
            await eventually("the certificate is trusted", is_trusted)
            # The same twice: the second is told by raising the first one's counter.
            for _ in range(2):
                patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
                name = _PLACE.configurations[0]
                await admin.patch(MUTATING_WEBHOOKS, name, patch, patch_type=PatchType.JSON)
                await eventually("the bundle is repaired", partial(_is_trusted, admin))
            await Cluster(admin, _PLACE).ask("now")
            await eventually("it is rotated", partial(_is_rotated, admin))
            await eventually(
                "an event is counted", partial(_has_counted, admin, "gpu-sharing-webhook")
            )


async def _is_trusted(admin: Client) -> bool:
    item = await admin.get(MUTATING_WEBHOOKS, _PLACE.configurations[0])
    return all(each["clientConfig"].get("caBundle") for each in item["webhooks"])


async def _is_rotated(admin: Client) -> bool:
    item = await admin.get(SECRETS, _PLACE.secret, namespace=_PLACE.namespace)
    return bool(item["metadata"].get("annotations", {}).get("certs.gpu.sharing/rotated") == "now")


async def _has_counted(admin: Client, component: str) -> bool:
    """Whether a component has raised an event's counter."""
    items = (await admin.list(EVENTS))["items"]
    counts = [each.get("count") or 0 for each in items if _teller(each) == component]
    return max(counts, default=0) > 1


def _teller(event: dict[str, Any]) -> str:
    return str(event.get("source", {}).get("component", ""))


# -- agent


@asynccontextmanager
async def node(admin: Client) -> AsyncIterator[AgentSettings]:
    """A managed node with a kubelet and one simulated GPU; what its agent is told."""
    folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))  # short, for unix sockets
    (folder / "cdi").mkdir()
    simulator.create(folder / "gpus.json", "1xL4-24GB")
    labels = {"gpu.sharing/managed": "true"}
    chosen = Settings(name=NODE, root=folder / "k", cdi_folders=(folder / "cdi",), labels=labels)
    try:
        async with Kubelet(admin, chosen):
            yield AgentSettings(
                node=NODE,
                kubelet_dir=folder / "k",
                cdi_dir=folder / "cdi",
                state_dir=folder / "s",
                mps_dir=folder / "m",
                simulate=folder / "gpus.json",
                leave_mps_running=False,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def agent(client: Client, admin: Client, settings: AgentSettings) -> None:
    """Meet the node, publish it, and be asked twice for a layout that its board cannot have."""
    working = Agent(settings, client)
    async with at_work(working.run):
        async with asyncio.timeout(DEADLINE_S):
            await working.ready.wait()
        status = (await admin.get(GPU_NODES, NODE))["status"]
        uuid = status["gpus"][0]["uuid"]
        mig = {"uuid": uuid, "layout": {"mode": "mig", "sizes": {"1g.10gb": 1}}}
        plain = {"uuid": uuid, "layout": {"mode": "exclusive"}}
        for wanted in (mig, plain, mig):
            written = await admin.patch(GPU_NODES, NODE, {"spec": {"gpus": [wanted]}})
            generation = written["metadata"]["generation"]
            await eventually("the agent has seen it", partial(_has_seen, admin, generation))
        await eventually("an event is counted", partial(_has_counted, admin, "gpu-sharing-agent"))


async def _has_seen(admin: Client, generation: int) -> bool:
    status = (await admin.get(GPU_NODES, NODE)).get("status", {})
    return bool(status.get("observedGeneration", 0) >= generation)


# -- controller


async def controller(client: Client, admin: Client) -> None:
    """Lead, assign a layout, say what became of it and of a profile, empty a faulty GPU."""
    await _make_work(admin)
    working = Controller(ControllerSettings(), client)
    async with at_work(working.run):
        async with asyncio.timeout(DEADLINE_S):
            await working.leading.wait()
        await eventually("the layout is judged", partial(_is_judged, admin, GPU_LAYOUTS, "halves"))
        await eventually("the profile is", partial(_is_judged, admin, SHARING_PROFILES, "strict"))
        await eventually("the spec is written", partial(_has_spec, admin))
        await eventually("the pod is evicted", partial(_is_gone, admin))
        await eventually("the lease is renewed", partial(_is_renewed, admin))
        # A pod without a grant, under a policy twice: the second time raises a counter.
        for policy in ("strict", None, "strict"):
            labels = {"metadata": {"labels": {"gpu.sharing/profile": policy}}}
            await admin.patch(NAMESPACES, _PLACE.namespace, labels)
            governed = partial(_governs, admin, _PLACE.namespace)
            await eventually("it is seen", partial(_is, governed, policy is not None))
        await eventually(
            "an event is counted", partial(_has_counted, admin, "gpu-sharing-controller")
        )


async def _make_work(admin: Client) -> None:
    labels = {"gpu.sharing/managed": "true"}
    await admin.create(NODES, {"metadata": {"name": ILL_NODE, "labels": labels}})
    await admin.create(GPU_NODES, _object("GPUNode", ILL_NODE, {}))
    gpu = {
        "index": 0, "uuid": "GPU-a", "board": "L4-24GB", "product": "L4", "memoryMiB": 23034,
        "health": {"healthy": False, "state": "unhealthy", "reason": "Xid79"},
        "shares": [{
            "id": "GPU-a", "resource": "nvidia.com/gpu", "memoryMiB": 23034,
            "holders": [{"namespace": "evicted", "pod": "train", "container": "main"}],
        }],
    }  # fmt: skip
    await admin.patch(GPU_NODES, ILL_NODE, {"status": {"gpus": [gpu]}}, subresource="status")
    entry = {"gpus": "all", "mode": "time-slicing", "sizes": {"1of2": 2}}
    await admin.create(GPU_LAYOUTS, _object("GPULayout", "halves", {"gpus": [entry]}))
    spec = {"mode": "exclusive", "onFault": "evict"}
    await admin.create(SHARING_PROFILES, _object("SharingProfile", "strict", spec))
    governed = {"name": "evicted", "labels": {"gpu.sharing/profile": "strict"}}
    await admin.create(NAMESPACES, {"metadata": governed})
    await admin.create(PODS, _pod("train", "evicted", {}))
    # Our namespace is exempt, so this one needs no webhook.
    await admin.create(PODS, _pod("slipped", _PLACE.namespace, {"nvidia.com/gpu": "1"}))


def _pod(name: str, namespace: str, limits: dict[str, str]) -> dict[str, Any]:
    main = {"name": "main", "image": "registry.example/app:1", "resources": {"limits": limits}}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": ILL_NODE,
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
        },
    }


async def _governs(admin: Client, namespace: str) -> bool:
    status = (await admin.get(SHARING_PROFILES, "strict")).get("status", {})
    return namespace in {each["name"] for each in status.get("namespaces", ())}


async def _is(look: Callable[[], Awaitable[bool]], wanted: bool) -> bool:
    return await look() is wanted


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "gpu.sharing/v1alpha1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


async def _is_judged(admin: Client, kind: Kind, name: str) -> bool:
    return bool((await admin.get(kind, name)).get("status", {}).get("conditions"))


async def _has_spec(admin: Client) -> bool:
    return bool((await admin.get(GPU_NODES, ILL_NODE))["spec"].get("gpus"))


async def _is_gone(admin: Client) -> bool:
    try:
        pod = await admin.get(PODS, "train", namespace="evicted")
    except NotFoundError:
        return True
    return "deletionTimestamp" in pod["metadata"]


async def _is_renewed(admin: Client) -> bool:
    lease = await admin.get(LEASES, "gpu-sharing-controller", namespace=_PLACE.namespace)
    return bool(lease["spec"]["renewTime"] != lease["spec"]["acquireTime"])
