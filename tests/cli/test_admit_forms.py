"""Diffs for eyes, reports for CI, and streams as kustomize and Helm write them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from tests.support.admission import pod, review

BIN = Path(sys.executable).parent
MPS = ("--namespace-label", "gpu.sharing/mode=mps")
WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  template:
    spec:
      containers:
      - {name: main, image: app:1, resources: {limits: {nvidia.com/gpu: 1}}}
"""
BAD = """\
apiVersion: v1
kind: Pod
metadata: {name: bad, annotations: {gpu.sharing/fraction: "2"}}
spec: {containers: [{name: main, image: app:1, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
IDLE = "{apiVersion: v1, kind: Pod, metadata: {name: idle}, spec: {containers: [{name: a}]}}\n"
STREAM = f"{WEB}---\n{BAD}---\n{IDLE}"


def admit(*arguments: str, text: str | None = None) -> Result:
    given = ["-f", "-"] if text is not None else []
    return CliRunner().invoke(cli, ["admit", *given, *arguments], input=text)


def test_a_diff_shows_what_changes_and_nothing_else() -> None:
    result = admit(*MPS, "--diff", text=STREAM)

    assert result.exit_code == 3
    assert result.stderr.startswith("denied: Pod default/bad: ")
    lines = result.stdout.splitlines()
    assert lines[:2] == [
        "--- Deployment team-a/web (standard input:1)",
        "+++ Deployment team-a/web, admitted",
    ]
    assert lines[2].startswith("@@ ")
    changed = [line for line in lines[3:] if line[0] in "+-"]
    assert changed[:3] == [
        "-            nvidia.com/gpu: 1",
        "+            gpu.sharing/mps-1of4: '1'",
        "+    metadata:",
    ]
    assert "idle" not in result.stdout


def test_a_diff_is_what_diff_says_of_input_and_output(tmp_path: Path) -> None:
    before = tmp_path / "before.yaml"
    before.write_text(admit("-o", "yaml", text=WEB).stdout)
    after = tmp_path / "after.yaml"
    after.write_text(admit(*MPS, "-o", "yaml", text=WEB).stdout)
    diff = ["diff", "-u", "--label", "a", "--label", "b", str(before), str(after)]
    said = subprocess.run(diff, capture_output=True, text=True, timeout=60, check=False).stdout

    ours = admit(*MPS, "--diff", text=WEB).stdout

    def changes(text: str) -> list[str]:
        return [line for line in text.splitlines()[2:] if line[0] in "+-"]

    assert changes(ours) == changes(said)
    assert changes(ours)


@pytest.mark.parametrize("no_colour", [False, True])
def test_a_diff_has_colour_on_a_terminal_only_and_not_where_it_is_unwanted(
    tmp_path: Path, *, no_colour: bool
) -> None:
    (tmp_path / "web.yaml").write_text(WEB)
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    subprocess.run(
        [str(BIN / "gpu-sharing"), "admit", "-f", str(tmp_path / "web.yaml"), *MPS, "--diff"],
        stdout=theirs,
        env={**environment, "TERM": "xterm", **({"NO_COLOR": "1"} if no_colour else {})},
        timeout=60,
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 65_536)
    os.close(ours)

    assert b"gpu.sharing/mps-1of4" in shown
    assert (b"\x1b[32m+" in shown, b"\x1b[31m-" in shown) == (not no_colour, not no_colour)
    assert b"\x1b" not in admit(*MPS, "--diff", text=WEB).stdout_bytes


def test_a_diff_cannot_steer_the_terminal() -> None:
    text = WEB.replace("name: web,", 'name: "w\\e[2J", annotations: {a: "\\e[31m\\x07"},')

    result = admit(*MPS, "--diff", text=text)

    assert result.stdout.count("\n") > 5
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


def sarif(*arguments: str, text: str | None = None) -> dict[str, Any]:
    result = admit(*arguments, "-o", "sarif", text=text)
    assert result.exit_code in (0, 3), result.output
    log: dict[str, Any] = json.loads(result.stdout)
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    run: dict[str, Any] = log["runs"][0]
    return run


def test_sarif_names_file_and_line_of_each_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some team").mkdir()
    (tmp_path / "some team" / "all.yaml").write_text(STREAM)

    run = sarif(*MPS, "-f", "some team")

    assert run["tool"]["driver"]["name"] == "gpu-sharing"
    rules = run["tool"]["driver"]["rules"]
    found = {}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert rules[result["ruleIndex"]]["defaultConfiguration"]["level"] == result["level"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "some%20team/all.yaml"
        (logical,) = location["logicalLocations"]
        found[logical["fullyQualifiedName"], result["ruleId"]] = place["region"]["startLine"]
    assert found == {
        ("Deployment team-a/web", "warning"): 1,
        ("Pod default/bad", "malformed"): 10,
    }


def test_sarif_tells_what_policy_refuses_from_what_is_malformed() -> None:
    text = WEB.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 3")

    (result,) = sarif(*MPS, text=text)["results"]

    assert (result["ruleId"], result["level"]) == ("forbidden", "error")
    assert "web" in result["message"]["text"]


def test_sarif_recognises_a_finding_that_moved() -> None:
    (first,) = sarif(*MPS, text=BAD)["results"]
    (moved,) = sarif(*MPS, text=f"# a line\n{BAD}")["results"]
    (other,) = sarif(*MPS, text=BAD.replace('"2"', '"3"'))["results"]

    lines = [
        one["locations"][0]["physicalLocation"]["region"]["startLine"] for one in (first, moved)
    ]
    assert lines == [1, 2]
    assert first["partialFingerprints"] == moved["partialFingerprints"]
    assert first["partialFingerprints"] != other["partialFingerprints"]


def xml(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - it is our own


def test_junit_fails_what_is_denied_and_groups_by_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(WEB)
    (tmp_path / "b.yaml").write_text(f"{IDLE}---\n{BAD}")

    result = admit(*MPS, "-o", "junit", "-f", str(tmp_path))

    assert result.exit_code == 3
    root = xml(result.stdout)
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "3", "1")
    suites = [(s.get("file"), s.get("tests"), s.get("failures"), s.get("errors")) for s in root]
    assert suites == [
        (str(tmp_path / "a.yaml"), "1", "0", "0"),
        (str(tmp_path / "b.yaml"), "2", "1", "0"),
    ]
    (web,), (idle, bad) = root
    assert [case.get("name") for case in (web, idle, bad)] == [
        "Deployment team-a/web",
        "Pod default/idle",
        "Pod default/bad",
    ]
    assert "main: nvidia.com/gpu: 1 becomes gpu.sharing/mps-1of4" in web.findtext("system-out", "")
    assert len(idle) == 0
    (failure,) = bad
    assert (failure.tag, failure.get("type")) == ("failure", "malformed")
    assert (failure.text or "").startswith(f"{tmp_path / 'b.yaml'}:3: pod default/bad: ")


@pytest.mark.parametrize("output", ["junit", "sarif"])
def test_no_text_of_a_manifest_breaks_a_report(output: str) -> None:
    named = WEB.replace("name: web,", 'name: "a]]>&<\\x01\\uFFFE\\e\\"",')

    result = admit(*MPS, "-o", output, text=named)

    assert result.exit_code == 0
    if output == "junit":
        assert xml(result.stdout).find("testsuite/testcase") is not None
    else:
        assert json.loads(result.stdout)["runs"][0]["results"]


@pytest.mark.parametrize("output", ["junit", "sarif"])
def test_a_report_of_nothing_is_a_report(output: str) -> None:
    result = admit(*MPS, "-o", output, text="")

    assert result.exit_code == 0
    if output == "junit":
        assert xml(result.stdout).get("tests") == "0"
    else:
        assert json.loads(result.stdout)["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--diff", "-o", "yaml"], "--diff is a form of its own"),
        (["--what-if", "x", "-o", "sarif"], "--what-if compares"),
        (["-o", "xml"], "'xml' is not one of"),
    ],
)
def test_forms_that_exclude_each_other_are_wrong_usage(arguments: list[str], says: str) -> None:
    result = admit(*arguments, text=WEB)

    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize("form", [["--diff"], ["-o", "junit"], ["-o", "sarif"]])
def test_an_answer_to_a_review_has_no_report(form: list[str]) -> None:
    result = admit(*form, text=json.dumps(review(pod())))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "AdmissionReview: it has no" in result.stderr


KUSTOMIZATION = """\
namespace: team-k
resources: [web.yaml, profile.yaml, namespace.yaml]
namePrefix: prod-
images: [{name: app, newTag: "2"}]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/metadata, value: {annotations: {gpu.sharing/memory: 4Gi}}}
"""


def test_what_kustomize_builds_is_admitted_from_its_stream(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(WEB)
    (tmp_path / "namespace.yaml").write_text(
        "{apiVersion: v1, kind: Namespace, metadata: {name: x}}"
    )
    (tmp_path / "profile.yaml").write_text(
        "{apiVersion: gpu.sharing/v1alpha1, kind: SharingProfile, metadata: {name: small}, "
        "spec: {mode: mps, defaultSize: 1of8}}"
    )
    (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATION)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "nodes.yaml").write_text(
        "- {name: n1, gpus: A100-40GB, layout: [{gpus: all, mode: mps, sizes: {1of8: 8}}]}"
    )
    built = subprocess.run(
        [str(BIN / "kubectl"), "kustomize", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    result = admit(
        *("-n", "team-k", "--namespace-label", "gpu.sharing/profile=prod-small", "-o", "json"),
        *("--nodes", str(tmp_path / "nodes")),
        text=built,
    )

    (entry,) = json.loads(result.stdout)
    assert (entry["namespace"], entry["name"]) == ("team-k", "prod-web")
    assert entry["grants"][0]["resource"] == "gpu.sharing/mps-1of8"
    assert entry["object"]["spec"]["template"]["spec"]["containers"][0]["image"] == "app:2"


def test_what_helm_renders_is_admitted_from_its_stream() -> None:
    rendered = f"""\
---
# Source: gpu/templates/notes.yaml
---
# Source: gpu/templates/web.yaml
{WEB}---
# Source: gpu/templates/hook.yaml
null
---
# Source: gpu/templates/service.yaml
apiVersion: v1
kind: Service
metadata:
  name: web
""".replace("\n", "\r\n")

    result = admit(*MPS, text=rendered)

    assert result.exit_code == 0
    assert "1 object that makes pods: 1 changed; passed over: 1 Service" in result.stdout
