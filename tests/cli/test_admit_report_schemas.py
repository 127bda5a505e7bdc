"""Reports for CI hold what their schemas want, whatever stands in manifests.

Sources: Jenkins' xUnit plugin, junit-10.xsd; Apache Maven Surefire, surefire-test-report.xsd;
OASIS, SARIF 2.1.0, sarif-schema-2.1.0.json.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from click.testing import CliRunner

from cli.main import cli

MPS = ("--namespace-label", "gpu.sharing/mode=mps")
ATTRIBUTES = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "file"},
        {"name", "tests", "failures", "errors", "skipped", "time"},
    ),
    "testcase": ({"name", "classname", "time"}, {"name", "time"}),
    "failure": ({"type", "message"}, {"type"}),
    "system-out": (set[str](), set[str]()),
}
"""Attributes that both schemas know, and those that one of them demands."""
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "system-out"},
}
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, escaped or not."""
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s: "1/2"}}
spec: {containers: [{name: main, image: app:1, resources: {limits: {nvidia.com/gpu: %s}}}]}
"""
PODS = (
    POD % ("web", "team", "1")
    + POD % ('"a\\x00\\uFFFE\\e]]>&<"', "team", "1")
    + POD % ("bad", '"gpu.sharing/\\x00\\uFFFF\\x85"', "1")
    + POD % ("two", "team", '"2"')
)


def report(tmp_path: Path, form: str) -> str:
    """The report on a folder with odd names in it."""
    folder = tmp_path / "a b#c%"
    folder.mkdir()
    (folder / "ü.yaml").write_text(PODS)
    result = CliRunner().invoke(cli, ["admit", *MPS, "-o", form, "-f", str(folder)])
    assert result.exit_code == 3
    return result.stdout


def test_junit_is_what_jenkins_and_surefire_read(tmp_path: Path) -> None:
    text = report(tmp_path, "junit")
    assert not ILLEGAL.search(text)
    root = ET.fromstring(text)  # noqa: S314 - it is our own
    assert root.tag == "testsuites"
    for element in root.iter():
        known, needed = ATTRIBUTES[element.tag]
        assert needed <= set(element.keys()) <= known, element.tag
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for suite in root:
        cases = suite.findall("testcase")
        failed = suite.findall("testcase/failure")
        assert (suite.get("tests"), suite.get("failures")) == (str(len(cases)), str(len(failed)))
    assert len(root.findall("testsuite/testcase/failure")) == 2


def test_sarif_is_what_its_schema_demands(tmp_path: Path) -> None:
    log = json.loads(report(tmp_path, "sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    assert [one["executionSuccessful"] for one in run["invocations"]] == [True]
    assert len(run["results"]) >= 4
    for result in run["results"]:
        _check_result(result, driver["rules"])


def _check_result(result: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] in ("none", "note", "warning", "error")
    assert result["message"]["text"]
    assert all(isinstance(text, str) for text in result["partialFingerprints"].values())
    for location in result["locations"]:
        physical = location["physicalLocation"]
        assert re.fullmatch(r"[\x21-\x7e]+", physical["artifactLocation"]["uri"])
        assert "#" not in physical["artifactLocation"]["uri"]
        assert physical["region"]["startLine"] >= 1
