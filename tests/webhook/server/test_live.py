"""Policies and nodes from watches on a real API server's wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from embedded.apiserver import ApiServer
from sharing.api.crd import crd_manifests
from sharing.api.profile import SharingProfile
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS, GPU_NODES, NAMESPACES, NODES, SHARING_PROFILES
from sharing.inventory import Inventory
from sharing.mode import Mode
from tests.support.admission import until
from webhook.live import LiveSource, keep_profile
from webhook.metrics import Metrics
from webhook.policies import BrokenProfile
from webhook.snapshot import Snapshot


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Client]:
    async with ApiServer(tls=True) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(kubeconfig) as client:
            for definition in crd_manifests():
                await client.create(CRDS, definition)
            yield client


@pytest.fixture
async def source(api: Client) -> AsyncIterator[LiveSource]:
    async with LiveSource(api, Metrics()) as made:
        await made.wait_ready()
        yield made


def seen(source: LiveSource) -> Snapshot:
    snapshot = source()
    assert snapshot is not None
    return snapshot


def offers(source: LiveSource) -> Inventory:
    inventory = seen(source).inventory
    assert inventory is not None
    return inventory


def profile(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "SharingProfile",
        "metadata": {"name": name},
        "spec": spec,
    }


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def node(name: str, *, managed: str = "true") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"gpu.sharing/managed": managed, "pool": "a"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def gpu_node(name: str) -> dict[str, Any]:
    share = {"id": "GPU-1::0", "resource": "gpu.sharing/mps-1of4", "memoryMiB": 20000, "milli": 250}
    gpu = {"index": 0, "uuid": "GPU-1", "board": "H100-80GB", "product": "H100", "memoryMiB": 80000}
    return {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {},
        "status": {"gpus": [{**gpu, "shares": [share]}]},
    }


async def test_before_everything_was_listed_there_is_no_snapshot(api: Client) -> None:
    async with LiveSource(api, Metrics()) as source:
        assert source() is None
        assert "not listed yet" in source.waiting_for

        await source.wait_ready()

        assert source() is not None
        assert source.waiting_for == ""
        assert source.age_s() < 30


async def test_a_server_that_is_away_is_named_and_waited_for() -> None:
    client = Client(credentials.at("http://127.0.0.1:1"))
    async with client, LiveSource(client, Metrics()) as source:
        await until(lambda: "not listed yet" not in source.waiting_for)

        assert source() is None
        assert "127.0.0.1:1" in source.waiting_for
        assert source.age_s() == float("inf")


async def test_namespaces_and_profiles_are_followed(api: Client, source: LiveSource) -> None:
    await api.create(SHARING_PROFILES, profile("inference", mode="time-slicing"))
    await api.create(NAMESPACES, namespace("team-a", **{"gpu.sharing/profile": "inference"}))
    await until(lambda: seen(source).policies.profile_for("team-a").profile is not None)

    governing = seen(source).policies.profile_for("team-a")
    assert governing.profile is not None
    assert governing.profile.modes == (Mode.TIME_SLICING,)

    await api.delete(SHARING_PROFILES, "inference")
    await until(lambda: bool(seen(source).policies.profile_for("team-a").broken))


async def test_only_our_labels_of_a_namespace_are_kept(api: Client, source: LiveSource) -> None:
    await api.create(NAMESPACES, namespace("team-b", other="x", **{"gpu.sharing/mode": "mps"}))
    await until(lambda: seen(source).policies.knows("team-b"))

    assert seen(source).policies.namespaces["team-b"] == {"gpu.sharing/mode": "mps"}


async def test_a_snapshot_that_a_review_holds_does_not_change(
    api: Client, source: LiveSource
) -> None:
    before = seen(source)
    await api.create(NAMESPACES, namespace("team-c"))
    await until(lambda: seen(source).policies.knows("team-c"))

    assert not before.policies.knows("team-c")


async def test_a_managed_ready_node_offers_what_its_agent_reports(
    api: Client, source: LiveSource
) -> None:
    made = gpu_node("n1")
    await api.create(GPU_NODES, made)
    await until(lambda: bool(offers(source).nodes))
    # Nothing says that the node is managed and ready.
    assert not offers(source).serves(Mode.MPS, None)

    await api.create(NODES, node("n1"))
    await api.patch(GPU_NODES, "n1", {"status": made["status"]}, subresource="status")
    await api.patch(NODES, "n1", {"status": node("n1")["status"]}, subresource="status")
    await until(lambda: offers(source).serves(Mode.MPS, None))

    (found,) = offers(source).nodes
    assert (found.name, found.ready, found.labels["pool"]) == ("n1", True, "a")
    assert [(str(o.share_class), o.memory_mib) for o in found.offers] == [
        ("gpu.sharing/mps-1of4", 20000)
    ]


async def test_a_broken_profile_is_kept_as_broken_and_reported_once() -> None:
    found = keep_profile(profile("bad", mode="mps", defaultSize="much"))

    assert isinstance(found, BrokenProfile)
    assert "field defaultSize" in found.error
    assert isinstance(keep_profile(profile("good", mode="mps")), SharingProfile)


async def test_a_broken_profile_of_a_cluster_without_schema_is_reported(tmp_path: Path) -> None:
    async with ApiServer(tls=True) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(kubeconfig) as api:
            for definition in crd_manifests():
                for version in definition["spec"]["versions"]:
                    version["schema"] = {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    }
                await api.create(CRDS, definition)
            await api.create(SHARING_PROFILES, profile("bad", mode="mps", defaultSize="much"))
            with structlog.testing.capture_logs() as lines:
                async with LiveSource(api, Metrics()) as source:
                    await source.wait_ready()
                    (broken,) = seen(source).broken

    assert broken.name == "bad"
    warnings = [line for line in lines if line["event"] == "profile cannot be used"]
    assert [line["profile"] for line in warnings] == ["bad"]
