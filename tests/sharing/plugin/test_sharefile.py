"""The file that tells user code its share: written first, mounted read-only, removed last."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sharing.mode import Mode
from sharing.plugin.binding import FILES_ENV, MpsBinding, ShareBinding, container_edits
from sharing.plugin.errors import PluginError
from sharing.plugin.sharefile import ShareFiles, content_of


def binding(files: ShareFiles, device_id: str = "GPU-a::0") -> ShareBinding:
    return ShareBinding(
        device_id=device_id,
        resource="gpu.sharing/mps-1of4",
        visible="GPU-a",
        mode=Mode.MPS,
        memory_mib=20480,
        gpu_uuid="GPU-a",
        mps=MpsBinding(pipe_dir="/m/pipe", memory_limit_mib=20480, thread_percentage=25),
        info_file=files.path_of(device_id),
    )


@pytest.fixture
def files(tmp_path: Path) -> ShareFiles:
    return ShareFiles(tmp_path / "shares")


def test_the_container_finds_its_share_in_a_file_and_where_it_is_in_a_variable(
    files: ShareFiles,
) -> None:
    mine = binding(files)
    files.write([mine])
    edits = container_edits([mine])

    (mount,) = [one for one in edits.mounts if one.container_path.endswith(".json")]
    assert mount.container_path == dict(edits.env)[FILES_ENV]
    assert mount.container_path == "/etc/gpu-sharing/shares/GPU-a_0.json"
    assert mount.read_only
    path = Path(mount.host_path)
    assert path.stat().st_mode & 0o777 == 0o644
    told = json.loads(path.read_text())
    assert (told["mode"], told["memoryMiB"], told["threadPercentage"]) == ("mps", 20480, 25)
    assert told["isolation"] == "limits"


def test_several_whole_gpus_are_several_files(files: ShareFiles) -> None:
    pair = [
        replace(binding(files, uuid), mode=Mode.EXCLUSIVE, mps=None, gpu_uuid=uuid, visible=uuid)
        for uuid in ("GPU-a", "GPU-b")
    ]

    env = dict(container_edits(pair).env)
    assert env[FILES_ENV] == (
        "/etc/gpu-sharing/shares/GPU-a.json,/etc/gpu-sharing/shares/GPU-b.json"
    )


def test_files_of_shares_that_are_no_more_are_removed_and_others_stay(files: ShareFiles) -> None:
    old, new = binding(files), binding(files, "GPU-a::1")
    files.write([old, new])

    files.tidy([new])
    assert not Path(files.path_of("GPU-a::0")).exists()
    files.write([old])
    assert Path(files.path_of("GPU-a::0")).read_bytes() == content_of(old)


def test_a_changed_share_is_written_again(files: ShareFiles) -> None:
    files.write([binding(files)])
    smaller = replace(binding(files), memory_mib=1)

    files.write([smaller])
    assert json.loads(Path(files.path_of("GPU-a::0")).read_text())["memoryMiB"] == 1


def test_a_disk_that_refuses_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "shares").write_text("no folder")
    files = ShareFiles(tmp_path / "shares")

    with pytest.raises(PluginError, match="make room on the disk"):
        files.write([binding(files)])


def test_without_a_file_there_is_neither_mount_nor_variable(files: ShareFiles) -> None:
    edits = container_edits([replace(binding(files), info_file=None)])

    assert FILES_ENV not in dict(edits.env)
    assert all(not one.container_path.startswith("/etc") for one in edits.mounts)
