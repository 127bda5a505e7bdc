"""``gpu-sharing admit`` for somebody who has not read its manual: each mistake says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import cli
from tests.support.judging import container, judge, pod

MPS = ("--namespace-label", "gpu.sharing/mode=mps")
TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}}
"""


def admit(*arguments: str, text: str | None = None) -> Result:
    given = ["-f", "-"] if text is not None else []
    return CliRunner().invoke(cli, ["admit", *given, *arguments], input=text)


def test_files_without_an_option_are_told_how_to_be_given() -> None:
    result = admit("a.yaml", "b.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gpu-sharing admit -f a.yaml -f b.yaml" in result.stderr


@pytest.mark.parametrize("named", ["chart", "chart/templates", "chart/templates/pod.yaml"])
def test_a_template_is_told_from_a_manifest(tmp_path: Path, named: str) -> None:
    (tmp_path / "chart/templates").mkdir(parents=True)
    (tmp_path / "chart/Chart.yaml").write_text("apiVersion: v2\nname: x\nversion: 1.0.0\n")
    (tmp_path / "chart/templates/pod.yaml").write_text(TEMPLATE)
    result = admit("-f", str(tmp_path / named))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"helm template {tmp_path / 'chart'} | gpu-sharing admit -f -" in result.stderr


def test_other_mistakes_in_a_file_are_not_taken_for_templates(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [1\n")
    result = admit("-f", str(tmp_path / "a.yaml"))
    assert "helm" not in result.stderr
    assert "it is no YAML" in result.stderr


def test_what_kubectl_prints_of_a_running_pod_is_taken_back_to_what_was_asked() -> None:
    """``kubectl get pod web -o yaml | gpu-sharing admit -f -``"""
    _, running = judge(pod(container(limits={"nvidia.com/gpu": "1"})), "mps")
    running["metadata"] |= {"uid": "u-1", "resourceVersion": "7", "namespace": "team"}
    running["spec"]["nodeName"] = "n1"
    running["status"] = {"phase": "Running"}
    (entry,) = json.loads(admit(*MPS, "-o", "json", text=yaml.safe_dump(running)).stdout)
    assert entry["grants"][0]["request"] == "nvidia.com/gpu: 1"
    written = {**running, "metadata": {"name": "web"}}
    (entry,) = json.loads(admit(*MPS, "-o", "json", text=yaml.safe_dump(written)).stdout)
    assert "bypasses the scheduler" in entry["message"], "an author's own choice"


def test_a_list_of_objects_with_comments_and_empty_documents_is_read_as_it_is_printed() -> None:
    """What ``helm template`` and ``kubectl get -o yaml`` print."""
    listed: dict[str, Any] = {
        "apiVersion": "v1", "kind": "List",
        "items": [pod(container(limits={"nvidia.com/gpu": "1"}))],
    }  # fmt: skip
    text = f"---\n# Source: x/templates/pod.yaml\n---\n\n---\n{yaml.safe_dump(listed)}---\n"
    (entry,) = json.loads(admit(*MPS, "-o", "json", text=text).stdout)
    assert entry["verdict"] == "patch"
