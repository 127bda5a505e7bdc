"""`gpu-sharing demo` on a real cluster of two nodes tells what it tells on the embedded one."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.box.box import Box
from tests.cluster.box.configuration import IMAGE
from tests.cluster.needs import Tier
from tests.cluster.ports import free_ports
from tests.cluster.rights import chart_identities

pytestmark = pytest.mark.cluster(Tier.NODE.value)

DEMO_S = 150.0


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Box, Box]]:
    """Two nodes of their own: the demo makes and removes the product's CRDs."""
    with Box() as first, Box(joins=first) as second:
        yield first, second


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What the demo tells on an embedded cluster."""
    done = demo("--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def demo(*options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "demo", *map(str, options)],
        capture_output=True, text=True, timeout=DEMO_S, check=False,
    )  # fmt: skip


def on(pair: tuple[Box, Box]) -> list[object]:
    """The options for these nodes, with the chart's rights for each program."""
    first, second = pair
    (port,) = free_ports(1)
    inside = first.let_in(port)
    rights = chart_identities(first.access)
    return [
        "--kubeconfig", first.access.kubeconfig(),
        "--node", f"{first.node}={first.kubelet_dir},{first.cdi_dir}",
        "--node", f"{second.node}={second.kubelet_dir},{second.cdi_dir}",
        "--webhook-listen", f"127.0.0.1:{port}",
        "--webhook-url", f"https://127.0.0.1:{inside}/mutate",
        "--image", IMAGE,
        *(word for name in rights for word in ("--identity", f"{name}={rights[name]}")),
    ]  # fmt: skip


def objects(box: Box) -> dict[str, Any]:
    """What a demo could leave behind."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    found = {
        path: sorted(each["metadata"]["name"] for each in box.access.call("GET", path)["items"])
        for path in (crds, hooks, "/api/v1/namespaces")
    }
    nodes = box.access.call("GET", "/api/v1/nodes")["items"]
    labels = [key for node in nodes for key in node["metadata"]["labels"] if "gpu.sharing" in key]
    milli = [node["status"]["capacity"].get("gpu.sharing/milli-gpu") for node in nodes]
    specs = [file.name for file in box.cdi_dir.iterdir()]
    return {**found, "labels": labels, "milli": milli, "specs": specs}


def test_a_real_cluster_tells_the_same_facts_and_is_left_as_it_was(
    pair: tuple[Box, Box], facts: dict[str, Any], tmp_path: Path
) -> None:
    options = on(pair)
    before = objects(pair[0])
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(facts))

    real = demo("--json", "--same-as", file, *options)

    assert real.returncode == 0, f"{real.stdout[-3000:]}{real.stderr}"
    told = json.loads(real.stdout)
    assert told["deviations"] == []
    assert {pod["node"] for pod in told["pods"]} - {None} <= {box.node for box in pair}
    assert objects(pair[0]) == before


def test_another_outcome_is_a_deviation(
    pair: tuple[Box, Box], facts: dict[str, Any], tmp_path: Path
) -> None:
    """The same comparison finds a run that differs in one variable of one container."""
    facts = copy.deepcopy(facts)
    facts["pods"][0]["containers"][0]["sees"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50"
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(facts))

    real = demo("--same-as", file, *on(pair))

    assert real.returncode == 1
    said = " ".join(real.stdout.split())
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is '25', was '50'" in said
