"""The kubelet's checkpoint: holds that PodResources leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sharing.errors import UnavailableError
from sharing.node.checkpoint import FILE_NAME, Entry, PodName, read, unlisted
from sharing.node.held import Hold, Holder

INIT = Entry(pod_uid="u1", container="setup", resource="nvidia.com/gpu", device_ids=("GPU-a",))


def test_a_device_of_an_init_container_is_held_as_long_as_its_pod_exists() -> None:
    pods = {"u1": PodName(namespace="ns", name="train")}

    (hold,) = unlisted([INIT], [], pods)
    assert hold.holder == Holder(namespace="ns", pod="train", container="setup")
    assert unlisted([INIT], [], {}) == ()


def test_an_entry_counts_while_nobody_can_tell_whether_its_pod_exists() -> None:
    assert unlisted([INIT], [], None) == (Hold(device_id="GPU-a", resource="nvidia.com/gpu"),)


def test_what_podresources_lists_is_not_counted_again() -> None:
    listed = Hold(device_id="GPU-a", resource="nvidia.com/gpu")

    assert unlisted([INIT], [listed], None) == ()


def test_the_kubelets_format_is_read_with_devices_of_all_numa_nodes(tmp_path: Path) -> None:
    entry = {
        "PodUID": "u1",
        "ContainerName": "c",
        "ResourceName": "r/x",
        "DeviceIDs": {"-1": ["b"], "0": ["a", "b"]},
        "AllocResp": "",
    }
    data = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
    (tmp_path / FILE_NAME).write_text(json.dumps(data))

    assert read(tmp_path) == (
        Entry(pod_uid="u1", container="c", resource="r/x", device_ids=("a", "b")),
    )


def test_no_checkpoint_means_no_entries(tmp_path: Path) -> None:
    assert read(tmp_path) == ()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"Data": 1}', '{"Data": {"PodDeviceEntries": [1]}}']
)
def test_a_checkpoint_that_cannot_be_read_is_said_and_never_taken_for_empty(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / FILE_NAME).write_text(text)

    with pytest.raises(UnavailableError):
        read(tmp_path)
