"""Each request form in each mode, from admission through scheduling to what the container sees.

The pods run on a cluster with the product's real programs; each is deleted again, so that the
next finds its share free. One form runs in all modes together: they take nothing from each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from cli.trial.viewing import Seen
from sharing.mode import Mode
from sharing.names import GRANTS_ANNOTATION
from sharing.plugin.binding import FILES_FOLDER, SHARES_ENV
from tests.support.forms import Case, cases
from tests.support.trials import Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMS = tuple(dict.fromkeys(case.name for case in cases()))
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_becomes_its_share_on_a_gpu(form: str, trial: Trial) -> None:
    chosen = [case for case in cases() if case.name == form]
    try:
        await asyncio.gather(*(becomes_its_share(case, trial) for case in chosen))
    finally:
        await trial.delete(*(key_of(case) for case in chosen))


def key_of(case: Case) -> tuple[str, str]:
    return case.mode.value, case.name


async def becomes_its_share(case: Case, trial: Trial) -> None:
    await trial.create(case.manifest)
    pod = await trial.reaches(key_of(case), "Running", "Failed")
    assert pod["status"]["phase"] == "Running", (case.mode, pod["status"])
    granted = GRANTS_ANNOTATION in pod["metadata"].get("annotations", {})
    assert granted or not case.expected, case.mode
    held = await trial.held()
    for container in (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]:
        view = await trial.view(key_of(case), container["name"])
        assert view is not None
        resource = case.expected.get(container["name"])
        listed = held.get((*key_of(case), container["name"]), {})
        if resource:
            check_share(case.mode, resource, view, trial)
            ended = container["name"] == "warm"  # the kubelet lists those that may hold on
            assert ended or listed == {resource: (view.env[SHARES_ENV],)}
        else:
            assert (view, listed) == (Seen(env={}, device_nodes=(), mounts=()), {}), case.mode


def check_share(mode: Mode, resource: str, view: Seen, trial: Trial) -> None:
    """One device, and what binds the container to it."""
    env = view.env
    gpu = env[SHARES_ENV].partition("::")[0]
    assert "," not in env[SHARES_ENV]
    assert env["GPU_SHARING_MODE"] == mode.value
    assert env["GPU_SHARING_RESOURCE"] == resource
    visible = env["NVIDIA_VISIBLE_DEVICES"]
    assert visible.startswith("MIG-") if mode is Mode.MIG else visible == gpu
    check_files(mode, trial.index_of(gpu), view.device_nodes)
    file = f"{FILES_FOLDER}/{env[SHARES_ENV].replace('::', '_')}.json"
    assert sorted(view.mounts) == sorted((*mps_mounts(env), file))
    assert ("CUDA_MPS_PIPE_DIRECTORY" in env) == (mode is Mode.MPS)
    if mode is Mode.MPS:
        percentage = {"gpu.sharing/mps-1of4": "25", "gpu.sharing/mps-1of2": "50"}[resource]
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percentage
        assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].endswith("M")


def check_files(mode: Mode, index: int, files: tuple[str, ...]) -> None:
    """Its GPU's file, the driver's own, and a MIG instance's two; each may be opened."""
    capabilities = {path for path in files if path.startswith("/dev/nvidia-caps/nvidia-cap")}
    assert len(capabilities) == (2 if mode is Mode.MIG else 0)
    assert set(files) == {f"/dev/nvidia{index}", *CONTROL, *capabilities}


def mps_mounts(env: Mapping[str, str]) -> tuple[str, ...]:
    pipe = env.get("CUDA_MPS_PIPE_DIRECTORY")
    return (pipe,) if pipe else ()
