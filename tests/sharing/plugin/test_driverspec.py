"""The driver's libraries and hooks come from NVIDIA's own CDI spec, its variables do not."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.plugin.binding import EditSettings, Hook, Mount, Visibility
from sharing.plugin.cdi import spec_files
from sharing.plugin.driverspec import driver_edits, read
from sharing.plugin.errors import PluginError
from tests.support.plugin_bindings import gpu_uuid, whole

SPEC = """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl}, {path: /dev/nvidia-uvm}]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib64]
    env: [NVIDIA_CTK_DEBUG=false]
  mounts:
  - hostPath: /usr/lib64/libcuda.so.570.1
    containerPath: /usr/lib64/libcuda.so.570.1
    options: [ro, nosuid, nodev, rbind, rprivate]
  - {hostPath: /run/nvidia-persistenced/socket, containerPath: /run/nvidia-persistenced/socket}
"""
WHERE = Path("nvidia.yaml")


def test_what_all_devices_share_is_taken_over_and_no_device_of_others(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text(SPEC)
    edits = read(path)
    assert edits.device_nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm")
    assert edits.env == ()
    library = "/usr/lib64/libcuda.so.570.1"
    assert Mount(host_path=library, container_path=library, read_only=True) in edits.mounts
    (hook,) = edits.hooks
    assert hook == Hook(
        name="createContainer",
        path="/usr/bin/nvidia-ctk",
        args=("nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib64"),
        env=("NVIDIA_CTK_DEBUG=false",),
    )


def test_our_spec_carries_them_and_holds_nvidias_runtime_off(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.json"
    mounts = [{"hostPath": "/lib/a", "containerPath": "/lib/a", "options": ["ro"]}]
    path.write_text(json.dumps({"kind": "nvidia.com/gpu", "containerEdits": {"mounts": mounts}}))
    settings = EditSettings(visibility=Visibility.VOID, driver=read(path))
    (content,) = spec_files([whole(0)], [], settings).values()
    edits = orjson.loads(content)["devices"][0]["containerEdits"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits["env"]
    assert f"GPU_SHARING_DEVICES={gpu_uuid(0)}" in edits["env"]
    assert edits["mounts"][0]["containerPath"] == "/lib/a"
    assert edits["mounts"][0]["options"][0] == "ro"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is of kind"),
        ("kind: vendor.com/net", "is of kind 'vendor.com/net'"),
        ("[1, 2]", "is of kind"),
        ("{", "is neither YAML nor JSON"),
        ("kind: nvidia.com/gpu\ncontainerEdits: {mounts: [{hostPath: /a}]}", "another form"),
        ("kind: nvidia.com/gpu\ncontainerEdits: {mounts: text}", "another form"),
        ("kind: nvidia.com/gpu\ncontainerEdits: [a]", "another form"),
    ],
)
def test_what_is_no_spec_of_nvidias_is_refused_in_one_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text(text)
    with pytest.raises(PluginError, match=said) as caught:
        read(path)
    assert "nvidia-ctk cdi generate" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="cannot be read: No such file"):
        read(tmp_path / "nvidia.yaml")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["mounts", "hooks", "deviceNodes", "env"])


@given(st.fixed_dictionaries({"kind": st.just("nvidia.com/gpu"),
                              "containerEdits": st.dictionaries(KEYS, ANY) | ANY}))  # fmt: skip
def test_hostile_specs_are_read_or_refused(document: object) -> None:
    with suppress(PluginError):
        edits = driver_edits(document, WHERE)
        assert all(isinstance(one.host_path, str) for one in edits.mounts)
