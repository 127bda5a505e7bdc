"""CDI specs: names and documents as the specification wants them, files whole or absent."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.plugin.binding import EditSettings
from sharing.plugin.cdi import cdi_device, combinations_in, device_name, file_name, spec_files
from sharing.plugin.cdistore import CdiStore
from sharing.plugin.errors import PluginError
from tests.support.plugin_bindings import gpu_uuid, mig, mps, slice_, whole

SETTINGS = EditSettings()
QUALIFIED = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w-]*[A-Za-z0-9])?=[\w.:-]+")
"""vendor/class=device. Source: CDI specification, "kind" and "devices.name"."""


@pytest.mark.parametrize("binding", [whole(0), slice_(0, 11), mps(0, 0), mig(0, 4)])
def test_each_share_has_a_legal_qualified_name(binding: object) -> None:
    assert QUALIFIED.fullmatch(cdi_device([binding], SETTINGS).qualified_name)  # type: ignore[list-item]


def test_a_combination_has_one_name_whatever_its_order() -> None:
    assert device_name(["a", "b"]) == device_name(["b", "a"]) != device_name(["a", "c"])


@pytest.mark.parametrize("evil", ["../../etc/passwd", "a/b", "", "a=b", "-a", "a\n", "a b", "ü"])
def test_an_id_that_is_no_name_is_refused(evil: str) -> None:
    with pytest.raises(PluginError, match="cannot be part of its name"):
        device_name([evil])
    with pytest.raises(PluginError, match="cannot be part of its name"):
        file_name(evil)


def test_a_spec_says_what_the_specification_wants() -> None:
    settings = EditSettings(dev_root="/run/nvidia/driver")
    (content,) = spec_files([mps(0, 0)], [], settings).values()
    document = orjson.loads(content)
    assert document["cdiVersion"] == "0.5.0"
    assert document["kind"] == "gpu.sharing/share"
    (device,) = document["devices"]
    edits = device["containerEdits"]
    assert edits["deviceNodes"] == [
        {
            "path": "/dev/nvidia0",
            "hostPath": "/run/nvidia/driver/dev/nvidia0",
            "permissions": "rw",
        }
    ]
    assert {mount["containerPath"] for mount in edits["mounts"]} == {
        "/dev/shm",
        f"/run/gpu-sharing/mps/{gpu_uuid(0)}/pipe",
    }
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in edits["env"]


def test_empty_lists_are_left_out() -> None:
    (content,) = spec_files([whole(0)], [], SETTINGS).values()
    assert b'"mounts"' not in content
    assert b'"hostPath"' not in content


@given(st.permutations([whole(0), slice_(1, 0), slice_(1, 1), mps(2, 0), mig(3, 0), mig(3, 4)]))
def test_files_do_not_depend_on_order(bindings: list[object]) -> None:
    first = spec_files(sorted(bindings, key=str), [], SETTINGS)  # type: ignore[arg-type]
    assert spec_files(bindings, [], SETTINGS) == first  # type: ignore[arg-type]
    assert len(first) == 4


def test_a_combination_is_written_once_all_of_its_gpus_are_known() -> None:
    pair = frozenset((gpu_uuid(0), gpu_uuid(1)))
    assert len(spec_files([whole(0)], [pair], SETTINGS)) == 1
    files = spec_files([whole(0), whole(1)], [pair], SETTINGS)
    name = file_name(device_name(sorted(pair)))
    assert combinations_in(files[name]) == (pair,)


@pytest.mark.parametrize("nonsense", [b"", b"[]", b"{", b'{"devices": 1}', b'{"devices": [1]}'])
def test_a_file_of_nonsense_holds_no_combinations(nonsense: bytes) -> None:
    assert combinations_in(nonsense) == ()


def test_files_of_others_are_never_touched(tmp_path: Path) -> None:
    other = tmp_path / "nvidia.json"
    other.write_text("{}")
    store = CdiStore(tmp_path, SETTINGS)
    store.sync([whole(0)])
    store.sync([])
    assert [path.name for path in tmp_path.iterdir()] == ["nvidia.json"]


def test_what_is_gone_is_removed_and_what_stays_is_not_rewritten(tmp_path: Path) -> None:
    store = CdiStore(tmp_path / "cdi", SETTINGS)
    store.sync([slice_(0, 0), slice_(1, 0)])
    path = tmp_path / "cdi" / file_name(gpu_uuid(0))
    before = path.stat()
    store.sync([slice_(0, 0)])
    assert [one.name for one in (tmp_path / "cdi").iterdir()] == [path.name]
    assert path.stat().st_ino == before.st_ino


def test_files_can_be_read_by_a_runtime_of_any_user(tmp_path: Path) -> None:
    CdiStore(tmp_path, SETTINGS).sync([whole(0)])
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_combinations_are_found_again_in_the_cdi_folder_alone(tmp_path: Path) -> None:
    gpus = [whole(0), whole(1)]
    first = CdiStore(tmp_path, SETTINGS)
    first.sync(gpus)
    first.ensure(cdi_device(gpus, SETTINGS), gpus)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    CdiStore(tmp_path, SETTINGS).sync(gpus)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(before) == 3


def test_a_broken_memory_of_combinations_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "combined-devices.json").write_text("not json")
    store = CdiStore(tmp_path / "cdi", SETTINGS, state_dir=tmp_path)
    store.sync([whole(0)])
    assert len(list((tmp_path / "cdi").iterdir())) == 1
