"""``admit --profile`` and ``--what-if``: other policies than those that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from tests.support.admission import pod, review

PROFILE = """\
apiVersion: gpu.sharing/v1alpha1
kind: SharingProfile
metadata: {name: inference}
spec: {mode: mps, defaultSize: 1of4}
"""
NAMESPACES = """\
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {gpu.sharing/profile: inference}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-b, labels: {gpu.sharing/mode: time-slicing}}
"""
NODES = """\
- {name: n1, gpus: 2xA100-40GB, labels: {pool: a},
   layout: [{gpus: 0, mode: mps, sizes: {1of4: 4}},
            {gpus: 1, mode: time-slicing, sizes: {1of4: 4}}]}
- {name: n2, gpus: A100-40GB, labels: {pool: b}, layout: [{gpus: 0, mode: mps, sizes: {1of4: 4}}]}
- {name: n3, gpus: A100-80GB, labels: {pool: b}, layout: [{gpus: 0, mode: mps, sizes: {1of2: 2}}]}
- {name: n4, gpus: A100-80GB, ready: false, layout: [{gpus: 0, mode: mps, sizes: {1of2: 2}}]}
"""


def made(name: str, namespace: str, gpu: str = "1", **annotations: str) -> str:
    texts = {key.replace("__", "/"): value for key, value in annotations.items()}
    value = pod({key.replace("gpu_", "gpu."): text for key, text in texts.items()}, gpu=gpu)
    value["metadata"] |= {"name": name, "namespace": namespace}
    return json.dumps(value)


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A folder: manifests of two teams, a profile, nodes."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "policy.yaml").write_text(f"{PROFILE}---\n{NAMESPACES}")
    (tmp_path / "in" / "plain.json").write_text(made("plain", "team-a"))
    (tmp_path / "in" / "big.json").write_text(made("big", "team-a", gpu_sharing__fraction="1/2"))
    (tmp_path / "in" / "other.json").write_text(made("other", "team-b"))
    (tmp_path / "in" / "idle.json").write_text(
        made("idle", "team-a").replace("nvidia.com/gpu", "cpu")
    )
    (tmp_path / "nodes.yaml").write_text(NODES)
    return tmp_path


def admit(scene: Path, *arguments: str, text: str | None = None) -> Result:
    given = ["-f", "-"] if text is not None else ["-f", str(scene / "in")]
    nodes = ["--nodes", str(scene / "nodes.yaml")]
    return CliRunner().invoke(cli, ["admit", *given, *nodes, *arguments], input=text)


def what_if(scene: Path, change: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    (scene / "change.yaml").write_text(change)
    result = admit(scene, "--what-if", str(scene / "change.yaml"), "-o", "json", *arguments)
    assert result.exit_code in (0, 3), result.output
    return result.exit_code, json.loads(result.stdout)


def changes_of(value: dict[str, Any]) -> dict[str, list[str]]:
    return {change["name"]: change["changed"] for change in value["changes"]}


def test_a_profile_decides_in_every_namespace_whatever_its_label(scene: Path) -> None:
    found = json.loads(admit(scene, "--profile", "inference", "-o", "json").stdout)

    assert {entry["name"]: [g["profile"] for g in entry["grants"]] for entry in found} == {
        "plain": ["inference"],
        "big": ["inference"],
        "other": ["inference"],
        "idle": [],
    }


def test_a_built_in_profile_may_be_named(scene: Path) -> None:
    (entry,) = json.loads(
        admit(scene, "--profile", "time-slicing", "-o", "json", text=made("x", "team-z")).stdout
    )

    assert entry["grants"][0]["resource"] == "gpu.sharing/timeslice-1of4"


def test_the_systems_own_namespaces_stay_exempt(scene: Path) -> None:
    text = made("x", "kube-system")

    (entry,) = json.loads(admit(scene, "--profile", "mps", "-o", "json", text=text).stdout)

    assert (entry["verdict"], entry["grants"]) == ("allow", [])


def test_a_profile_that_nobody_gave_is_an_input_error_that_lists_those_there_are(
    scene: Path,
) -> None:
    result = admit(scene, "--profile", "inferense")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "profile 'inferense': there is no SharingProfile of that name" in result.stderr
    assert "one of exclusive, inference, mig, mps, time-slicing" in result.stderr


def test_the_same_profile_changes_nothing(scene: Path) -> None:
    code, value = what_if(scene, PROFILE)

    assert (code, value["changes"], value["namespaces"]) == (0, [], ["team-a"])
    assert value["counts"]["objects"] == 4
    assert value["counts"]["changed"] == 0


def test_another_default_changes_grants_of_those_who_rely_on_it(scene: Path) -> None:
    code, value = what_if(scene, PROFILE.replace("1of4", "1of2"))

    assert code == 0
    # From a quarter, on n1 and n2, to a half, on n3.
    assert changes_of(value) == {"plain": ["grant", "nodes"]}
    (change,) = value["changes"]
    sides = [
        (change[side]["grants"][0]["resource"], change[side]["nodes"]) for side in ("now", "then")
    ]
    assert sides == [
        ("gpu.sharing/mps-1of4", ["n1", "n2"]),
        ("gpu.sharing/mps-1of2", ["n3"]),
    ]


def test_a_selector_changes_nodes_alone(scene: Path) -> None:
    selecting = PROFILE.replace("1of4}", "1of4, nodeSelector: {pool: b}}")

    _, value = what_if(scene, selecting)

    assert changes_of(value) == {"plain": ["nodes"], "big": ["nodes"]}
    by_name = {change["name"]: change for change in value["changes"]}
    assert (by_name["plain"]["now"]["nodes"], by_name["plain"]["then"]["nodes"]) == (
        ["n1", "n2"],
        ["n2"],
    )
    # The half is on n3 only, before and after; its pod says so now.
    assert by_name["big"]["then"]["placement"] == [{"nodeSelector": {"pool": "b"}}]


def test_without_nodes_a_selector_is_a_change_all_the_same(scene: Path) -> None:
    (scene / "change.yaml").write_text(PROFILE.replace("1of4}", "1of4, nodeSelector: {pool: b}}"))
    arguments = ["admit", "-f", str(scene / "in"), "--what-if", str(scene / "change.yaml")]

    value = json.loads(CliRunner().invoke(cli, [*arguments, "-o", "json"]).stdout)

    assert changes_of(value) == {"plain": ["nodes"], "big": ["nodes"]}
    assert value["changes"][0]["now"]["nodes"] is None


def test_what_is_newly_denied_is_exit_3_with_the_reason(scene: Path) -> None:
    code, value = what_if(scene, PROFILE.replace("1of4}", "1of4, allowedSizes: [1of4]}"))

    assert code == 3
    assert changes_of(value) == {"big": ["verdict", "grant"]}
    assert value["counts"] == {
        "objects": 4,
        "changed": 1,
        "verdict": 1,
        "grant": 1,
        "nodes": 0,
        "newlyDenied": 1,
        "newlyAdmitted": 0,
    }
    assert "1of4" in value["changes"][0]["then"]["message"]


def test_what_is_admitted_again_is_no_failure(scene: Path) -> None:
    (scene / "in" / "policy.yaml").write_text(
        PROFILE.replace("1of4}", "1of4, allowedSizes: [1of4]}") + f"---\n{NAMESPACES}"
    )

    code, value = what_if(scene, PROFILE)

    assert (code, changes_of(value)) == (0, {"big": ["verdict", "grant"]})
    assert value["counts"]["newlyAdmitted"] == 1


def test_labels_of_namespaces_are_a_change_as_well(scene: Path) -> None:
    moved = NAMESPACES.partition("---\n")[0].replace("team-a", "team-b")

    code, value = what_if(scene, moved)

    assert (code, changes_of(value)) == (0, {"other": ["grant", "nodes"]})


def test_a_new_profile_is_asked_about_for_all_namespaces(scene: Path) -> None:
    new = PROFILE.replace("inference", "new").replace("mps", "time-slicing")

    _, nowhere = what_if(scene, new)
    code, everywhere = what_if(scene, new, "--profile", "new")

    assert (nowhere["changes"], nowhere["namespaces"]) == ([], [])
    assert everywhere["namespaces"] == ["team-a", "team-b"]
    # Nobody offers time slices of a half.
    assert (code, changes_of(everywhere)) == (
        3,
        {"plain": ["grant", "nodes"], "big": ["verdict", "grant"]},
    )


def test_the_table_says_now_and_then_at_100_columns(scene: Path) -> None:
    (scene / "change.yaml").write_text(PROFILE.replace("1of4}", "1of2, allowedSizes: [1of2]}"))

    result = admit(scene, "--what-if", str(scene / "change.yaml"))

    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].split() == ["OBJECT", "NAMESPACE", "CHANGES", "NOW", "THEN"]
    assert lines[2].split() == [
        *("Pod", "plain", "team-a", "grant"),
        *("main:", "gpu.sharing/mps-1of4", "main:", "gpu.sharing/mps-1of2"),
    ]
    assert lines[3].split() == ["node", "choice", "n1,", "n2", "n3"]
    assert "1 of 4 objects that make pods would change: 1 grant, 1 node choice" in result.stdout
    assert "Namespaces under inference: team-a." in result.stdout


def test_the_table_says_why_something_would_be_denied(scene: Path) -> None:
    (scene / "change.yaml").write_text(PROFILE.replace("1of4}", "1of4, allowedSizes: [1of4]}"))

    result = admit(scene, "--what-if", str(scene / "change.yaml"))

    assert result.exit_code == 3
    assert "Pod team-a/big\n  denied pod team-a/big: " in result.stdout
    assert "1 newly denied" in result.stdout


def test_a_profile_that_governs_nobody_is_told_how_it_would(scene: Path) -> None:
    (scene / "change.yaml").write_text(PROFILE.replace("inference", "new"))

    flat = " ".join(admit(scene, "--what-if", str(scene / "change.yaml")).stdout.split())

    assert "0 of 4 objects that make pods would change" in flat
    assert "No namespace is under new." in flat
    assert "--profile new" in flat


def test_a_diff_of_policies_shows_what_becomes_now_and_then(scene: Path) -> None:
    (scene / "change.yaml").write_text(PROFILE.replace("1of4}", "1of2}"))

    result = admit(scene, "--what-if", str(scene / "change.yaml"), "--diff")

    assert "--- Pod team-a/plain, admitted now" in result.stdout
    assert "+++ Pod team-a/plain, admitted then" in result.stdout
    assert "-        gpu.sharing/mps-1of4: '1'" in result.stdout
    assert "+        gpu.sharing/mps-1of2: '1'" in result.stdout


def test_a_change_that_is_malformed_or_none_is_one_sentence(scene: Path) -> None:
    (scene / "change.yaml").write_text(made("x", "team-a"))
    none = admit(scene, "--what-if", str(scene / "change.yaml"))
    (scene / "change.yaml").write_text(PROFILE.replace("mps", "mpss"))
    malformed = admit(scene, "--what-if", str(scene / "change.yaml"))
    reviews = admit(scene, "--what-if", str(scene / "nodes.yaml"), text=json.dumps(review(pod())))

    assert [one.exit_code for one in (none, malformed, reviews)] == [2, 2, 2]
    assert "there is no SharingProfile in it" in none.stderr
    assert "field mode" in malformed.stderr
    assert all(len(one.stderr.splitlines()) == 1 for one in (none, malformed, reviews))


def test_a_review_cannot_be_compared(scene: Path) -> None:
    (scene / "change.yaml").write_text(PROFILE)

    result = admit(scene, "--what-if", str(scene / "change.yaml"), text=json.dumps(review(pod())))

    assert result.exit_code == 2
    assert "--what-if compares objects that make pods" in result.stderr
