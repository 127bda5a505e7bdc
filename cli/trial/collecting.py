"""Runs a scenario's pods and reads back what became of them.

Sources: the API server for pods and GPUNodes, each kubelet's PodResources for devices, the
containers for what they see, NVML for the GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import grpc
import orjson

from cli.trial.asking import asked, gpu_resource
from cli.trial.facts import ContainerFacts, Facts, GpuFacts, PodFacts, ShareFacts
from cli.trial.ground import Place
from cli.trial.installation import Installation
from cli.trial.objects import until
from cli.trial.scenario import PodSpec, Scenario
from sharing.api.layout import LayoutSpec
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import GPU_NODES, PODS
from sharing.errors import UnavailableError
from sharing.names import GRANTS_ANNOTATION
from sharing.nvml.driver import Driver
from sharing.nvml.observed import ObservedGpu
from sharing.plugin.binding import SHARES_ENV
from sharing.plugin.proto import podresources_pb2
from sharing.plugin.proto.podresources_pb2_grpc import PodResourcesListerStub

_SETTLE_TIMEOUT_S: Final = 20.0
_ENDED: Final = ("Running", "Failed", "Succeeded")

Devices = Mapping[tuple[str, str, str], Mapping[str, tuple[str, ...]]]
"""Device ids by resource, by (namespace, pod, container)."""


async def run(scenario: Scenario, installed: Installation) -> Facts:
    """Create the pods in order, wait until they settle, read everything back."""
    begun = time.monotonic()
    drafts = [await _create(pod, installed) for pod in scenario.pods]
    admitted = time.monotonic()
    await _settle(scenario.pods, drafts, installed)
    settled = time.monotonic()
    places = installed.ground.places
    devices = {place.name: await read_devices(place) for place in places}
    gpus = [gpu for place in places for gpu in await _gpus(installed, place, devices)]
    index_by_uuid = {gpu.uuid: gpu.index for gpu in gpus}
    pods = [await _read(draft, installed, devices, index_by_uuid) for draft in drafts]
    return Facts(
        pods=tuple(pods),
        gpus=tuple(gpus),
        elapsed_s={
            "admission": round(admitted - begun, 3),
            "scheduling and start": round(settled - admitted, 3),
        },
    )


async def _create(pod: PodSpec, installed: Installation) -> PodFacts:
    """One pod's way through admission."""
    warnings: list[str] = []
    draft = PodFacts(
        key=pod.key, about=pod.about, asked=asked(pod.manifest), verdict="allow", code=201,
        message="", warnings=(), phase=None, node=None, containers=(),
    )  # fmt: skip
    try:
        manifest = installed.ground.fitted(pod.manifest)
        created = await installed.objects.create(PODS, manifest, warnings=warnings)
    except ApiError as error:
        if not error.code:
            raise
        message = str(error.status.get("message") or error.wrong)
        return replace(
            draft, verdict="deny", code=error.code, message=message, warnings=tuple(warnings)
        )
    granted = GRANTS_ANNOTATION in (created["metadata"].get("annotations") or {})
    return replace(draft, verdict="patch" if granted else "allow", warnings=tuple(warnings))


async def _settle(
    pods: Sequence[PodSpec], drafts: Sequence[PodFacts], installed: Installation
) -> None:
    """Wait until every admitted pod runs, has ended, or is pending as the scenario wants."""
    wanted = {
        (pod.namespace, pod.name): pod.expect.phase or "Running"
        for pod, draft in zip(pods, drafts, strict=True)
        if draft.verdict != "deny"
    }

    def settled(objects: Mapping[tuple[str, str], Mapping[str, Any]]) -> bool:
        phases = {key: (pod.get("status") or {}).get("phase") for key, pod in objects.items()}
        return all(
            phases.get(key) in _ENDED or (phase == "Pending" and _is_waiting(objects.get(key)))
            for key, phase in wanted.items()
        )

    try:
        await until(installed.client, PODS, settled, what="the pods", timeout_s=_SETTLE_TIMEOUT_S)
    except UnavailableError:
        return  # what has not settled deviates, and the report says how


def _is_waiting(pod: Mapping[str, Any] | None) -> bool:
    """Whether the scheduler has said that it finds no node."""
    conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def read_devices(place: Place) -> Devices:
    """What a node's kubelet says about who holds which device; nothing if it cannot be asked."""
    if place.pod_resources is None:
        return {}
    async with grpc.aio.insecure_channel(f"unix:{place.pod_resources}") as channel:
        answer = await PodResourcesListerStub(channel).List(
            podresources_pb2.ListPodResourcesRequest(), timeout=10
        )
    found: dict[tuple[str, str, str], dict[str, tuple[str, ...]]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            held = found.setdefault((pod.namespace, pod.name, container.name), {})
            for device in container.devices:
                known = held.get(device.resource_name, ())
                held[device.resource_name] = (*known, *device.device_ids)
    return found


async def _read(
    draft: PodFacts,
    installed: Installation,
    devices: Mapping[str, Devices],
    index_by_uuid: Mapping[str, int],
) -> PodFacts:
    if draft.verdict == "deny":
        return draft
    namespace, _, name = draft.key.partition("/")
    pod = await installed.client.get(PODS, name, namespace=namespace)
    status, spec = pod.get("status") or {}, pod["spec"]
    node = spec.get("nodeName")
    reasons = _reasons(pod)
    containers = []
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        key = (namespace, name, container["name"])
        held = devices.get(node or "", {}).get(key, {})
        facts = await _container(installed, node, key, held)
        uuids = [device_id.partition("::")[0] for device_id in facts.device_ids]
        containers.append(
            replace(
                facts,
                resource=gpu_resource(container)[0],
                gpus=tuple(
                    sorted({index_by_uuid[uuid] for uuid in uuids if uuid in index_by_uuid})
                ),
                why=reasons.get(container["name"], ""),
            )
        )
    return replace(
        draft, phase=status.get("phase"), node=node, message=_trouble(status),
        containers=tuple(containers),
    )  # fmt: skip


async def _container(
    installed: Installation,
    node: str | None,
    key: tuple[str, str, str],
    listed: Mapping[str, tuple[str, ...]],
) -> ContainerFacts:
    """What a container holds and sees; one that has finished is listed no more, but has seen."""
    view = None
    if node is not None:
        place = installed.place(node)
        view = await installed.ground.view(installed.client, place, key[:2], key[2])
    sees = {} if view is None else view.env
    ids = [device_id for held in listed.values() for device_id in held]
    return ContainerFacts(
        name=key[2],
        resource=None,
        device_ids=tuple(ids or filter(None, sees.get(SHARES_ENV, "").split(","))),
        gpus=(),
        sees=sees,
        device_nodes=() if view is None else view.device_nodes,
        mounts=() if view is None else view.mounts,
        why="",
    )


def _reasons(pod: Mapping[str, Any]) -> dict[str, str]:
    text = (pod["metadata"].get("annotations") or {}).get(GRANTS_ANNOTATION)
    return {grant["container"]: grant["reason"] for grant in orjson.loads(text)} if text else {}


def _trouble(status: Mapping[str, Any]) -> str:
    """Why a pod does not run, in the words of scheduler or kubelet."""
    if status.get("phase") == "Running":
        return ""
    said = [status.get("message")]
    said += [each.get("message") for each in status.get("conditions") or ()]
    for each in status.get("containerStatuses") or ():
        said.append(((each.get("state") or {}).get("waiting") or {}).get("message"))
    return next((text for text in said if text), "")


async def _gpus(
    installed: Installation, place: Place, devices: Mapping[str, Devices]
) -> list[GpuFacts]:
    """A node's GPUs: NVML beside GPUNode status, shares beside the kubelet's holders."""
    if place.kubelet is None:
        return []  # neither its NVML nor its kubelet is within reach
    status = (await installed.client.get(GPU_NODES, place.name)).get("status") or {}
    reported = {gpu["uuid"]: gpu for gpu in status.get("gpus") or ()}
    holders = {
        device_id: "/".join(key)
        for key, held in devices[place.name].items()
        for ids in held.values()
        for device_id in ids
    }
    with Driver(place.gpus) as driver:
        observed = driver.observe()
    return [_gpu(place.name, gpu, reported.get(gpu.uuid, {}), holders) for gpu in observed.gpus]


def _gpu(
    node: str, gpu: ObservedGpu, reported: Mapping[str, Any], holders: Mapping[str, str]
) -> GpuFacts:
    layout = reported.get("layout")
    return GpuFacts(
        node=node,
        index=gpu.index,
        uuid=gpu.uuid,
        board=gpu.board.name,
        layout=str(LayoutSpec.model_validate(layout).to_layout()) if layout else "being changed",
        observed=_observed(gpu),
        shares=tuple(
            ShareFacts(
                device_id=share["id"],
                resource=share["resource"],
                memory_mib=share["memoryMiB"],
                holder=holders.get(share["id"]),
            )
            for share in reported.get("shares") or ()
        ),
    )


def _observed(gpu: ObservedGpu) -> str:
    if gpu.fault is not None:
        return f"fault: {gpu.fault.reason}"
    if gpu.mig_mode:
        placed = [f"{each.profile}@{each.placement.start}" for each in gpu.instances]
        return "MIG " + " ".join(placed)
    return f"whole, compute mode {gpu.compute_mode.name.lower().replace('_', ' ')}"
