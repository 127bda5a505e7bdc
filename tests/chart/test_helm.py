"""Helm installs, upgrades and removes the chart, from every value set to another."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharing.cluster.client import Client
from tests.chart import installing, rendering
from tests.chart.installing import crds, is_crd
from tests.chart.release import helm as run_helm
from tests.chart.release import previous_chart, where
from tests.chart.tool import HELM
from tests.cluster.access import Access

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("with_helm")]

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpu-sharing"


@pytest.fixture
def release(home: Access, with_helm: None) -> Iterator[Access]:
    """The chart with its default values, installed by Helm, taken away again; CRDs stay."""
    everything = [each for each in rendering.objects("hardened") if not is_crd(each)]
    try:
        helm(home, "install", "default")
        yield home
    finally:
        HELM.run("uninstall", "gpu-sharing", *where(home))  # unless the test did
        installing.remove(home, everything)


def helm(access: Access, verb: str, values: str = "") -> str:
    """Helm's words, with a value set if one is named, and with no value of an earlier one."""
    if not values:
        return run_helm(access, verb)
    path = str(rendering.CHART / "ci" / f"{values}.yaml")
    fresh = ("--reset-values",) if verb == "upgrade" else ()
    return run_helm(access, verb, str(rendering.CHART), "--values", path, *fresh)


def left(access: Access) -> list[str]:
    """Objects of the release that are still there, CRDs left out."""
    paths = [
        installing.path_of(each)
        for each in rendering.objects("default")
        if each["kind"] != "CustomResourceDefinition"
    ]
    return [path for path in paths if installing.is_there(access, path)]


def test_helm_installs_upgrades_and_removes_all_but_what_people_wrote(release: Access) -> None:
    profile = {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "SharingProfile",
        "metadata": {"name": "kept"},
        "spec": {"mode": "mps", "defaultSize": "1of4"},
    }
    installing.create(release, [profile])
    assert len(left(release)) == len(
        [e for e in rendering.objects("default") if e["kind"] != "CustomResourceDefinition"]
    )

    helm(release, "upgrade", "hardened")
    entries = release.call("GET", CONFIGURATION)["webhooks"]
    assert [each["name"] for each in entries][-1] == "hide.gpu.sharing"

    helm(release, "uninstall")
    assert left(release) == []
    assert len(crds(release)) == 3
    assert release.call("GET", installing.path_of(profile))["spec"]["mode"] == "mps"
    release.call("DELETE", installing.path_of(profile))


CHAIN = ("hardened", "bare", "extended", "simulated", "files", "default")
"""Value sets that need no kinds of others, each upgraded to from the one before."""


@pytest.mark.timeout(240)
def test_every_value_set_can_be_upgraded_to_from_another(release: Access) -> None:
    for values in CHAIN:
        helm(release, "upgrade", values)
        wanted = [each for each in rendering.objects(values) if not is_crd(each)]

        lacking = [
            p for p in map(installing.path_of, wanted) if not installing.is_there(release, p)
        ]
        assert lacking == [], values
    assert len(crds(release)) == 3, "a release without CRDs takes nobody's objects away"


@pytest.mark.timeout(240)
def test_a_release_of_an_earlier_chart_is_upgraded_and_rolled_back(
    home: Access, with_helm: None, tmp_path: Path
) -> None:
    """What Kubernetes lets nobody change is as it was: selectors, references of bindings."""
    chart = previous_chart(tmp_path / "previous")
    everything = [each for each in rendering.objects("default") if not is_crd(each)]
    try:
        done = HELM.run("install", "gpu-sharing", str(chart), *where(home))
        assert done.returncode == 0, done.stderr
        helm(home, "upgrade", "default")
        assert left(home) == [installing.path_of(each) for each in everything]
        back = HELM.run("rollback", "gpu-sharing", "1", *where(home))
        assert back.returncode == 0, back.stderr
        helm(home, "uninstall")
        assert left(home) == []
    finally:
        HELM.run("uninstall", "gpu-sharing", *where(home))
        installing.remove(home, everything)


async def test_an_upgrade_leaves_the_bundle_that_a_rotation_put_there(release: Access) -> None:
    bundle = release.ca.read_bytes()
    async with Client.from_kubeconfig(release.kubeconfig()) as client:
        found = await client.request("GET", CONFIGURATION)
        patch = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": _b64(bundle)}
            for at in range(len(found["webhooks"]))
        ]
        await client.request(
            "PATCH", CONFIGURATION, body=patch, content_type="application/json-patch+json"
        )

    helm(release, "upgrade", "hardened")

    upgraded = release.call("GET", CONFIGURATION)["webhooks"]
    bundles = {each["name"]: each["clientConfig"].get("caBundle") for each in upgraded}
    assert bundles.pop("hide.gpu.sharing") is None, "its replicas add it"
    assert set(bundles.values()) == {_b64(bundle)}
    helm(release, "uninstall")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
