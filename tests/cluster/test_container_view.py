"""What a container on a real node can see and open of GPUs, whatever it tries.

Each form of request and what its container sees is in ``tests/trial``, on both clusters. Here a
container does what only a real one can: it makes device files itself, starts again, and is
visited by a debug container.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from cli.trial.viewing import Seen, telling, told
from sharing.cluster.client import PatchType
from sharing.cluster.kind import PODS
from sharing.plugin.binding import FILES_FOLDER
from sharing.plugin.simulatedfiles import MAJOR, minor_of
from tests.cluster.box.box import Box
from tests.cluster.box.configuration import IMAGE
from tests.cluster.needs import Tier
from tests.cluster.waiting import eventually
from tests.support.trials import PodKey, Trial

pytestmark = [
    pytest.mark.cluster(Tier.NODE.value),
    pytest.mark.asyncio(loop_scope="session"),
]

NUMBERS: Final = itertools.count()
TELL: Final = telling({"spec": {"initContainers": [{"name": "main"}]}}, IMAGE)["spec"][
    "initContainers"
][0]["command"]
REFUSED: Final = "Operation not permitted"
NO_DRIVER: Final = "No such device or address"
"""What a simulated GPU answers who may open it."""


def asking(namespace: str, fraction: str = "1/4", **spec: Any) -> dict[str, Any]:
    annotations = {"gpu.sharing/fraction": fraction} if fraction else {}
    name = f"v{next(NUMBERS)}"
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": IMAGE}], **spec},
    }


@asynccontextmanager
async def running(trial: Trial, manifest: dict[str, Any]) -> AsyncIterator[PodKey]:
    key = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    await trial.create(manifest)
    try:
        pod = await trial.reaches(key, "Running", "Failed")
        assert pod["status"]["phase"] == "Running", pod["status"]
        yield key
    finally:
        await trial.delete(key)


def execute(box: Box, key: PodKey, *command: str, container: str = "main") -> str:
    return box.kubectl("-n", key[0], "exec", key[1], "-c", container, "--", *command)


def sees(box: Box, key: PodKey, container: str = "main") -> Seen:
    """What a process that enters the container now sees."""
    found = told(execute(box, key, *TELL, container=container))
    assert found is not None
    return found


def opening(box: Box, key: PodKey, *minors: int) -> dict[int, str]:
    """What a container is told that makes the files of simulated GPUs and opens them."""
    wanted = " ".join(map(str, minors))
    said = execute(
        box, key, "sh", "-c",
        f"for minor in {wanted}; do busybox mknod /tmp/made$minor c {MAJOR} $minor; "
        'echo "$minor $( (: <>/tmp/made$minor) 2>&1)"; done',
    )  # fmt: skip
    return {int(line.split(" ", 1)[0]): line.split(": ")[-1] for line in said.splitlines()}


@pytest.mark.parametrize("mode", ["mig", "mps", "time-slicing", "exclusive"])
async def test_a_container_opens_its_own_gpu_and_no_other_even_by_a_file_of_its_own(
    trial: Trial, own_box: Box, mode: str
) -> None:
    async with running(trial, asking(mode, "1" if mode == "exclusive" else "1/4")) as key:
        view = sees(own_box, key)
        own = {minor_of(path) for path in view.device_nodes}
        others = {gpu.minor for gpu in trial.machine.gpus} - own

        assert len(others) == len(trial.machine.gpus) - 1
        allowed = {minor: NO_DRIVER for minor in own if minor is not None}
        refused = dict.fromkeys(others, REFUSED)
        assert opening(own_box, key, *allowed, *refused) == allowed | refused


async def test_a_pod_without_a_gpu_sees_none_and_opens_none(trial: Trial, own_box: Box) -> None:
    async with running(trial, asking("mps", "")) as key:
        assert sees(own_box, key) == Seen(env={}, device_nodes=(), mounts=())
        minors = [gpu.minor for gpu in trial.machine.gpus]
        assert opening(own_box, key, *minors) == dict.fromkeys(minors, REFUSED)


async def test_a_container_of_mps_reaches_its_daemon_and_no_other_folder(
    trial: Trial, own_box: Box
) -> None:
    async with running(trial, asking("mps")) as key:
        pipe = sees(own_box, key).env["CUDA_MPS_PIPE_DIRECTORY"]
        listed = execute(own_box, key, "sh", "-c", f"ls {pipe} {pipe}/../..").split()

        assert any("control" in name for name in listed), listed
        uuids = [name for name in listed if name.startswith("GPU-")]
        assert uuids == [trial.machine.gpus[2].uuid]


async def test_a_container_reads_of_its_share_in_a_file(trial: Trial, own_box: Box) -> None:
    async with running(trial, asking("mig")) as key:
        view = sees(own_box, key)
        (file,) = (path for path in view.mounts if path.startswith(FILES_FOLDER))

        told = json.loads(execute(own_box, key, "cat", file))

        assert told["share"] == view.env["GPU_SHARING_SHARES"]
        assert told["device"] == view.env["NVIDIA_VISIBLE_DEVICES"]
        refused = execute(own_box, key, "sh", "-c", f"(: >{file}) 2>&1; true")
        assert "Read-only file system" in refused


async def test_a_container_that_starts_again_sees_what_it_saw(trial: Trial, own_box: Box) -> None:
    """The kubelet does not ask again: what it was answered once has to last."""
    async with running(trial, asking("mig")) as key:
        before, held = sees(own_box, key), await trial.held()
        with suppress(subprocess.CalledProcessError):  # the shell may end with its container
            execute(own_box, key, "sh", "-c", "kill -TERM 1")

        async def started_again() -> bool:
            pod = await trial.client.get(PODS, key[1], namespace=key[0])
            (status,) = pod["status"]["containerStatuses"]
            return bool(status["restartCount"] == 1 and "running" in status["state"])

        await eventually("it runs again", started_again)
        assert sees(own_box, key) == before
        assert await trial.held() == held


async def test_a_debug_container_sees_nothing_of_its_pods_share(trial: Trial, own_box: Box) -> None:
    async with running(trial, asking("time-slicing")) as key:
        visitor = {"name": "visitor", "image": IMAGE, "imagePullPolicy": "Never"}
        await trial.client.patch(
            PODS, key[1], {"spec": {"ephemeralContainers": [visitor]}}, namespace=key[0],
            subresource="ephemeralcontainers", patch_type=PatchType.STRATEGIC,
        )  # fmt: skip

        async def visits() -> bool:
            pod = await trial.client.get(PODS, key[1], namespace=key[0])
            statuses = pod["status"].get("ephemeralContainerStatuses") or ()
            return any("running" in each["state"] for each in statuses)

        await eventually("the visitor runs", visits)
        assert sees(own_box, key).device_nodes
        assert sees(own_box, key, "visitor") == Seen(env={}, device_nodes=(), mounts=())
