"""What the API server answers and whom the scheduler lets in: the same on both clusters."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sharing.cluster.errors import ApiError, BadRequestError
from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES, PODS
from sharing.names import GRANTS_ANNOTATION
from tests.support.forms import IMAGE
from tests.support.running import key_of
from tests.support.trials import Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUMBERS = itertools.count()


def asking(
    namespace: str, *, limits: dict[str, str] | None = None, **annotations: str
) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "resources": {"limits": limits or {}}}
    return {
        "metadata": {
            "name": f"a{next(NUMBERS)}", "namespace": namespace,
            "annotations": {f"gpu.sharing/{key}": value for key, value in annotations.items()},
        },
        "spec": {"containers": [container]},
    }  # fmt: skip


async def test_the_request_of_a_pod_and_what_it_became_are_told_at_once(trial: Trial) -> None:
    warnings: list[str] = []
    asked = trial.installed.ground.fitted(asking("mps", limits={"nvidia.com/gpu": "1"}))

    made = await trial.client.create(PODS, asked, dry_run=True, warnings=warnings)

    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {name: {"gpu.sharing/mps-1of4": "1"} for name in ("limits", "requests")}
    assert GRANTS_ANNOTATION in made["metadata"]["annotations"]
    assert warnings == [
        "main: nvidia.com/gpu: 1 -> gpu.sharing/mps-1of4 (default 1of4 of profile p-mps)"
    ]


@pytest.mark.parametrize(
    ("annotations", "code", "says"),
    [
        ({"fraction": "much"}, 422, "'much' is no fraction"),
        ({"memory": "lots"}, 422, "lots"),
        ({"fracton": "0.5"}, 422, "fracton"),
        ({"mode": "mig"}, 403, "does not allow mode mig"),
        ({"fraction": "0.9"}, 403, "0.9"),
    ],
)
async def test_a_refusal_is_the_webhooks_own_sentence(
    trial: Trial, annotations: dict[str, str], code: int, says: str
) -> None:
    asked = asking("mps", limits={"nvidia.com/gpu": "1"} if "mode" in annotations else None,
                   **annotations)  # fmt: skip

    with pytest.raises(ApiError) as refused:
        await trial.create(asked)

    assert refused.value.code == code
    assert says in refused.value.message
    assert refused.value.message.startswith('admission webhook "pods.gpu.sharing" denied')


async def test_a_pod_waits_for_a_share_and_starts_when_one_is_freed(trial: Trial) -> None:
    """The node has two halves by MIG."""
    pods = [asking("mig", fraction="1/2") for _ in range(3)]
    keys = [key_of(each) for each in pods]
    try:
        for each in pods[:2]:
            await trial.create(each)
            await trial.reaches(key_of(each), "Running")
        await trial.create(pods[2])
        waiting = await trial.unschedulable(keys[2])
        assert "Insufficient nvidia.com/mig-3g.40gb" in waiting

        await trial.delete(keys[0])
        await trial.reaches(keys[2], "Running")
    finally:
        await trial.delete(*keys)


async def test_a_custom_object_has_to_say_what_it_is(trial: Trial) -> None:
    path = GPU_NODES.path()

    with pytest.raises(BadRequestError, match=r"must be of type GPUNode.*Object 'Kind' is missing"):
        await trial.client.request("POST", path, body={"metadata": {"name": "x"}, "spec": {}})
    with pytest.raises(BadRequestError, match=r"API version in the data \(\) does not match"):
        await trial.client.request(
            "POST", path, body={"kind": "GPUNode", "metadata": {"name": "x"}, "spec": {}}
        )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"gpus": "all", "mode": "mps"}, "mps and time-slicing need sizes"),
        ({"gpus": "all", "mode": "exclusive", "sizes": {"1of2": 2}}, "has no sizes"),
        ({"gpus": "all", "mode": "mig", "sizes": {"1of2": 2}}, "mig needs MIG profiles"),
        ({"gpus": "all", "mode": "none"}, "Unsupported value"),
        ({"gpus": "all", "mode": "mps", "sizes": {"1of4": 4}, "pool": "limits"}, "can be a pool"),
    ],
)
async def test_a_layout_that_means_nothing_is_refused_by_the_schema(
    trial: Trial, entry: dict[str, Any], says: str
) -> None:
    layout = {"apiVersion": GPU_LAYOUTS.api_version, "kind": GPU_LAYOUTS.kind,
              "metadata": {"name": "refused"}, "spec": {"gpus": [entry]}}  # fmt: skip

    with pytest.raises(ApiError) as refused:
        await trial.client.create(GPU_LAYOUTS, layout, dry_run=True)

    assert refused.value.code == 422
    assert says in refused.value.message
