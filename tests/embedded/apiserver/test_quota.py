"""ResourceQuota: checked last, extended resources by ``requests.`` alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from embedded.apiserver.admission.quota import pod_total
from tests.support.apiserver import PODS, Client, gpu_pod, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
MILLI = "gpu.sharing/milli-gpu"


async def test_what_goes_beyond_is_forbidden_in_upstreams_words(api: Client) -> None:
    await api.made(
        QUOTAS, {"metadata": {"name": "gpu"}, "spec": {"hard": {f"requests.{MILLI}": "500"}}}
    )
    for name in ("a", "b"):
        await api.made(PODS, gpu_pod(name, MILLI, "250"))
    reply = await api.create(PODS, gpu_pod("c", MILLI, "250"))
    assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
    assert reply.body["message"] == (
        'pods "c" is forbidden: exceeded quota: gpu, requested: '
        f"requests.{MILLI}=250, used: requests.{MILLI}=500, limited: requests.{MILLI}=500"
    )
    assert (await api.create(PODS, pod("free"))).code == 201
    await api.delete(f"{PODS}/a")
    assert (await api.create(PODS, gpu_pod("c", MILLI, "250"))).code == 201


@pytest.mark.parametrize("key", [f"limits.{MILLI}", MILLI])
async def test_other_spellings_of_an_extended_resource_limit_nothing(api: Client, key: str) -> None:
    await api.made(QUOTAS, {"metadata": {"name": "gpu"}, "spec": {"hard": {key: "1"}}})
    assert (await api.create(PODS, gpu_pod("c", MILLI, "250"))).code == 201


async def test_a_finished_pod_counts_no_more(api: Client) -> None:
    await api.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    await api.made(PODS, pod("a"))
    assert (await api.create(PODS, pod("b"))).code == 403
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    assert (await api.create(PODS, pod("b"))).code == 201


async def test_a_quota_on_cpu_wants_every_container_to_say_how_much(api: Client) -> None:
    await api.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1"}}})
    reply = await api.create(PODS, pod())
    assert "failed quota: q: must specify requests.cpu for: c" in reply.body["message"]
    assert (await api.create(PODS, pod(cpu="900m"))).code == 201
    assert (
        "used: requests.cpu=900m" in (await api.create(PODS, pod("b", cpu="200m"))).body["message"]
    )


async def test_a_race_does_not_pass_the_quota(api: Client) -> None:
    """The check and the write are one step."""
    await api.made(
        QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{MILLI}": "3"}}}
    )
    pods = [gpu_pod(f"p{n}", MILLI, "1") for n in range(8)]
    replies = await asyncio.gather(*(api.create(PODS, wanted) for wanted in pods))
    assert sorted(reply.code for reply in replies) == [201] * 3 + [403] * 5


async def test_objects_can_be_counted(api: Client) -> None:
    await api.made(
        QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/deployments.apps": "0"}}}
    )
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]},
    }
    reply = await api.create(
        "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}, "spec": spec}
    )
    assert (reply.code, "count/deployments.apps=1" in reply.body["message"]) == (403, True)


async def test_usage_is_shown_in_status(api: Client) -> None:
    await api.made(
        QUOTAS, {"metadata": {"name": "gpu"}, "spec": {"hard": {f"requests.{MILLI}": "500"}}}
    )
    await api.made(PODS, gpu_pod("a", MILLI, "250"))
    status = (await api.get(f"{QUOTAS}/gpu")).body["status"]
    assert status == {"hard": {f"requests.{MILLI}": "500"}, "used": {f"requests.{MILLI}": "250"}}


def test_a_pods_total_is_the_larger_of_start_and_run() -> None:
    """resourcehelper.PodRequests: sidecars run on, the largest init container is a peak."""

    def container(amount: int, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"x.io/a": str(amount)}}, **more}

    spec = {
        "containers": [container(1), container(2)],
        "initContainers": [container(4), container(1, restartPolicy="Always"), container(5)],
    }
    assert pod_total(spec, "requests") == {"x.io/a": 6}
    spec["initContainers"][2] = container(1)
    assert pod_total(spec, "requests") == {"x.io/a": 4}
