"""Policies beyond one share: one quota over all modes, several whole GPUs; on both clusters."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sharing.cluster.errors import ApiError, ForbiddenError
from sharing.cluster.kind import NAMESPACES, PODS, RESOURCE_QUOTAS, SHARING_PROFILES
from sharing.names import MILLI_GPU
from sharing.plugin.binding import SHARES_ENV
from tests.cluster.waiting import eventually
from tests.support.forms import IMAGE
from tests.support.running import key_of
from tests.support.trials import Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUMBERS = itertools.count()


def asking(
    namespace: str, *, limits: Mapping[str, str] | None = None, **keys: str
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"q{next(NUMBERS)}", "namespace": namespace,
            "annotations": {f"gpu.sharing/{key}": value for key, value in keys.items()},
        },
        "spec": {"containers": [
            {"name": "main", "image": IMAGE, "resources": {"limits": dict(limits or {})}}
        ]},
    }  # fmt: skip


@asynccontextmanager
async def governed(trial: Trial, probe: Mapping[str, str], **spec: Any) -> AsyncIterator[str]:
    """A namespace of a new profile, once the webhook knows both: ``probe`` becomes a share."""
    name = f"policy-{next(NUMBERS)}"
    profile = {
        "apiVersion": SHARING_PROFILES.api_version, "kind": SHARING_PROFILES.kind,
        "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip
    await trial.client.create(SHARING_PROFILES, profile)
    labels = {"gpu.sharing/profile": name}
    await trial.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    await trial.installed.ground.namespace_made(trial.client, name)

    async def in_force() -> bool:
        try:
            tried = await trial.client.create(PODS, asking(name, limits=probe), dry_run=True)
        except ApiError:
            return False
        return "status.gpu.sharing/grants" in tried["metadata"].get("annotations", {})

    try:
        await eventually(f"profile {name} is in force", in_force)
        yield name
    finally:
        listed = (await trial.client.list(PODS, namespace=name))["items"]
        await trial.delete(*((name, pod["metadata"]["name"]) for pod in listed))
        await trial.client.delete(NAMESPACES, name)
        await trial.client.delete(SHARING_PROFILES, name)


async def test_one_quota_counts_every_share_in_thousandths(trial: Trial) -> None:
    """Of three quarters two fit into 500; the third is refused before anything is scheduled."""
    policy = {"mode": "time-slicing", "accounting": True, "defaultSize": "1of4"}
    async with governed(trial, {"nvidia.com/gpu": "1"}, **policy) as space:
        quota = {
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": space},
            "spec": {"hard": {f"requests.{MILLI_GPU}": "500"}},
        }  # fmt: skip
        await trial.client.create(RESOURCE_QUOTAS, quota)

        async def counted() -> bool:
            made = await trial.client.get(RESOURCE_QUOTAS, "gpus", namespace=space)
            return bool((made.get("status") or {}).get("hard"))

        await eventually("the quota is in force", counted)
        first, second, third = (asking(space, limits={"nvidia.com/gpu": "1"}) for _ in range(3))
        for each in (first, second):
            made = await trial.create(each)
            requests = made["spec"]["containers"][0]["resources"]["requests"]
            assert requests == {"gpu.sharing/timeslice-1of4": "1", MILLI_GPU: "250"}

        with pytest.raises(ForbiddenError) as refused:
            await trial.create(third)
        name = third["metadata"]["name"]
        assert refused.value.message == (
            f'pods "{name}" is forbidden: exceeded quota: gpus, requested: '
            f"requests.{MILLI_GPU}=250, used: requests.{MILLI_GPU}=500, "
            f"limited: requests.{MILLI_GPU}=500"
        )

        await trial.reaches(key_of(first), "Running")
        await trial.delete(key_of(first))

        async def fits() -> bool:
            try:
                await trial.create(third)
            except ForbiddenError:
                return False
            return True

        await eventually("the quota has room again", fits)
        await trial.reaches(key_of(third), "Running")


async def test_several_whole_gpus_are_seen_together_and_no_other(trial: Trial) -> None:
    policy = {"mode": "exclusive", "wholeGPU": "keep", "multiGPU": "exclusive"}
    async with governed(trial, {"nvidia.com/gpu": "2"}, **policy) as space:
        pair = asking(space, limits={"nvidia.com/gpu": "2"})
        await trial.create(pair)
        await trial.reaches(key_of(pair), "Running")

        view = await trial.view(key_of(pair))

        assert view is not None
        ids = view.env[SHARES_ENV].split(",")
        assert view.env["NVIDIA_VISIBLE_DEVICES"].split(",") == ids
        files = {path for path in view.device_nodes if path[-1].isdigit()}
        assert files == {f"/dev/nvidia{trial.index_of(uuid)}" for uuid in ids}
        assert len(files) == 2
        held = await trial.held()
        assert sorted(held[*key_of(pair), "main"]["nvidia.com/gpu"]) == sorted(ids)
        await trial.counts_agree()
