"""What makes a node unfit to share GPUs, and that each finding says what to do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sharing.node.examination import PROGRAMS, Roots, folder, look
from sharing.node.fitness import Check, Outcome, examine
from sharing.node.outfit import ClusterSeen, FolderSeen, GpuSeen, OutfitSeen
from sharing.node.settings import AgentSettings
from sharing.nvml import simulator
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.store import Store


def good(path: str) -> FolderSeen:
    return FolderSeen(path=path, exists=True, writable=True)


FIT = OutfitSeen(
    driver_version="580.95.05",
    gpus=(GpuSeen(index=0, product="NVIDIA H100"),),
    programs=frozenset(PROGRAMS),
    root=True,
    host_pids=True,
    cgroup_version=2,
    kubelet_answers=True,
    pod_resources_answer=True,
    sockets=good("/k"),
    cdi=good("/cdi"),
    state=good("/state"),
    mps=good("/mps"),
    clock_synchronised=True,
    cluster=ClusterSeen(managed=True, kubelet="v1.34.1", runtime="containerd://2.0.4"),
)


def not_ok(seen: OutfitSeen) -> list[Check]:
    return [one for one in examine(seen) if one.outcome is not Outcome.OK]


def test_a_fit_node_passes_every_check() -> None:
    assert not_ok(FIT) == []


OLD_KUBELET = ClusterSeen(managed=True, kubelet="v1.27.9-eks", runtime="containerd://1.7.2")
OLD_RUNTIME = ClusterSeen(managed=True, kubelet="v1.30.0", runtime="containerd://1.6.33")
DOCKER = ClusterSeen(managed=True, kubelet="v1.30.0", runtime="docker://27.0.1")


@pytest.mark.parametrize(
    ("change", "name", "outcome"),
    [
        ({"driver_trouble": "no library"}, "driver", "fail"),
        ({"gpus": ()}, "driver", "fail"),
        ({"driver_version": "418.126.02"}, "driver", "fail"),
        ({"driver_version": "470.57.02"}, "driver", "warn"),
        ({"gpus": (GpuSeen(index=3, product="x", fault="lost"),)}, "GPU 3", "warn"),
        ({"gpus": (GpuSeen(index=0, product="x", foreign_pids=(7, 9)),)}, "GPU 0", "warn"),
        ({"programs": frozenset(PROGRAMS) - {"unshare"}}, "MPS programs", "warn"),
        ({"programs": frozenset(PROGRAMS) - {"nvidia-smi"}}, "nvidia-smi", "warn"),
        (
            {"programs": frozenset(PROGRAMS) - {"nvidia-ctk", "nvidia-container-runtime"}},
            "container toolkit",
            "warn",
        ),
        ({"missing_device_files": ("/dev/nvidiactl",)}, "device files", "fail"),
        ({"root": False}, "rights", "fail"),
        ({"root": False, "mig_right": True}, "rights", "warn"),
        ({"host_pids": False}, "process ids", "warn"),
        ({"cgroup_version": 0}, "cgroups", "warn"),
        ({"sockets": FolderSeen(path="/k")}, "kubelet", "fail"),
        ({"kubelet_answers": False}, "kubelet", "fail"),
        ({"sockets": FolderSeen(path="/k", exists=True)}, "kubelet", "fail"),
        ({"pod_resources_answer": False}, "pod resources", "fail"),
        ({"checkpoint_trouble": "torn"}, "kubelet checkpoint", "fail"),
        ({"cdi": FolderSeen(path="/cdi", exists=True)}, "CDI folder", "fail"),
        ({"state": replace(good("/run/s"), volatile=True)}, "state folder", "warn"),
        ({"mps": good("/" + "m" * 60)}, "MPS folder", "fail"),
        ({"rival": "NVIDIA's plugin"}, "other managers", "fail"),
        ({"mig_manager": "mig-manager"}, "other managers", "warn"),
        ({"announced": ("it comes",)}, "other managers", "warn"),
        ({"clock_synchronised": False}, "clock", "warn"),
        ({"clock_synchronised": None}, "clock", "warn"),
        ({"cluster": ClusterSeen(trouble="refused")}, "cluster", "fail"),
        ({"cluster": replace(OLD_RUNTIME, managed=False)}, "node label", "warn"),
        ({"cluster": OLD_KUBELET}, "kubelet version", "fail"),
        ({"cluster": OLD_RUNTIME}, "container runtime", "fail"),
        ({"cluster": DOCKER}, "container runtime", "warn"),
    ],
)
def test_each_trouble_is_found_under_its_name_with_a_remedy(
    change: dict[str, Any], name: str, outcome: str
) -> None:
    found = [one for one in not_ok(replace(FIT, **change)) if one.name == name]

    assert [str(one.outcome) for one in found] == [outcome]
    assert all(one.finding and one.remedy for one in found)


def test_simulated_gpus_need_no_programs_rights_or_device_files() -> None:
    bare = replace(FIT, simulated=True, programs=frozenset(), root=False, host_pids=False)

    assert not_ok(bare) == []


# -- looking


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def node(short_dir: Path) -> AgentSettings:
    simulator.create(short_dir / "gpus.json", "1xH100-80GB")
    return AgentSettings(
        node="n1",
        simulate=short_dir / "gpus.json",
        kubelet_dir=short_dir / "k",
        cdi_dir=short_dir / "cdi",
        state_dir=short_dir / "s",
        mps_dir=short_dir / "m",
    )


def test_what_the_kernel_shows_is_read(node: AgentSettings, short_dir: Path) -> None:
    roots = Roots(proc=short_dir / "proc", sys=short_dir / "sys", dev=short_dir / "dev")
    write(roots.sys / "fs/cgroup/cgroup.controllers", "cpu memory dmem\n")
    write(roots.proc / "mounts", f"tmpfs / tmpfs rw\next4 {short_dir} ext4 rw\n")
    write(roots.proc / "driver/nvidia/capabilities/mig/config", "")
    write(short_dir / "bin/nvidia-smi", "#!/bin/sh\n")
    (short_dir / "bin/nvidia-smi").chmod(0o755)

    seen = look(node, roots=roots, path=str(short_dir / "bin"))
    assert (seen.cgroup_version, seen.dmem, seen.mig_right) == (2, True, True)
    assert seen.programs == {"nvidia-smi"}
    assert not seen.host_pids
    assert not seen.state.volatile
    assert seen.state.writable  # it can be made
    assert not seen.sockets.exists


def test_a_folder_below_a_file_or_a_closed_one_is_not_writable(short_dir: Path) -> None:
    write(short_dir / "file", "")

    assert not folder(short_dir / "file" / "below").writable
    assert folder(short_dir / "new" / "deep").writable


def test_a_folder_in_memory_is_known_as_such(short_dir: Path) -> None:
    write(short_dir / "proc/mounts", f"none / ext4 rw\ntmpfs {short_dir} tmpfs rw\n")

    assert folder(short_dir / "state", short_dir / "proc").volatile


def test_processes_of_no_pod_are_named(node: AgentSettings) -> None:
    assert node.simulate is not None
    store = Store(node.simulate)
    for cgroup in ("/system.slice/exporter.service", f"/kubepods/pod12345678/{'a' * 64}"):
        store.change(partial(operate.start_process, which="0", cgroup=cgroup))

    (gpu,) = look(node).gpus
    assert gpu.foreign_pids == (4001,)


def test_a_lost_gpu_is_one_finding_and_the_others_are_looked_at(short_dir: Path) -> None:
    simulator.create(short_dir / "gpus.json", "2xH100-80GB")
    settings = AgentSettings(node="n1", simulate=short_dir / "gpus.json")
    Store(short_dir / "gpus.json").change(lambda machine: operate.lose(machine, "0"))

    lost, well = look(settings).gpus
    assert lost.fault
    assert not well.fault
