"""Reports about webhooks that were away, unreachable, untrusted or in the way of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme
import yaml

from embedded.apiserver import ApiServer
from embedded.apiserver.cel import evaluate
from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import MUTATING_WEBHOOKS, PODS, RESOURCE_QUOTAS
from sharing.inventory import Inventory
from tests.support.admission import leaf_of, review, serving
from tests.support.admission import pod as asking
from tests.support.judging import container, judge, pod, profile
from webhook.registration import TIMEOUT_S, client_by_url, configuration
from webhook.settings import ServerSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
GPU = "nvidia.com/gpu"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        ApiServer(tls=True) as server,
        Client.from_kubeconfig(server.write_kubeconfig(tmp_path / "config")) as client,
    ):
        yield client


async def test_a_renewed_certificate_is_served_at_once_and_costs_no_call(
    authority: trustme.CA,
) -> None:
    """HAMi#1572: the old one was kept until a restart."""

    def serial(writer: asyncio.StreamWriter) -> str:
        shown = writer.get_extra_info("ssl_object").getpeercert()
        return str(shown["serialNumber"])

    async with serving(authority) as served:
        before = (await served.connect())[1]
        served.context.swap(leaf_of(authority.issue_cert("localhost")))
        after = (await served.connect())[1]
        assert serial(before) != serial(after)
        for call in range(5):
            answer = await served.ask(review(asking(), uid=f"u-{call}"))
            assert answer["response"]["allowed"]
        for writer in (before, after):
            writer.close()


def test_a_webhook_that_the_api_server_does_not_trust_is_noticed() -> None:
    """HAMi#693: calls were skipped in silence, and pods failed on their nodes."""
    rules = yaml.safe_load((DEPLOY / "chart/files/alerts.yaml").read_text("utf-8"))
    known = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert "fail_open" in known["GpuSharingReviewsPassedUnseen"]["expr"]
    assert "ungranted_containers" in known["GpuSharingUngranted"]["expr"]
    assert "GpuSharingBundleContested" in known


async def test_a_webhook_out_of_reach_holds_nobody_up_for_long(authority: trustme.CA) -> None:
    """HAMi#379, HAMi#653, HAMi#661, HAMi#919: ten seconds for each pod, and the wrong answer."""
    entries = configuration(client_by_url("https://127.0.0.1:1/mutate", b"ca"))["webhooks"]
    assert {entry["timeoutSeconds"] for entry in entries} == {TIMEOUT_S}
    assert TIMEOUT_S <= 5
    assert ServerSettings().body_timeout_s <= TIMEOUT_S
    async with serving(authority, None) as served:
        status, headers, text = await served.post(b"{}")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "policies" in text, "what is not known yet is not guessed"


def pod_templates() -> list[dict[str, Any]]:
    """The templates of our own programs, as they are installed."""
    texts = (DEPLOY / "manifests/gpu-sharing.yaml").read_text("utf-8").split("\n---\n")
    objects = [yaml.safe_load(text) for text in texts if "\nkind: D" in f"\n{text}"]
    return [one["spec"]["template"] for one in objects]


def test_our_own_pods_are_never_sent_to_us() -> None:
    """HAMi#83, HAMi#160, topolvm#57, slurm-operator#189, cozystack#3125: nothing could start."""
    entries = configuration(client_by_url("https://127.0.0.1:1/mutate", b"ca"), hide_gpus=True)
    templates = pod_templates()
    assert len(templates) >= 3
    for entry in entries["webhooks"]:
        exempt = entry["namespaceSelector"]["matchExpressions"][0]
        assert {"gpu-sharing", "kube-system"} <= set(exempt["values"])
        expressions = [condition["expression"] for condition in entry["matchConditions"]]
        for template in templates:
            request = {"object": template, "request": {"userInfo": {}}}
            is_sent = all(evaluate(expression, request) for expression in expressions)
            assert is_sent == entry["name"].startswith("hide")


async def test_with_the_webhook_gone_only_pods_that_ask_for_gpus_wait(admin: Client) -> None:
    """KAI#959: a registration that stays behind blocks pods until it is taken away."""
    item = configuration(client_by_url("https://127.0.0.1:1/mutate", b""))
    made = await admin.create(MUTATING_WEBHOOKS, item)
    await admin.create(PODS, pod(container()), namespace="default", dry_run=True)
    gpu = pod(container(limits={GPU: "1"}))
    with pytest.raises(ApiError, match=r"pods\.gpu\.sharing"):
        await admin.create(PODS, gpu, namespace="default", dry_run=True)
    await admin.create(PODS, gpu, namespace="kube-system", dry_run=True)
    await admin.delete(MUTATING_WEBHOOKS, made["metadata"]["name"])
    await admin.create(PODS, gpu, namespace="default", dry_run=True)


async def test_a_replica_that_leaves_hands_its_callers_on(authority: trustme.CA) -> None:
    """gatekeeper#2196: pods were admitted unmutated during an upgrade."""
    async with serving(authority) as leaving, serving(authority) as staying:
        draining = asyncio.create_task(leaving.server.drain(delay_s=0.2, timeout_s=5))
        patched = 0
        while not draining.done():
            target = staying if leaving.server._closing else leaving
            answer = await target.ask(review(asking(), uid=f"u-{patched}"))
            assert "patch" in answer["response"]
            patched += 1
        assert patched


async def test_a_body_beyond_what_a_review_can_be_is_refused_in_bounded_memory(
    authority: trustme.CA,
) -> None:
    """controller-runtime#2598, cert-manager#6498, autoscaler#9690, dapr#10311: A5."""
    async with serving(authority) as served:
        status, _, _ = await served.post(b" " * (8 * 2**20))
        assert status == 413


async def test_a_legal_review_of_more_than_a_mebibyte_is_answered(authority: trustme.CA) -> None:
    """A6: aiohttp refuses bodies above 1 MiB by itself."""
    large = asking({"note": "x" * 1_200_000})
    async with serving(authority) as served:
        status, _, text = await served.post(orjson.dumps(review(large)))
    assert status == 200
    assert '"patch":' in text


async def test_an_explicit_zero_blocks(admin: Client) -> None:
    """HAMi: a quota of 0 was read as no limit."""
    hard = {"requests.gpu.sharing/milli-gpu": "0"}
    quota = {"metadata": {"name": "none"}, "spec": {"hard": hard}}
    await admin.create(RESOURCE_QUOTAS, quota, namespace="default")
    counted = profile(mode="mps", accounting=True)
    _, after = judge(pod(container(limits={GPU: "1"})), counted)
    with pytest.raises(ApiError, match=r"exceeded quota: none.*milli-gpu=250"):
        await admin.create(PODS, after, namespace="default", dry_run=True)
    await admin.create(PODS, pod(container()), namespace="default", dry_run=True)


def test_an_empty_list_and_an_empty_cluster_allow_nothing() -> None:
    """The same kind: nothing is listed, so nothing may be had."""
    closed = profile(modes=["mps"], allowedModes=[])
    asks = pod(container(limits={GPU: "1"}), annotations={"gpu.sharing/mode": "mig"})
    assert judge(asks, closed)[0].code == 403
    assert judge(pod(container(limits={GPU: "1"})), closed, Inventory())[0].code == 403
    empty: list[dict[str, Any]] = [
        {"allowedSizes": []}, {"migProfiles": []}, {"memory": {"max": "0"}},
    ]  # fmt: skip
    for spec in empty:
        with pytest.raises(ValueError, match=r"SharingProfile"):
            profile(mode="mps", **spec)
