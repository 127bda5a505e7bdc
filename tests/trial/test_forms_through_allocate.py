"""Each request form in each mode, from admission through scheduling to what the container sees.

The pods run on a cluster with the product's real programs; each is deleted again, so that the
next finds its share free.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cli.trial.viewing import Seen
from sharing.mode import Mode
from sharing.names import GRANTS_ANNOTATION
from sharing.plugin.binding import SHARES_ENV
from tests.support.forms import Case, cases
from tests.support.trials import Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.name}-{c.mode}") for c in cases()])
async def test_a_form_becomes_its_share_on_a_gpu(case: Case, trial: Trial) -> None:
    key = case.mode.value, case.name

    await trial.create(case.manifest)
    try:
        pod = await trial.reaches(key, "Running", "Failed")

        assert pod["status"]["phase"] == "Running", pod["status"]
        assert GRANTS_ANNOTATION in pod["metadata"]["annotations"]
        held = await trial.held()
        for container in (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]:
            view = await trial.view(key, container["name"])
            assert view is not None
            resource = case.expected.get(container["name"])
            listed = held.get((*key, container["name"]), {})
            if resource:
                check_share(case.mode, resource, view)
                ended = container["name"] == "warm"  # the kubelet lists those that may hold on
                assert ended or listed == {resource: (view.env[SHARES_ENV],)}
            else:
                assert (dict(view.env), view.mounts, listed) == ({}, (), {})
    finally:
        await trial.delete(key)


def check_share(mode: Mode, resource: str, view: Seen) -> None:
    """One device, and what binds the container to it."""
    env = view.env
    gpu = env[SHARES_ENV].partition("::")[0]
    assert "," not in env[SHARES_ENV]
    assert env["GPU_SHARING_MODE"] == mode.value
    assert env["GPU_SHARING_RESOURCE"] == resource
    visible = env["NVIDIA_VISIBLE_DEVICES"]
    assert visible.startswith("MIG-") if mode is Mode.MIG else visible == gpu
    assert view.mounts == mps_mounts(env)
    assert ("CUDA_MPS_PIPE_DIRECTORY" in env) == (mode is Mode.MPS)
    if mode is Mode.MPS:
        percentage = {"gpu.sharing/mps-1of4": "25", "gpu.sharing/mps-1of2": "50"}[resource]
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percentage
        assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].endswith("M")


def mps_mounts(env: Mapping[str, str]) -> tuple[str, ...]:
    pipe = env.get("CUDA_MPS_PIPE_DIRECTORY")
    return (pipe,) if pipe else ()
