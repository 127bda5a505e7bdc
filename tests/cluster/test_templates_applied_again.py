"""A fraction in a template, and the same file applied again: a person's kubectl, our webhook.

The API server refuses ``nvidia.com/gpu: 250m`` in a template, so it becomes the annotation form
there. What a second apply makes of our result is decided by kubectl and the API server; the
embedded one must agree with the real one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from sharing.cluster.client import Client
from sharing.names import MODE_LABEL
from tests.cluster.eitherserver import EITHER, either_server
from tests.support.governed import governed
from tests.support.kubectl import Kubectl
from webhook.workload import FRACTIONS_ANNOTATION

GPU: Final = "nvidia.com/gpu"
KEY: Final = "main.gpu.sharing/fraction"
SERVER_SIDE: Final = ("--server-side",)


REAL_ONLY: Final = pytest.mark.parametrize("kubeconfig", EITHER[1:], indirect=True)
"""For what follows from the other tests, where the embedded server is concerned."""


@pytest.fixture(params=EITHER)
async def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """An administrator's way into an API server."""
    async with either_server(request, tmp_path) as server:
        yield server.kubeconfig()


@pytest.fixture
async def kubectl(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with (
        Client.from_kubeconfig(kubeconfig) as client,
        governed(client, {"team": {MODE_LABEL: "mps"}}) as made,
    ):
        yield Kubectl(config=kubeconfig, folder=tmp_path, namespace=made.namespaces["team"])


def deployment(amount: str | None, **annotations: str) -> str:
    """A Deployment as a person writes it, as JSON."""
    resources: dict[str, Any] = {"limits": {"cpu": "1"}}
    if amount is not None:
        resources["limits"][GPU] = amount
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"mine": "1", **annotations}},
        "spec": {"containers": [{"name": "main", "image": "app:1", "resources": resources}]},
    }
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web"}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    )


async def stored(kubectl: Kubectl) -> tuple[dict[str, str], dict[str, str], str | None]:
    """The container's limits, the template's annotations, and our record."""
    found = await kubectl.get("deployment", "web")
    template = found["spec"]["template"]
    limits = template["spec"]["containers"][0]["resources"]["limits"]
    record = found["metadata"].get("annotations", {}).get(FRACTIONS_ANNOTATION)
    return limits, template["metadata"]["annotations"], record


QUARTER: Final = ({"cpu": "1", GPU: "1"}, {"mine": "1", KEY: "0.25"})
HALF: Final = ({"cpu": "1", GPU: "1"}, {"mine": "1", KEY: "0.5"})


@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
async def test_the_same_file_applied_again_changes_nothing(
    kubectl: Kubectl, how: tuple[str, ...]
) -> None:
    said = await kubectl("apply", *how, "-f", "-", stdin=deployment("250m"))
    assert "-> gpu.sharing/mps-1of4" in said, "what each pod will become is told"
    first = await stored(kubectl)
    before = (await kubectl.get("deployment", "web"))["metadata"]["generation"]
    assert first[:2] == QUARTER
    for _ in range(2):
        said = await kubectl("apply", *how, "-f", "-", stdin=deployment("250m"))
        assert "-> gpu.sharing/mps-1of4" in said
        assert await stored(kubectl) == first
    after = (await kubectl.get("deployment", "web"))["metadata"]["generation"]
    assert after == before, "nothing to roll out"


@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
async def test_a_changed_file_outranks_what_we_wrote(
    kubectl: Kubectl, how: tuple[str, ...]
) -> None:
    await kubectl("apply", *how, "-f", "-", stdin=deployment("250m"))
    await kubectl("apply", *how, "-f", "-", stdin=deployment("500m"))
    assert (await stored(kubectl))[:2] == HALF
    await kubectl("apply", *how, "-f", "-", stdin=deployment(None))
    assert await stored(kubectl) == ({"cpu": "1"}, {"mine": "1"}, None)


async def test_a_whole_gpu_in_place_of_a_fraction_is_whole(kubectl: Kubectl) -> None:
    """The new amount is the one that we had written; only the file tells."""
    await kubectl("apply", "-f", "-", stdin=deployment("250m"))
    await kubectl("label", "deployment", "web", "tier=front")
    assert (await stored(kubectl))[:2] == QUARTER
    await kubectl("apply", "-f", "-", stdin=deployment("1"))
    assert await stored(kubectl) == ({"cpu": "1", GPU: "1"}, {"mine": "1"}, None)


@REAL_ONLY
async def test_a_whole_gpu_applied_by_the_server_needs_the_fraction_taken_off(
    kubectl: Kubectl,
) -> None:
    """No part of the request tells it from a change elsewhere; the warning says what holds."""
    await kubectl("apply", *SERVER_SIDE, "-f", "-", stdin=deployment("250m"))
    said = await kubectl("apply", *SERVER_SIDE, "-f", "-", stdin=deployment("1"))
    assert "main.gpu.sharing/fraction: 0.25 -> gpu.sharing/mps-1of4" in said
    patch = json.dumps({"spec": {"template": {"metadata": {"annotations": {KEY: None}}}}})
    await kubectl("patch", "deployment", "web", "-p", patch)
    assert await stored(kubectl) == ({"cpu": "1", GPU: "1"}, {"mine": "1"}, None)


@REAL_ONLY
@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
async def test_the_author_s_own_key_is_never_overwritten(
    kubectl: Kubectl, how: tuple[str, ...]
) -> None:
    own = {KEY: "1/4"}
    await kubectl("apply", *how, "-f", "-", stdin=deployment("250m", **own))
    first = await stored(kubectl)
    assert first == ({"cpu": "1", GPU: "1"}, {"mine": "1", KEY: "1/4"}, None)
    await kubectl("apply", *how, "-f", "-", stdin=deployment("250m", **own))
    assert await stored(kubectl) == first


@REAL_ONLY
async def test_other_verbs_keep_what_was_applied(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=deployment("250m"))
    first = await stored(kubectl)
    await kubectl("scale", "deployment", "web", "--replicas", "3")
    await kubectl("label", "deployment", "web", "tier=front")
    await kubectl("set", "image", "deployment/web", "main=app:2")
    assert await stored(kubectl) == first
    await kubectl("replace", "-f", "-", stdin=deployment("500m"))
    assert (await stored(kubectl))[:2] == HALF


@REAL_ONLY
async def test_server_side_after_client_side_conflicts_as_for_any_user(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=deployment("250m"))
    first = await stored(kubectl)
    again = ("apply", *SERVER_SIDE, "--force-conflicts", "-f", "-")
    await kubectl(*again, stdin=deployment("250m"))
    assert (await stored(kubectl))[:2] == first[:2]


@REAL_ONLY
@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
async def test_a_renamed_container_takes_its_fraction_along(
    kubectl: Kubectl, how: tuple[str, ...]
) -> None:
    """kubernetes#64944: apply leaves what a webhook wrote beside a container that goes."""
    await kubectl("apply", *how, "-f", "-", stdin=deployment("250m"))
    renamed = deployment("250m").replace('"name": "main"', '"name": "serve"')
    said = await kubectl("apply", *how, "-f", "-", stdin=renamed)
    assert "would be denied" not in said
    limits, annotations, _ = await stored(kubectl)
    assert limits == {"cpu": "1", GPU: "1"}
    assert annotations == {"mine": "1", "serve.gpu.sharing/fraction": "0.25"}


@REAL_ONLY
async def test_words_of_ours_where_nobody_reads_them_are_told(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=deployment(None))
    said = await kubectl("annotate", "deployment", "web", "gpu.sharing/fraction=1/2")
    assert "gpu.sharing/fraction is not read here" in said
    said = await kubectl("run", "x", "--image", "app:1", "--labels", "gpu.sharing/fraction=0.5")
    assert "label gpu.sharing/fraction is not read: write it as an annotation" in said
    made = json.loads(deployment("250m"))["spec"]["template"]
    kept = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": made}
    await kubectl("create", "-f", "-", stdin=json.dumps(kept))
    assert (await kubectl.get("podtemplate", "t"))["template"]["metadata"]["annotations"] == {
        "mine": "1",
        KEY: "0.25",
    }


@REAL_ONLY
async def test_kubectl_debug_works_beside_a_share(kubectl: Kubectl) -> None:
    """kubernetes#92557; its profile "general" adds SYS_PTRACE (kubernetes/enhancements#2834)."""
    limits = json.dumps({"spec": {"containers": [
        {"name": "web", "image": "app:1", "resources": {"limits": {GPU: "1"}}}]}})  # fmt: skip
    await kubectl("run", "web", "--image", "app:1", "--overrides", limits)
    await kubectl("debug", "web", "--image", "busybox:1", "--target", "web", "-c", "spy")
    (spy,) = (await kubectl.get("pod", "web"))["spec"]["ephemeralContainers"]
    assert spy["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    await kubectl("debug", "web", "--image", "busybox:1", "--copy-to", "copy", "-c", "spy")
    first, _ = (await kubectl.get("pod", "copy"))["spec"]["containers"]
    assert first["resources"]["limits"] == {"gpu.sharing/mps-1of4": "1"}


@REAL_ONLY
async def test_a_job_whose_template_is_fixed_can_be_applied_again(kubectl: Kubectl) -> None:
    """A Job's template is immutable, so the same file has to become the same template."""
    made = json.loads(deployment("250m"))
    template = made["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    job = {**made, "apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}
    for _ in range(2):
        await kubectl("apply", "-f", "-", stdin=json.dumps(job))
    job["spec"]["parallelism"] = 2
    await kubectl("apply", "-f", "-", stdin=json.dumps(job))
    found = await kubectl.get("job", "web")
    assert found["spec"]["parallelism"] == 2
    assert found["spec"]["template"]["metadata"]["annotations"][KEY] == "0.25"
