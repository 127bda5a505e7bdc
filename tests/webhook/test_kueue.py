"""What shares count for elsewhere: Kueue's quota, and a new node that an autoscaler thinks of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import cli
from sharing.documents import read_documents
from sharing.nodefile import read_nodes
from tests.support.judging import H100S, container, judge, pod, profile
from webhook.kueue import transformations

POLICIES = Path(__file__).parents[2] / "docs" / "policies.md"
MILLI = "gpu.sharing/milli-gpu"


def worths(**spec: Any) -> dict[str, int]:
    listed = transformations(profile(**spec), H100S)
    assert [one["strategy"] for one in listed] == ["Replace"] * len(listed)
    assert listed == sorted(listed, key=lambda one: str(one["input"]))
    return {one["input"]: int(one["outputs"][MILLI]) for one in listed}


def test_each_share_counts_what_accounting_would_write() -> None:
    """kueue: the Job's template is counted before the webhook rewrites its pods."""
    found = worths(mode="mps")
    for resource in ("gpu.sharing/mps-1of2", "gpu.sharing/mps-1of8", "nvidia.com/gpu"):
        _, after = judge(
            pod(container(limits={resource: "1"})), profile(mode="mps", accounting=True)
        )
        limits = after["spec"]["containers"][0]["resources"]["limits"]
        assert int(limits[MILLI]) == found[resource]
    assert found["nvidia.com/mig-3g.40gb"] == 496
    assert not any(name.startswith("team-a.") for name in found)


def test_a_plain_gpu_counts_what_the_profile_makes_of_it() -> None:
    assert worths(mode="mps", defaultSize="1of2")["nvidia.com/gpu"] == 500
    assert worths(mode="mps", wholeGPU="keep")["nvidia.com/gpu"] == 1000
    assert "nvidia.com/gpu" not in worths(mode="mps", wholeGPU="deny")
    assert worths(mode="mps", pool="team-a") == {
        "nvidia.com/gpu": 250, "team-a.gpu.sharing/mps-1of4": 250,
        "team-a.gpu.sharing/gpu": 1000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--profile", "mps"], "needs the nodes"), ([], "needs the profile")],
)
def test_what_the_form_needs_is_asked_for(more: list[str], words: str) -> None:
    text = "{apiVersion: v1, kind: Namespace, metadata: {name: a}}"
    result = CliRunner().invoke(cli, ["admit", "-f", "-", "-o", "kueue", *more], input=text)
    assert result.exit_code == 2
    assert words in result.stderr


def test_the_page_tells_autoscalers_what_its_node_offers() -> None:
    """kubernetes/autoscaler#8095, Azure/AKS#3427, karpenter#729, karpenter#2140."""
    page = POLICIES.read_text("utf-8")
    nodes = page.split("<!-- file: nodes.yaml -->\n```yaml\n")[1].split("```")[0]
    (node,) = read_nodes(tuple(read_documents(nodes.encode(), "nodes.yaml"))).nodes
    shown = page.split("| Karpenter |")[1].split("capacity: ")[1].split("`")[0]
    capacity = yaml.safe_load(shown)
    offered = {one.share_class.resource_name: str(one.count) for one in node.offers}
    assert capacity == offered
    assert (
        f'node-template/resources/gpu.sharing/mps-1of4: "{capacity["gpu.sharing/mps-1of4"]}"'
        in page
    )
