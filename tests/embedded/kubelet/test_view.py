"""What a container sees: CDI spec files, environment, precedence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedded.errors import EmbeddedError
from embedded.kubelet.cdi import Edits, Mount, Node, UnresolvableError, parse, resolve
from embedded.kubelet.environment import (
    ConfigError,
    Surroundings,
    contents_of,
    environment_of,
    expand,
    sources_of,
)
from embedded.kubelet.ledger import Holding
from embedded.kubelet.view import Origin, cdi_names, view_of
from sharing.plugin.proto import deviceplugin_pb2 as api

KIND = "gpu.sharing/share"


def spec(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": list(devices), **more}


def one(name: str, **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits or {"env": ["A=1"]}}


def write(folder: Path, name: str, document: object) -> None:
    text = json.dumps(document) if name.endswith("json") else yaml.safe_dump(document)
    (folder / name).write_text(text)


def test_a_devices_edits_come_with_those_of_its_file_once(tmp_path: Path) -> None:
    node = {"path": "/dev/nvidia0", "hostPath": "/dev/x", "permissions": "rw"}
    mount = {"hostPath": "/h", "containerPath": "/c", "options": ["ro", "bind"]}
    devices = [one("GPU-1::0", env=["D=0"], deviceNodes=[node]), one("GPU-1::1", env=["D=1"])]
    common = {"env": ["ALL=x"], "mounts": [mount], "deviceNodes": [{"path": "/dev/nvidiactl"}]}
    write(tmp_path, "a.json", spec(*devices, containerEdits=common))
    names = [f"{KIND}=GPU-1::0", f"{KIND}=GPU-1::1", f"{KIND}=GPU-1::0"]
    assert resolve(names, [tmp_path]) == Edits(
        env=(("ALL", "x"), ("D", "0"), ("D", "1")),
        nodes=(
            Node(path="/dev/nvidiactl", host_path="/dev/nvidiactl", permissions="rwm"),
            Node(path="/dev/nvidia0", host_path="/dev/x", permissions="rw"),
        ),
        mounts=(Mount(container_path="/c", host_path="/h", read_only=True),),
    )


def test_unknown_names_are_told_in_the_runtimes_words(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", spec(one("known")))
    with pytest.raises(UnresolvableError) as caught:
        resolve([f"{KIND}=known", f"{KIND}=x", "y.com/z=w"], [tmp_path])
    assert str(caught.value) == (
        f"CDI device injection failed: unresolvable CDI devices {KIND}=x, y.com/z=w"
    )


def test_a_file_that_is_wrong_hides_its_devices_and_no_others(tmp_path: Path) -> None:
    write(tmp_path, "good.json", spec(one("good")))
    write(tmp_path, "bad.json", spec(one("bad"), surprise=1))
    (tmp_path / "worse.json").write_bytes(b"\xff\x00{")
    assert resolve([f"{KIND}=good"], [tmp_path]).env == (("A", "1"),)
    with pytest.raises(UnresolvableError):
        resolve([f"{KIND}=bad"], [tmp_path])


def test_two_definitions_in_one_folder_are_none_and_a_later_folder_wins(tmp_path: Path) -> None:
    static, dynamic = tmp_path / "etc", tmp_path / "run"
    static.mkdir()
    dynamic.mkdir()
    write(static, "a.json", spec(one("d", env=["FROM=etc"])))
    write(dynamic, "a.json", spec(one("d", env=["FROM=run"])))
    assert resolve([f"{KIND}=d"], [static, dynamic]).env == (("FROM", "run"),)
    write(dynamic, "b.json", spec(one("d")))
    with pytest.raises(UnresolvableError):
        resolve([f"{KIND}=d"], [static, dynamic])


def test_files_are_read_anew_for_each_container(tmp_path: Path) -> None:
    write(tmp_path, "a.json", spec(one("d", env=["V=1"])))
    assert resolve([f"{KIND}=d"], [tmp_path]).env == (("V", "1"),)
    write(tmp_path, "a.json", spec(one("d", env=["V=2"])))
    assert resolve([f"{KIND}=d"], [tmp_path]).env == (("V", "2"),)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "is no mapping"),
        (spec(), "has no devices"),
        (spec(one("d")) | {"cdiVersion": "2.0.0"}, "cdiVersion is '2.0.0'"),
        (spec(one("d")) | {"kind": "share"}, "kind is 'share'"),
        (spec(one("-d")), "called '-d'"),
        (spec(one("d"), one("d")), "two devices are called d"),
        (spec({"name": "d"}), "edits nothing"),
        (spec(one("d", env=["NOVALUE"])), "env has 'NOVALUE'"),
        (spec(one("d", deviceNodes=[{"hostPath": "/dev/x"}])), "path is None"),
        (spec(one("d", mounts=[{"hostPath": "/x"}])), "containerPath is None"),
        (spec(one("d", surprise=1)), "unknown key surprise"),
    ],
)
def test_a_spec_that_breaks_the_specification_is_refused(document: object, message: str) -> None:
    with pytest.raises(EmbeddedError, match=message):
        parse(Path("x.json"), document)


# -- environment


def around(**contents: dict[str, str]) -> Surroundings:
    pod = {"metadata": {"name": "p", "namespace": "a", "labels": {"x": "y"}, "uid": "u"}}
    keyed = {("ConfigMap", name): held for name, held in contents.items()}
    return Surroundings(pod=pod, node="n1", pod_ip="10.1.1.1", contents=keyed)


def test_env_beats_env_from_and_later_entries_win() -> None:
    container = {
        "envFrom": [
            {"configMapRef": {"name": "m"}},
            {"prefix": "P_", "configMapRef": {"name": "m"}},
        ],
        "env": [
            {"name": "A", "value": "own"},
            {"name": "B", "value": "$(A)-$(NONE)-$$(A)"},
            {"name": "A", "value": "last"},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "C"}}},
        ],
    }
    assert sources_of(container) == {("ConfigMap", "m")}
    assert environment_of(container, around(m={"A": "map", "C": "c"})) == {
        "A": "last",
        "B": "own-$(NONE)-$(A)",
        "C": "c",
        "P_A": "map",
        "P_C": "c",
        "N": "n1",
        "L": "y",
        "K": "c",
    }


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "x"}}]}, 'configmap "x" not found'),
        ({"envFrom": [{"secretRef": {"name": "x"}}]}, 'secret "x" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]},
            "couldn't find key k in ConfigMap a/m",
        ),
    ],
)
def test_a_missing_source_is_told_as_the_kubelet_does(
    container: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        environment_of(container, around(m={}))
    assert str(caught.value) == message


def test_an_optional_source_may_be_missing() -> None:
    reference = {"name": "x", "key": "k", "optional": True}
    container = {
        "envFrom": [{"secretRef": {"name": "x", "optional": True}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": reference}}],
    }
    assert environment_of(container, around()) == {}


def test_a_secrets_data_is_decoded_and_resources_are_counted() -> None:
    assert contents_of({"kind": "Secret", "data": {"k": "dg=="}}) == {"k": "v"}
    container = {
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        "env": [
            {"name": "G", "valueFrom": {"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}}}
        ],
    }
    assert environment_of(container, around()) == {"G": "2"}


def test_expansion_leaves_what_it_does_not_know() -> None:
    assert expand("a$b $(X) $(Y) $$(X) $", {"X": "1"}) == "a$b 1 $(Y) $(X) $"


# -- the whole view


def test_a_cdi_edit_beats_the_pods_env_which_beats_allocate() -> None:
    answer = api.ContainerAllocateResponse(
        envs={"ONE": "allocate", "TWO": "allocate", "THREE": "allocate"},
        cdi_devices=[api.CDIDevice(name=f"{KIND}=d")],
        annotations={"cdi.k8s.io/x": f"{KIND}=e, {KIND}=d"},
        devices=[api.DeviceSpec(container_path="/dev/a", host_path="/dev/b", permissions="rw")],
        mounts=[api.Mount(container_path="/m", host_path="/h", read_only=True)],
    )
    holdings = {"r": Holding(devices=("x",), answer=answer)}
    assert cdi_names(holdings) == (f"{KIND}=d", f"{KIND}=e")
    view = view_of(
        pod={"metadata": {"name": "p", "namespace": "a", "uid": "u"}},
        container="main",
        env={"TWO": "pod", "THREE": "pod"},
        holdings=holdings,
        edits=Edits(env=(("THREE", "first"), ("THREE", "cdi"))),
    )
    assert view.env == {"ONE": "allocate", "TWO": "pod", "THREE": "cdi"}
    assert view.env_from == {"ONE": Origin.ALLOCATE, "TWO": Origin.POD, "THREE": Origin.CDI}
    assert view.nodes == (Node(path="/dev/a", host_path="/dev/b", permissions="rw"),)
    assert view.mounts == (Mount(container_path="/m", host_path="/h", read_only=True),)
    assert json.loads(json.dumps(view.to_json()))["devices"] == {"r": ["x"]}
