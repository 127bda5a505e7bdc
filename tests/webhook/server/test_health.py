"""Probes and metrics on their port, and the log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
import structlog

from tests.support.admission import Served, pod, review
from webhook.health import HealthServer
from webhook.metrics import Metrics
from webhook.policies import BrokenProfile, Policies
from webhook.settings import ServerSettings
from webhook.snapshot import Snapshot


@pytest.fixture
async def reasons() -> dict[str, str]:
    return {"policies": "", "certificate": ""}


@pytest.fixture
async def health(served: Served, reasons: dict[str, str]) -> AsyncIterator[str]:
    checks = {name: (lambda name=name: reasons[name]) for name in reasons}
    settings = ServerSettings(health_host="127.0.0.1", health_port=0)
    server = HealthServer(settings, served.metrics, checks)
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.close()


async def page(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_readiness_names_what_it_waits_for_and_liveness_does_not_care(
    health: str, reasons: dict[str, str]
) -> None:
    assert await page(f"{health}/readyz") == (200, "ok\n")
    reasons["certificate"] = "it expired at 2026-01-01T00:00:00Z"

    assert await page(f"{health}/readyz") == (
        503,
        "certificate: it expired at 2026-01-01T00:00:00Z\n",
    )
    assert await page(f"{health}/livez") == (200, "ok\n")


async def test_other_paths_name_those_that_there_are(health: str) -> None:
    status, text = await page(f"{health}/mutate")

    assert (status, "/metrics" in text) == (404, True)


async def test_metrics_count_calls_by_outcome_and_grants_by_mode(
    served: Served, health: str
) -> None:
    await served.ask(review(pod()))
    await served.post(b"{")

    _, text = await page(f"{health}/metrics")

    lines = text.splitlines()
    assert 'gpu_sharing_webhook_reviews_total{outcome="patched"} 1.0' in lines
    assert 'gpu_sharing_webhook_reviews_total{outcome="malformed"} 1.0' in lines
    assert 'gpu_sharing_webhook_grants_total{mode="mps"} 1.0' in lines
    assert "gpu_sharing_webhook_review_duration_seconds_count 2.0" in lines
    assert any(line.startswith("gpu_sharing_webhook_connections ") for line in lines)


async def test_metrics_count_denials_by_code_and_tell_the_process(served: Served) -> None:
    await served.ask(review(pod({"gpu.sharing/fraction": "2"})))
    await served.ask(review(pod(gpu="3")))
    malformed = review(pod(), operation="CRATE")
    await served.ask(malformed)

    lines = served.metrics.render().decode().splitlines()

    counted = [line for line in lines if line.startswith("gpu_sharing_webhook_denials_total")]
    assert counted == [
        'gpu_sharing_webhook_denials_total{code="400"} 1.0',
        'gpu_sharing_webhook_denials_total{code="403"} 1.0',
        'gpu_sharing_webhook_denials_total{code="422"} 1.0',
    ]
    names = {line.split(" ")[0].split("{")[0] for line in lines if line[0] != "#"}
    assert {
        "process_resident_memory_bytes",
        "process_open_fds",
        "gpu_sharing_build_info",
        "gpu_sharing_webhook_draining",
        "gpu_sharing_webhook_handshakes",
    } <= names


async def test_a_denial_is_logged_with_its_field_and_not_with_what_stands_in_it(
    served: Served,
) -> None:
    with structlog.testing.capture_logs() as lines:
        await served.ask(review(pod({"gpu.sharing/fraction": "s3cret"})))

    (line,) = lines
    assert (line["outcome"], line["code"]) == ("denied", 422)
    assert line["field"] == "metadata.annotations[gpu.sharing/fraction]"
    assert "s3cret" not in json.dumps(line)


async def test_no_caller_can_make_new_series(served: Served) -> None:
    before = {line.split(" ")[0] for line in served.metrics.render().decode().splitlines()}

    for number in range(5):
        odd = f"odd-{number}"
        await served.ask(review(pod(), uid=odd, namespace=odd, name=odd, operation="UPDATE"))
        await served.post(odd.encode(), Content_Type=odd)

    assert {line.split(" ")[0] for line in served.metrics.render().decode().splitlines()} == before


def test_a_snapshot_is_described_by_its_sizes() -> None:
    metrics = Metrics()
    broken = BrokenProfile(name="b", error="field mode is missing")
    metrics.describe(Snapshot(policies=Policies(namespaces={"a": {}}, profiles={"b": broken})))

    lines = metrics.render().decode().splitlines()

    assert "gpu_sharing_webhook_namespaces 1.0" in lines
    assert 'gpu_sharing_webhook_profiles{state="broken"} 1.0' in lines
    assert 'gpu_sharing_webhook_profiles{state="usable"} 0.0' in lines


async def test_the_log_has_one_line_a_review_and_nothing_of_the_pod(served: Served) -> None:
    secret = pod({"gpu.sharing/fraction": "0.25"})
    secret["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "s3cret"}]
    with structlog.testing.capture_logs() as lines:
        await served.ask(review(secret, uid="u-1", name="x\ny"))

    (line,) = lines
    assert line["event"] == "review was answered"
    assert (line["uid"], line["outcome"], line["namespace"]) == ("u-1", "patched", "team-a")
    assert (line["profile"], line["grants"]) == ("mps", ["gpu.sharing/mps-1of4"])
    assert "s3cret" not in json.dumps(line)
    assert "app:1" not in json.dumps(line)


async def test_the_log_cuts_what_a_caller_makes_long(served: Served) -> None:
    with structlog.testing.capture_logs() as lines:
        await served.ask(review(pod(), uid="u" * 5000, name="n" * 5000))

    (line,) = lines
    assert len(json.dumps(line)) < 2000
