"""The examples go into a real API server as they are, and mean what their comments say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from embedded.apiserver.server import ApiServer
from sharing.api.crd import crd_manifests
from sharing.api.layout import GpuLayoutSpec
from sharing.api.model import parse_model
from sharing.api.profile import parse_profile
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS
from tests.chart import installing, rendering

FOLDER: Final = rendering.DEPLOY / "examples"
FILES: Final = sorted(path.name for path in FOLDER.glob("*.yaml"))
every_file = pytest.mark.parametrize("name", FILES)


BECOMES: Final = {
    "inference/ranker": ["gpu.sharing/mps-1of4"],
    "inference/embedder": ["gpu.sharing/mps-1of2"],
    "notebooks/ada": ["gpu.sharing/timeslice-1of4"],
    "notebooks/grace": ["gpu.sharing/timeslice-1of2", "gpu.sharing/timeslice-1of4"],
    "training/fine-tune": ["nvidia.com/mig-3g.40gb"],
    "team-a/server": ["team-a.gpu.sharing/mps-1of4"],
    "students/exercise": ["gpu.sharing/timeslice-1of8"],
}
"""What the examples say of their pods, on nodes of eight H100."""
UNCHANGED: Final = "legacy/old"
"""Its policy warns only."""


def items_of(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text("utf-8")) if each]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A fresh API server with our CRDs."""
    async with ApiServer() as server:
        token = server.kubeconfig()["users"][0]["user"]["token"]

        async def source() -> credentials.Access:
            return credentials.Access(
                server=server.url, origin="test", authorization=f"Bearer {token}"
            )

        async with Client(source) as made:
            for manifest in crd_manifests():
                await made.create(CRDS, manifest)
            yield made


@every_file
async def test_an_example_is_taken_without_a_warning(client: Client, name: str) -> None:
    warnings: list[str] = []
    for item in items_of(name):
        await client.request(
            "POST",
            installing.path_of(item, collection=True),
            body=item,
            query={"fieldValidation": "Strict"},
            warnings=warnings,
        )

    assert warnings == []


@every_file
def test_the_models_read_an_example_as_the_api_server_does(name: str) -> None:
    for item in items_of(name):
        if item["kind"] == "SharingProfile":
            assert parse_profile(item).name == item["metadata"]["name"]
        if item["kind"] == "GPULayout":
            assert parse_model(GpuLayoutSpec, item["spec"], "layout").gpus


@every_file
def test_an_example_begins_with_what_it_is_for(name: str) -> None:
    first = (FOLDER / name).read_text("utf-8").splitlines()[0]

    assert first.startswith("# ")


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Two nodes with the layouts of the examples."""
    layouts = {
        item["metadata"]["name"]: item["spec"]
        for name in FILES
        for item in items_of(name)
        if item["kind"] == "GPULayout"
    }
    listed = [
        {
            "name": name,
            "gpus": "8xH100-80GB",
            "labels": spec["nodeSelector"]["matchLabels"],
            "layout": spec["gpus"],
        }
        for name, spec in layouts.items()
    ]
    path = tmp_path / "nodes.yaml"
    path.write_text(yaml.safe_dump(listed))
    return path


def test_the_pods_of_the_examples_become_what_their_comments_say(nodes: Path) -> None:
    command = [sys.executable, "-m", "cli.main", "admit", "-f", str(FOLDER), "--nodes", str(nodes)]
    done = subprocess.run(
        [*command, "-o", "json"],
        check=False, capture_output=True, text=True, timeout=60, cwd=rendering.ROOT,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    judged = {f"{each['namespace']}/{each['name']}": each for each in json.loads(done.stdout)}
    became = {
        name: [grant["resource"] for grant in each["grants"]]
        for name, each in judged.items()
        if each["verdict"] == "patch"
    }
    assert became == BECOMES
    assert judged.keys() - became.keys() == {UNCHANGED}
