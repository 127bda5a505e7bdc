"""MPS folders are open to pods where SELinux decides who may use them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sharing.mps.selinux import ATTRIBUTE, FOR_PODS, open_to_pods


def test_without_selinux_nothing_is_labelled(tmp_path: Path) -> None:
    open_to_pods(tmp_path, enabled=tmp_path / "absent")
    assert ATTRIBUTE not in os.listxattr(tmp_path)


def test_with_selinux_the_folder_gets_the_label_of_containers(tmp_path: Path) -> None:
    try:
        os.setxattr(tmp_path, ATTRIBUTE, b"other\0")
    except OSError as error:
        pytest.skip(f"labels cannot be set here: {error}")
    (tmp_path / "enforce").touch()
    open_to_pods(tmp_path, enabled=tmp_path / "enforce")
    assert os.getxattr(tmp_path, ATTRIBUTE) == FOR_PODS


def test_a_host_that_refuses_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "enforce").touch()
    open_to_pods(tmp_path / "gone", enabled=tmp_path / "enforce")
    assert not (tmp_path / "gone").exists()
