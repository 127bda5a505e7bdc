"""Shares cut from MIG instances, from admission to what the container sees.

One of the whole GPUs is cut for as long as the test looks, beside all that the node serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from cli.trial.objects import until
from cli.trial.viewing import Seen
from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES
from sharing.names import GRANTS_ANNOTATION
from sharing.plugin.binding import SHARES_ENV
from tests.support.forms import IMAGE, LAYOUT
from tests.support.running import running
from tests.support.trials import WAIT_S, PodKey, Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

CUT: Final = {
    "gpus": "7", "mode": "mig", "sizes": {"2g.20gb": 2, "1g.10gb": 1},
    "cut": {
        "2g.20gb": {"mode": "mps", "sizes": {"1of2": 2}},
        "1g.10gb": {"mode": "time-slicing", "sizes": {"1of2": 2}},
    },
}  # fmt: skip
HALF, TURNS = "gpu.sharing/mig-2g.20gb.mps-1of2", "gpu.sharing/mig-1g.10gb.timeslice-1of2"
GPU: Final = "nvidia.com/gpu"
MIB: Final = 20096


def asking(name: str, namespace: str, **main: Any) -> dict[str, Any]:
    fraction = main.pop("fraction", "")
    annotations = {"gpu.sharing/fraction": fraction} if fraction else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": IMAGE, **main}]},
    }


PODS: Final = (
    asking("eighth", "mps", fraction="1/8"),  # half of two of eight memory slices
    asking("named", "mps", resources={"limits": {HALF: "1"}}),
    asking("turns", "time-slicing", fraction="1/16"),
)


async def test_parts_of_mig_instances_are_given_out_and_taken_back(trial: Trial) -> None:
    before = await trial.offered()
    cut = before | {GPU: before[GPU] - 1, HALF: 4, TURNS: 2}
    await lay_out(trial, CUT, *LAYOUT)
    await trial.counts_agree(lambda offered: offered == cut)
    async with trial.watched(), running(trial, *PODS) as keys:
        eighth, named, turns = [await checked(trial, key) for key in keys]
        assert eighth.env["GPU_SHARING_RESOURCE"] == HALF
        assert named.env["GPU_SHARING_RESOURCE"] == HALF
        assert turns.env["GPU_SHARING_RESOURCE"] == TURNS
        assert len({one.env[SHARES_ENV] for one in (eighth, named, turns)}) == 3
        check_mps(eighth)
        assert "CUDA_MPS_PIPE_DIRECTORY" not in turns.env
    async with running(trial, PODS[0]) as keys:
        await lay_out(trial, *LAYOUT)
        await blocked(trial, keys)
        assert (await trial.reaches(keys[0], "Running"))["status"]["phase"] == "Running"
    await trial.counts_agree(lambda offered: offered == before)


async def lay_out(trial: Trial, *entries: Mapping[str, Any]) -> None:
    await trial.client.patch(GPU_LAYOUTS, "all", {"spec": {"gpus": list(entries)}})


async def checked(trial: Trial, key: PodKey) -> Seen:
    """What a container sees: its instance's files and UUID, and no other's."""
    pod = await trial.reaches(key, "Running")
    assert GRANTS_ANNOTATION in pod["metadata"]["annotations"]
    view = await trial.view(key)
    assert view is not None
    env = view.env
    (device_id,) = (await trial.held())[*key, "main"][env["GPU_SHARING_RESOURCE"]]
    assert env[SHARES_ENV] == device_id
    uuid, place, _ = device_id.split("::")
    index = trial.index_of(uuid)
    gpu = trial.machine.gpus[index]
    assert index == 7
    (instance,) = [one for one in gpu.instances if place.endswith(f"gb-{one.start}")]
    assert env["NVIDIA_VISIBLE_DEVICES"] == instance.compute[0].uuid
    first = 3 + gpu.minor * 135 + instance.id * 9
    caps = {path for path in view.device_nodes if "nvidia-caps" in path}
    assert caps == {f"/dev/nvidia-caps/nvidia-cap{first + n}" for n in (0, 1)}
    return view


def check_mps(view: Seen) -> None:
    env = view.env
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={MIB // 2}M"
    assert env["NVIDIA_VISIBLE_DEVICES"] in env["CUDA_MPS_PIPE_DIRECTORY"]
    assert env["CUDA_MPS_PIPE_DIRECTORY"] in view.mounts


async def blocked(trial: Trial, keys: list[PodKey]) -> None:
    """The layout waits for each of the pods, by name."""
    names = {f"pod {namespace}/{name}" for namespace, name in keys}

    def waits(store: Mapping[PodKey, Mapping[str, Any]]) -> bool:
        node = store.get(("", trial.place.name)) or {}
        said = str(((node.get("status") or {}).get("plan") or {}).get("blockedBy"))
        return all(name in said for name in names)

    await until(trial.client, GPU_NODES, waits, what=f"waits for {names}", timeout_s=WAIT_S)
