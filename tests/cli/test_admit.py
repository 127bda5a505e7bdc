"""``gpu-sharing admit``: each form, each kind, each exit status, through the real command."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import cli
from sharing.documents import read_documents, write_documents
from tests.support.admission import pod, review

COMMAND = Path(sys.executable).parent / "gpu-sharing"
MPS = ("--namespace-label", "gpu.sharing/mode=mps")
CONTAINER = "{name: main, image: app:1, resources: {limits: {nvidia.com/gpu: 1}}}"
POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: train}}
spec: {{containers: [{CONTAINER}]}}
"""
PROFILE = """\
apiVersion: gpu.sharing/v1alpha1
kind: SharingProfile
metadata: {name: inference}
spec: {mode: time-slicing, defaultSize: 1of8}
"""


def admit(*arguments: str, text: str | bytes | None = None) -> Result:
    given = ["-f", "-"] if text is not None else []
    return CliRunner().invoke(cli, ["admit", *given, *arguments], input=text)


def entries(*arguments: str, text: str) -> list[dict[str, Any]]:
    result = admit(*arguments, "-o", "json", text=text)
    assert result.exit_code in (0, 3), result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_the_real_command_reads_a_stream_and_says_what_a_pod_becomes() -> None:
    done = subprocess.run(
        [COMMAND, "admit", "-f", "-", *MPS],
        input=POD,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "gpu.sharing/mps-1of4" in done.stdout
    assert "1 object that makes pods: 1 changed" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_json_has_every_promised_key() -> None:
    (entry,) = entries(*MPS, text=POD)

    assert set(entry) == {
        "kind",
        "namespace",
        "name",
        "verdict",
        "code",
        "message",
        "warnings",
        "grants",
        "patch",
        "object",
    }
    assert (entry["kind"], entry["namespace"], entry["name"]) == ("Pod", "default", "train")
    assert (entry["verdict"], entry["code"], entry["message"]) == ("patch", 200, "")
    assert entry["grants"][0]["container"] == "main"
    assert entry["grants"][0]["resource"] == "gpu.sharing/mps-1of4"


def test_the_patch_applied_to_the_input_is_what_yaml_prints() -> None:
    for text in (POD, WORKLOADS):
        originals = [document.value for document in read_documents(text.encode(), "x")]
        lines = admit(*MPS, "-o", "patch", text=text).stdout.splitlines()
        printed = list(yaml.safe_load_all(admit(*MPS, "-o", "yaml", text=text).stdout))

        patched = [
            jsonpatch.apply_patch(original, json.loads(line))
            for original, line in zip(originals, lines, strict=True)
        ]
        assert patched == printed
        assert patched == [entry["object"] for entry in entries(*MPS, text=text)]
        assert patched != originals


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_what_is_printed_changes_nothing_when_admitted_again(output: str) -> None:
    first = admit(*MPS, "-o", output, text=POD).stdout
    again = first if output == "yaml" else json.dumps(json.loads(first)[0]["object"])

    (entry,) = entries(*MPS, text=again)

    assert (entry["verdict"], entry["patch"]) == ("allow", [])


TEMPLATE: dict[str, Any] = {"spec": pod()["spec"]}
SPECS: list[tuple[str, str, dict[str, Any]]] = [
    ("apps/v1", "Deployment", {"spec": {"template": TEMPLATE}}),
    ("apps/v1", "StatefulSet", {"spec": {"template": {"metadata": {"labels": {}}, **TEMPLATE}}}),
    ("apps/v1", "DaemonSet", {"spec": {"template": TEMPLATE}}),
    ("apps/v1", "ReplicaSet", {"spec": {"template": TEMPLATE}}),
    ("v1", "ReplicationController", {"spec": {"template": TEMPLATE}}),
    ("v1", "PodTemplate", {"template": TEMPLATE}),
    ("batch/v1", "Job", {"spec": {"template": TEMPLATE}}),
    ("batch/v1", "CronJob", {"spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}),
    (
        "kubeflow.org/v1",
        "PyTorchJob",
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}}},
    ),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"spec": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]}},
    ),
    (
        "ray.io/v1",
        "RayCluster",
        {
            "spec": {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"template": TEMPLATE}],
            }
        },
    ),
]
OBJECTS = [
    {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "namespace": "team-a"}, **spec}
    for version, kind, spec in SPECS
]
WORKLOADS = write_documents(OBJECTS)


def test_every_kind_with_a_pod_template_is_decided() -> None:
    found = entries(*MPS, text=WORKLOADS)

    assert [entry["kind"] for entry in found] == [kind for _, kind, _ in SPECS]
    assert {entry["verdict"] for entry in found} == {"patch"}
    assert [len(entry["grants"]) for entry in found] == [1] * 10 + [2]


def test_lists_are_opened_and_other_kinds_are_passed_over_and_counted() -> None:
    items = [pod(), {"apiVersion": "v1", "kind": "Service"}]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    result = admit(*MPS, text=text)

    assert result.exit_code == 0
    assert "1 object that makes pods: 1 changed; passed over: 1 Service" in result.output


def test_namespaces_and_profiles_of_the_stream_are_policy() -> None:
    text = f"""\
{PROFILE}---
apiVersion: v1
kind: Namespace
metadata: {{name: team-b, labels: {{gpu.sharing/profile: inference}}}}
---
{POD.replace("name: train", "name: train, namespace: team-b")}---
{POD}"""

    in_team, elsewhere = entries(text=text)

    assert in_team["grants"][0]["resource"] == "gpu.sharing/timeslice-1of8"
    assert (elsewhere["namespace"], elsewhere["verdict"]) == ("default", "allow")


def test_namespace_profiles_and_nodes_come_from_options(tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text(PROFILE.replace("time-slicing", "mig"))
    (tmp_path / "nodes.yaml").write_text(
        "- {name: n1, gpus: H100-80GB, layout: [{gpus: 0, mode: mig, sizes: {1g.10gb: 7}}]}"
    )

    (entry,) = entries(
        *("--namespace", "team-c", "--namespace-label", "gpu.sharing/profile=inference"),
        *("--profiles", str(tmp_path / "profiles.yaml")),
        *("--nodes", str(tmp_path / "nodes.yaml")),
        text=POD,
    )

    assert (entry["namespace"], entry["verdict"]) == ("team-c", "patch")
    assert entry["grants"][0]["resource"] == "nvidia.com/mig-1g.10gb"


def test_a_profile_in_both_places_has_to_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text(PROFILE)
    option = ("--profiles", str(tmp_path / "profiles.yaml"))

    same = admit(*option, text=PROFILE)
    other = admit(*option, text=PROFILE.replace("1of8", "1of4"))

    assert (same.exit_code, other.exit_code) == (0, 2)
    assert "--filename and --profiles hold it with different content" in other.stderr


def test_an_unquoted_fraction_of_a_gpu_is_the_quantity_that_kubectl_sends() -> None:
    quoted, bare = (
        entries(*MPS, text=POD.replace("nvidia.com/gpu: 1", f"nvidia.com/gpu: {written}"))[0]
        for written in ('"0.25"', "0.25")
    )

    assert bare["grants"][0]["resource"] == quoted["grants"][0]["resource"]
    assert bare["object"] == quoted["object"]


@pytest.mark.parametrize("output", ["table", "yaml", "json", "patch"])
def test_something_denied_is_exit_3_in_every_form_with_its_sentence(output: str) -> None:
    text = POD.replace("{name: train}", '{name: train, annotations: {gpu.sharing/fraction: "2"}}')

    result = admit(*MPS, "-o", output, text=f"{text}---\n{POD.replace('train', 'other')}")

    assert result.exit_code == 3
    flat = " ".join(result.output.split())
    assert "gpu.sharing/fraction" in flat
    if output == "json":
        denied, allowed = json.loads(result.stdout)
        assert (denied["verdict"], denied["code"], denied["object"]) == ("deny", 422, None)
        assert denied["message"]
        assert allowed["verdict"] == "patch"


def test_a_review_gives_a_review() -> None:
    result = admit(*MPS, text=json.dumps(review(pod(), uid="u-4", namespace="team-z")))

    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (answer["response"]["uid"], answer["response"]["allowed"]) == ("u-4", True)
    operations = json.loads(base64.b64decode(answer["response"]["patch"]))
    line = admit(*MPS, "-o", "patch", text=json.dumps(review(pod(), namespace="team-z"))).stdout
    assert json.loads(line) == operations
    printed = admit(*MPS, "-o", "yaml", text=json.dumps(review(pod(), uid="u-4"))).stdout
    assert yaml.safe_load(printed)["response"]["uid"] == "u-4"


def test_a_review_that_is_denied_is_exit_3() -> None:
    body = review(pod({"gpu.sharing/fraction": "much"}))

    result = admit(*MPS, text=json.dumps(body))

    assert result.exit_code == 3
    assert json.loads(result.stdout)["response"]["status"]["code"] == 422


INPUTS: list[tuple[str, str]] = [
    ("a: [", "standard input: line"),
    ("a: 1\na: 2", "line 2: key 'a' stands twice"),
    ("3", "3 is no Kubernetes object"),
    ("- a", "is no Kubernetes object"),
    ("metadata: {}", "it has no kind"),
    ("kind: Pod", "it has no apiVersion"),
    ("{apiVersion: v1, kind: 7}", "kind is 7"),
    ("{apiVersion: v1, kind: Pod}", "spec is None"),
    ("{apiVersion: v1, kind: Pod, metadata: 3}", "metadata is 3"),
    ("{apiVersion: v1, kind: Pod, metadata: {name: 3}}", "metadata.name is 3"),
    ("{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: []}", "Pod x: spec is []"),
    (
        "{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {jobTemplate: 1}}",
        "spec.jobTemplate.spec.template.spec is None",
    ),
    ("{apiVersion: v1, kind: List, items: 3}", "items of List are 3"),
    ("{apiVersion: v1, kind: List, items: [{}]}", "items[0]: it has no kind"),
    ("{apiVersion: v1, kind: Namespace, metadata: {labels: {a: 1}, name: x}}", "label a is 1"),
    ("{apiVersion: v1, kind: Namespace, metadata: {}}", "it has no metadata.name"),
    (PROFILE.replace("mode: time-slicing", "mode: mpss"), "field mode"),
    (PROFILE.replace("defaultSize", "defaultsize"), "unknown field defaultsize"),
    (PROFILE.replace("v1alpha1", "v9"), "apiVersion 'gpu.sharing/v9' is unknown"),
    (f"{PROFILE}---\n{PROFILE.replace('1of8', '1of4')}", "there twice, with different content"),
    (json.dumps(review(pod(), uid="")), "request.uid is ''"),
    (f"{json.dumps(review(pod()))}\n---\n{POD}", "AdmissionReviews and manifests"),
    ("x: &a [1]\ny: *b", "*b stands before &b"),
]


@pytest.mark.parametrize(("text", "says"), INPUTS, ids=[says for _, says in INPUTS])
def test_malformed_input_is_one_sentence_and_exit_2(text: str, says: str) -> None:
    result = admit(*MPS, text=text)

    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.startswith("Error: standard input")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "content", "says"),
    [
        ("--profiles", "{}", "it has no kind"),
        ("--profiles", POD, "there is no SharingProfile in it"),
        ("--profiles", PROFILE.replace("mode: time-slicing", "mode: 3"), "field mode"),
        ("--nodes", "- {name: n1, gpus: H101}", "'H101' is not in the catalogue"),
        ("--nodes", POD, "kind 'Pod' describes no node"),
        ("--nodes", "\x00", "it is no YAML"),
    ],
)
def test_a_malformed_file_of_an_option_is_one_sentence_and_exit_2(
    tmp_path: Path, option: str, content: str, says: str
) -> None:
    (tmp_path / "file.yaml").write_text(content)

    result = admit(*MPS, option, str(tmp_path / "file.yaml"), text=POD)

    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--namespace-label", "x"], "'x' is no label"),
        (["--namespace-label", "a b=c"], "'a b=c' is no label"),
        (["--namespace-label", "a=b/c"], "'a=b/c' is no label"),
        (["--namespace", "Team"], "'Team' is no namespace"),
    ],
)
def test_a_malformed_option_is_exit_2(arguments: list[str], says: str) -> None:
    result = admit(*arguments, text=POD)

    assert result.exit_code == 2
    assert says in result.stderr


def test_a_folder_is_read_with_its_subfolders_and_without_what_makes_manifests(
    tmp_path: Path,
) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / "pod.yml").write_text(POD)
    (tmp_path / "b.json").write_text(json.dumps(pod()))
    (tmp_path / "kustomization.yaml").write_text("resources: [b.json]")
    (tmp_path / "values.yaml").write_text("replicas: 3")
    (tmp_path / "README.md").write_text("# no manifest")
    (tmp_path / "a" / ".git" / "x.yaml").write_text("a: [")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)

    result = admit(*MPS, "-o", "json", "-f", str(tmp_path))

    assert [entry["name"] for entry in json.loads(result.stdout)] == ["train", "train"]


def test_an_empty_folder_and_an_unreadable_file_are_input_errors(tmp_path: Path) -> None:
    empty = admit("-f", str(tmp_path))
    (tmp_path / "x.yaml").symlink_to("/proc/self/mem")
    unreadable = admit("-f", str(tmp_path / "x.yaml"))

    assert (empty.exit_code, unreadable.exit_code) == (2, 2)
    assert "there is no manifest in it" in empty.stderr
    assert "it cannot be read" in unreadable.stderr


def test_an_empty_stream_is_nothing_and_no_error() -> None:
    result = admit(*MPS, "-o", "json", text="# nothing\n---\n")

    assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_a_namespace_without_policy_is_told_what_it_lacks() -> None:
    without, with_policy = admit(text=POD).output, admit(*MPS, text=POD).output

    assert "Without policy, so pods stay as they are: default." in without
    assert "--namespace-label gpu.sharing/profile=NAME" in " ".join(without.split())
    assert "Without policy" not in with_policy


def test_manifests_cannot_steer_the_terminal() -> None:
    name = "train\\u001b[2J\\u0007"
    text = POD.replace("name: train", f'name: "{name}", annotations: {{gpu.sharing/x: "\\e[31m"}}')

    result = admit(*MPS, text=text)

    assert result.exit_code == 3
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


def test_the_table_is_readable_at_100_columns_whatever_names_there_are() -> None:
    name = "a" * 60
    text = POD.replace("train", name).replace("main", "c" * 60)

    lines = admit(*MPS, text=text).output.splitlines()

    assert max(map(len, lines)) <= 100
    assert name in "".join(lines).replace(" ", "") or name[:20] in "".join(lines)


def test_a_thousand_manifests_take_less_than_five_seconds(tmp_path: Path) -> None:
    for number in range(1000):
        written = write_documents([{**OBJECTS[number % len(OBJECTS)], "metadata": {"name": "w"}}])
        (tmp_path / f"{number:04}.yaml").write_text(written)
    began = time.process_time()

    result = admit(*MPS, "-o", "json", "-f", str(tmp_path))

    assert len(json.loads(result.stdout)) == 1000
    assert time.process_time() - began < 5
