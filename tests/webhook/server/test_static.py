"""A folder as source of policies, and pod templates in objects of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.documents import KubeObject
from sharing.errors import InputError
from sharing.mode import Mode
from tests.support.admission import MPS, pod
from webhook.preview import preview
from webhook.static import read_static
from webhook.templates import templates_of
from webhook.workload import TEMPLATE_PATHS, TemplatePath
from webhook.workload import templates_of as known_templates_of

NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {a: b}}\n"
PROFILE = (
    "apiVersion: gpu.sharing/v1alpha1\nkind: SharingProfile\n"
    "metadata: {name: inference}\nspec: {mode: mps}\n"
)
GPU_NODE = """\
apiVersion: gpu.sharing/v1alpha1
kind: GPUNode
metadata: {name: n1}
status:
  gpus:
  - {index: 0, uuid: GPU-1, board: T4-16GB, product: T4, memoryMiB: 15360, shares: [
     {id: "GPU-1::0", resource: gpu.sharing/timeslice-1of2, memoryMiB: 7680}]}
"""


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder


def test_profiles_namespaces_and_nodes_come_from_any_file(tmp_path: Path) -> None:
    nodes = "- {name: n2, gpus: T4-16GB}"

    snapshot = read_static(write(tmp_path, a=f"{NAMESPACE}---\n{PROFILE}", b=GPU_NODE, c=nodes))

    assert snapshot.policies.namespaces == {"team-a": {"a": "b"}}
    assert list(snapshot.policies.profiles) == ["inference"]
    assert snapshot.inventory is not None
    assert [node.name for node in snapshot.inventory.nodes] == ["n1", "n2"]
    assert snapshot.inventory.serves(Mode.TIME_SLICING, None)


def test_without_nodes_nothing_is_known_about_nodes(tmp_path: Path) -> None:
    assert read_static(write(tmp_path, a=PROFILE)).inventory is None


def test_an_empty_list_of_nodes_says_that_there_are_none(tmp_path: Path) -> None:
    inventory = read_static(write(tmp_path, a=PROFILE, nodes="nodes: []")).inventory

    assert inventory is not None
    assert inventory.nodes == ()


def test_lists_of_nodes_as_kubectl_writes_them_are_nodes(tmp_path: Path) -> None:
    item = "\n  ".join(GPU_NODE.splitlines())
    listed = f"apiVersion: v1\nkind: List\nitems:\n- {item}\n"

    inventory = read_static(write(tmp_path, nodes=listed)).inventory

    assert inventory is not None
    assert [node.name for node in inventory.nodes] == ["n1"]


def test_the_same_profile_twice_is_one_and_two_of_a_name_are_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, a=PROFILE, b=PROFILE)
    assert len(read_static(tmp_path).policies.profiles) == 1

    write(tmp_path, b=PROFILE.replace("mode: mps", "mode: mig"))
    with pytest.raises(InputError, match=r"b\.yaml, document 1 \(line 1\): .*twice"):
        read_static(tmp_path)


def kube(kind: str, api_version: str = "v1", **fields: Any) -> KubeObject:
    value = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, **fields}
    return KubeObject(
        where="f", api_version=api_version, kind=kind, name="w", namespace="", value=value
    )


def test_a_template_is_found_where_its_pointer_says() -> None:
    made = kube("RayJob", "ray.io/v1", spec={"a/b": [{"t~": {"spec": pod()["spec"]}}]})

    (template,) = templates_of(made)

    assert template.pointer == "/spec/a~1b/0/t~0"
    assert template.pod["metadata"] == {"generateName": "w-"}


def placed(path: tuple[str, ...]) -> Any:
    """An object with a template where a path of the server's table leads; ``*`` is a member."""
    if not path:
        return {"spec": pod()["spec"]}
    inner = placed(path[1:])
    return [inner] if path[0] == "*" else {path[0]: inner}


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in TEMPLATE_PATHS.items() for path in paths]
)
def test_what_the_server_knows_is_found_at_the_same_place(kind: str, path: TemplatePath) -> None:
    own = {k: g for g, k in (("apps", "Deployment"), ("batch", "Job"), ("batch", "CronJob"))}
    made = kube(kind, f"{own.get(kind, 'x.io')}/v1", **placed(path))

    found = [template.pointer for template in templates_of(made)]

    assert found == [template.path for template in known_templates_of(made.value)]
    assert len(found) == 1


def test_a_schema_that_speaks_of_containers_is_no_template() -> None:
    properties = {"spec": {"properties": {"containers": {"type": "array"}}}}
    definition = kube("CustomResourceDefinition", "apiextensions.k8s.io/v1", spec=properties)

    assert templates_of(definition) == ()


def test_another_group_with_a_kind_of_the_same_name_needs_no_template() -> None:
    assert templates_of(kube("Job", "batch.volcano.sh/v1alpha1", spec={"tasks": []})) == ()


def test_a_pod_without_metadata_is_patched_all_the_same() -> None:
    made = kube("Pod", spec=pod()["spec"])
    del made.value["metadata"]

    decided = preview(made, "team-a", MPS)

    assert decided is not None
    operations = [operation.to_json() for operation in decided.operations]
    changed = jsonpatch.apply_patch(made.value, operations)
    assert "status.gpu.sharing/grants" in changed["metadata"]["annotations"]


def test_a_deep_object_is_searched_no_deeper_than_any_kind_goes() -> None:
    deep: dict[str, Any] = {"spec": pod()["spec"]}
    for _ in range(150):
        deep = {"x": deep}

    assert templates_of(kube("Deep", "x/v1", spec=deep)) == ()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["spec", "containers", "name", "template", "a"]), inner)
    ),
    max_leaves=20,
)


@given(values)
def test_any_object_has_templates_none_or_one_sentence(value: Any) -> None:
    for found in (kube("Any", "x/v1", spec=value), kube("Deployment", "apps/v1", spec=value)):
        try:
            decided = preview(found, "team-a", MPS)
        except InputError as error:
            decided, sentence = None, str(error)
            assert "\n" not in sentence
        if decided is not None and decided.operations:
            operations = [operation.to_json() for operation in decided.operations]
            jsonpatch.apply_patch(found.value, operations)
