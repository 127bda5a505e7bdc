"""NVIDIA's device-plugin configuration as input: what each field makes of our GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.errors import InputError
from sharing.layout import GpuIdentity
from sharing.nvidiaconfig import NodeGpu, Translation, is_nvidia_config, read_nvidia_config


def gpus(count: int, *in_mig_mode: int) -> list[NodeGpu]:
    return [
        NodeGpu(
            identity=GpuIdentity(index=index, uuid=f"GPU-{index}", board="H100-80GB"),
            in_mig_mode=index in in_mig_mode,
        )
        for index in range(count)
    ]


def sliced(*resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": "v1", "sharing": {"timeSlicing": {"resources": [*resources], **more}}}


def translate(value: object, nodes: list[NodeGpu]) -> Translation:
    return read_nvidia_config(value, "file").translate(nodes)


def layouts(value: object, nodes: list[NodeGpu]) -> dict[int, str]:
    return {gpu.index: str(layout) for gpu, layout in translate(value, nodes).layouts}


GPU4 = {"name": "nvidia.com/gpu", "replicas": 4}


def test_replicas_of_all_gpus_are_as_many_equal_shares() -> None:
    assert layouts(sliced(GPU4), gpus(2)) == {
        0: "time-slicing 4x 1of4",
        1: "time-slicing 4x 1of4",
    }


def test_a_name_without_domain_is_nvidias() -> None:
    assert layouts(sliced({"name": "gpu", "replicas": 2}), gpus(1)) == {0: "time-slicing 2x 1of2"}


def test_devices_which_upstream_ignores_choose_gpus() -> None:
    by_index = sliced({**GPU4, "devices": [1, "GPU-2"]})
    by_count = sliced({**GPU4, "devices": 1})

    assert layouts(by_index, gpus(4)) == {
        0: "exclusive",
        1: "time-slicing 4x 1of4",
        2: "time-slicing 4x 1of4",
        3: "exclusive",
    }
    assert layouts(by_count, gpus(2)) == {0: "time-slicing 4x 1of4", 1: "exclusive"}


def test_a_count_passes_over_gpus_in_mig_mode_and_these_stay() -> None:
    found = layouts(sliced({**GPU4, "devices": 1}), gpus(3, 0))

    assert found == {1: "time-slicing 4x 1of4", 2: "exclusive"}


def test_both_sections_live_side_by_side_and_mps_comes_first() -> None:
    value = {
        "version": "v1",
        "sharing": {
            "timeSlicing": {"resources": [GPU4]},
            "mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2, "devices": [0]}]},
        },
    }

    assert layouts(value, gpus(2)) == {0: "mps 2x 1of2", 1: "time-slicing 4x 1of4"}


def test_the_first_resource_that_selects_a_gpu_wins() -> None:
    value = sliced({**GPU4, "devices": [0]}, {"name": "nvidia.com/gpu", "replicas": 8})

    assert layouts(value, gpus(2)) == {0: "time-slicing 4x 1of4", 1: "time-slicing 8x 1of8"}


@pytest.mark.parametrize("rename", ["team-a", "nvidia.com/team-a"])
def test_a_rename_that_can_name_a_pool_is_one(rename: str) -> None:
    found = translate(sliced({**GPU4, "rename": rename}), gpus(1))

    assert str(found.layouts[0][1]) == "time-slicing 4x 1of4 for pool team-a"
    assert "team-a.gpu.sharing/timeslice-1of4" in found.notes[0]


def test_a_rename_that_cannot_is_said_with_the_name_that_holds() -> None:
    found = translate(sliced({**GPU4, "rename": "nvidia.com/gpu.shared"}), gpus(1))

    assert str(found.layouts[0][1]) == "time-slicing 4x 1of4"
    assert "gpu.sharing/timeslice-1of4" in found.notes[0]
    assert "compatibility: [nvidia-shared]" in found.notes[0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (sliced(GPU4, renameByDefault=True), "nvidia.com/gpu.shared"),
        (sliced(GPU4, failRequestsGreaterThanOne=False), "request above 1"),
        (sliced({"name": "nvidia.com/mig-1g.10gb", "replicas": 2}), "smaller MIG profile"),
        (sliced({**GPU4, "devices": ["0:1"]}), "0:1 is a MIG device"),
        (sliced({**GPU4, "devices": [7]}), "7 is no GPU of this node"),
        (sliced({**GPU4, "devices": [1]}), "GPU 1 is in MIG mode"),
        (sliced({**GPU4, "devices": 9}), "9 GPUs are asked for, 1 are there"),
        ({"flags": {"migStrategy": "single"}}, "as under mixed"),
        ({"flags": {"plugin": {"passDeviceSpecs": True}}}, "flags plugin"),
        ({"resources": {"gpus": [{"pattern": "*", "name": "x"}]}}, "resources"),
        ({"imex": {"channelIDs": [0]}}, "imex"),
    ],
)
def test_what_cannot_be_carried_over_is_said(value: dict[str, Any], said: str) -> None:
    notes = translate(value, gpus(2, 1)).notes

    assert any(said in note for note in notes), notes


def test_a_file_that_carries_over_whole_says_nothing() -> None:
    assert translate(sliced(GPU4), gpus(1)).notes == ()


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"version": "v2", "sharing": {}}, "version"),
        (sliced({**GPU4, "replicas": 1}), "replicas"),
        (sliced({**GPU4, "replicas": 49}), "2 to 48"),
        (sliced({**GPU4, "devices": ["nonsense"]}), "names no device"),
        (sliced(), "resources"),
        ({"sharing": {"timeSlicing": {"resources": [GPU4]}, "mpss": {}}}, "mpss"),
        ({"renameByDefault": True, "sharing": {}}, "renameByDefault"),
    ],
)
def test_mistakes_name_the_field(value: object, field: str) -> None:
    with pytest.raises(InputError, match=field):
        read_nvidia_config(value, "file")


def test_other_files_are_not_mistaken_for_it() -> None:
    assert is_nvidia_config({"version": "v1", "sharing": {}})
    assert is_nvidia_config({"flags": {}})
    assert not is_nvidia_config({"version": "v1", "mig-configs": {}})
    assert not is_nvidia_config({"kind": "GPULayout", "resources": {}})
    assert not is_nvidia_config([])


DEVICES = st.one_of(
    st.just("all"),
    st.integers(1, 9),
    st.lists(st.one_of(st.integers(0, 9), st.just("0:1"), st.just("GPU-1")), min_size=1),
)
RESOURCES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["nvidia.com/gpu", "gpu", "nvidia.com/mig-1g.10gb"]),
        "replicas": st.integers(2, 48),
        "devices": DEVICES,
    },
    optional={"rename": st.sampled_from(["team-a", "gpu.shared", "gpu", "x" * 63, "Ü"])},
)


@given(st.lists(RESOURCES, min_size=1, max_size=4), st.lists(RESOURCES, min_size=1), st.data())
def test_every_gpu_that_is_not_in_mig_mode_gets_a_layout_whatever_the_order_of_gpus(
    slices: list[dict[str, Any]], mps: list[dict[str, Any]], data: st.DataObject
) -> None:
    value = {"sharing": {"timeSlicing": {"resources": slices}, "mps": {"resources": mps}}}
    nodes = gpus(4, 2)
    found = translate(value, nodes)

    assert [gpu.index for gpu, _ in found.layouts] == [0, 1, 3]
    assert translate(value, data.draw(st.permutations(nodes))) == found
