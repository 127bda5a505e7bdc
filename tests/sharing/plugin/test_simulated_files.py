"""Device files of simulated GPUs: what a container runtime reads, and what it must not reach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sharing.node.devicefiles import capabilities, usual_minors
from sharing.plugin.allocation import allocate
from sharing.plugin.binding import EditSettings
from sharing.plugin.cdi import cdi_device, spec
from sharing.plugin.settings import AnswerSettings, Strategy
from sharing.plugin.simulatedfiles import MAJOR, minor_of
from tests.support.plugin_bindings import whole

FILES = (
    "/dev/nvidia0", "/dev/nvidia7", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
    "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap1082",
)  # fmt: skip


def test_a_simulated_file_is_made_by_number_and_may_be_opened() -> None:
    settings = EditSettings(simulated=True)
    binding = replace(whole(0), device_nodes=FILES)

    document = json.loads(spec([cdi_device([binding], settings)], settings))

    nodes = document["devices"][0]["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in nodes] == sorted(FILES)
    assert {(node["type"], node["major"], node["permissions"]) for node in nodes} == {
        ("c", MAJOR, "rw")
    }
    assert len({node["minor"] for node in nodes}) == len(FILES)
    assert not any("hostPath" in node for node in nodes)


def test_a_simulated_file_has_no_number_of_a_driver_of_this_machine() -> None:
    """NVIDIA's own major is 195; those of its other files are given by the kernel from above."""
    listed = Path("/proc/devices").read_text().partition("Block")[0].splitlines()[1:]

    assert 120 <= MAJOR <= 127
    assert MAJOR not in {int(line.split()[0]) for line in listed if line.strip()}


@pytest.mark.parametrize(
    "path", ["/dev/kmsg", "/dev/nvidia", "/dev/nvidia0/x", "/dev/nvidia-capsx"]
)
def test_other_files_have_no_number(path: str) -> None:
    assert minor_of(path) is None


def test_the_kubelet_is_asked_for_no_file_that_no_host_has() -> None:
    share = whole(0)
    edits = EditSettings(simulated=True)
    settings = AnswerSettings(strategy=Strategy.ENVVAR, edits=edits)

    answer = allocate(share.resource, [share.device_id], {share.device_id: share}, settings)

    assert share.device_nodes
    assert answer.device_files == ()


def test_capabilities_are_numbered_as_the_driver_does() -> None:
    """As in NVIDIA's MIG User Guide: gpu0/gi0 has 3, its first compute instance 4."""
    assert capabilities(usual_minors(0), 0, 0) == (
        "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4",
    )  # fmt: skip
    assert capabilities(usual_minors(1), 1, 0)[0] == "/dev/nvidia-caps/nvidia-cap138"
    numbers = [line.split()[1] for gpu in range(8) for line in usual_minors(gpu).splitlines()]
    assert len(set(numbers)) == len(numbers) == 8 * 15 * 9
