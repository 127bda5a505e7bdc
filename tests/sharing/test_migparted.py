"""mig-parted's ``mig-configs`` as input: what each of its rules makes of our GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.catalogue import load
from sharing.errors import InputError
from sharing.layout import GpuIdentity
from sharing.migparted import MigConfigs, is_mig_configs, read_mig_configs

MIXED = ("A100-40GB", "A30-24GB", "L4-24GB", "H100-80GB")


def gpus(*boards: str) -> list[Any]:
    return [
        (GpuIdentity(index=index, uuid=f"GPU-{index}", board=name), load().board(name))
        for index, name in enumerate(boards)
    ]


def read(**configs: Any) -> MigConfigs:
    named = {name.replace("_", "-"): entries for name, entries in configs.items()}
    return read_mig_configs({"version": "v1", "mig-configs": named}, "file")


def layouts(configs: MigConfigs, name: str, *boards: str) -> dict[int, str]:
    return {gpu.index: str(layout) for gpu, layout in configs.layouts(name, gpus(*boards))}


def entry(**fields: Any) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in fields.items()}


def test_all_passes_over_gpus_without_mig_and_filters_choose_boards_by_pci_device() -> None:
    configs = read(
        mixed=[
            entry(
                devices="all",
                device_filter=["0x20B010DE", "0x20F110DE"],
                mig_enabled=True,
                mig_devices={"1g.5gb": 7},
            ),
            entry(
                devices="all",
                device_filter="0x20B710DE",
                mig_enabled=True,
                mig_devices={"1g.6gb": 4},
            ),
        ]
    )

    assert layouts(configs, "mixed", *MIXED) == {0: "mig 7x 1g.5gb", 1: "mig 4x 1g.6gb"}


def test_a_gpu_that_no_entry_names_stays_and_a_later_entry_wins() -> None:
    configs = read(
        some=[
            entry(devices=[0, 1], mig_enabled=True, mig_devices={"1g.10gb": 7}),
            entry(devices=[1], mig_enabled=False),
        ]
    )

    found = layouts(configs, "some", "H100-80GB", "H100-80GB", "H100-80GB")
    assert found == {0: "mig 7x 1g.10gb", 1: "exclusive"}


def test_mig_without_devices_is_mig_mode_with_nothing_in_it() -> None:
    configs = read(
        empty=[entry(devices="all", mig_enabled=True, mig_devices={})],
        zero=[entry(devices="all", mig_enabled=True, mig_devices={"1g.10gb": 0, "7g.80gb": 1})],
    )

    assert layouts(configs, "empty", "H100-80GB") == {0: "mig"}
    assert layouts(configs, "zero", "H100-80GB") == {0: "mig 1x 7g.80gb"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-disabled", {0: "exclusive", 1: "exclusive", 2: "exclusive", 3: "exclusive"}),
        ("all-enabled", {0: "mig", 1: "mig", 3: "mig"}),
        (
            "all-balanced",
            {
                0: "mig 1x 3g.20gb 1x 2g.10gb 2x 1g.5gb",
                1: "mig 1x 2g.12gb 2x 1g.6gb",
                3: "mig 1x 3g.40gb 1x 2g.20gb 2x 1g.10gb",
            },
        ),
        ("all-1g.5gb", {0: "mig 7x 1g.5gb"}),
        ("all-1g.5gb.me", {0: "mig 1x 1g.5gb+me"}),
    ],
)
def test_the_built_in_names_mean_something_on_each_board(
    name: str, expected: dict[int, str]
) -> None:
    configs = read(other=[entry(devices="all", mig_enabled=False)])

    assert layouts(configs, name, *MIXED) == expected


@pytest.mark.parametrize("board", [board.name for board in load().boards if board.mig])
def test_balanced_fits_every_board_that_has_mig(board: str) -> None:
    configs = read(other=[entry(devices="all", mig_enabled=False)])

    assert layouts(configs, "all-balanced", board)[0] != "mig"


def test_a_gpu_without_mig_that_is_named_for_it_is_an_error() -> None:
    configs = read(one=[entry(devices=[0], mig_enabled=True, mig_devices={"1g.10gb": 1})])

    with pytest.raises(InputError, match="L4-24GB has no MIG"):
        configs.layouts("one", gpus("L4-24GB"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (entry(devices="some", mig_enabled=False), "devices"),
        (entry(devices="all", mig_enabled=True), "mig-devices is missing"),
        (entry(devices="all", mig_enabled=False, mig_devices={}), "no meaning"),
        (entry(devices="all", mig_enabled=True, mig_devices={"1c.3g.40gb": 2}), "splits"),
        (entry(devices="all", mig_enabled=True, mig_devices={"odd": 2}), "odd"),
        (entry(devices="all", mig_enabled=False, device_filter="10DE"), "no PCI device"),
        (entry(devices="all", mig_enabled=False, extra=1), "unknown field"),
    ],
)
def test_a_malformed_entry_is_refused_and_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(one=[fields])

    assert said in str(caught.value)
    assert "one" in str(caught.value) or "file" in str(caught.value)


def test_only_the_documents_key_makes_it_mig_parteds_file() -> None:
    assert is_mig_configs({"version": "v1", "mig-configs": {}})
    assert not is_mig_configs([])
    with pytest.raises(InputError, match="version"):
        read_mig_configs({"version": "v2", "mig-configs": {}}, "file")
