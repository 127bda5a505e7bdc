"""The catalogue's facts agree with each other, carry sources and can be found by name."""

from __future__ import annotations

import dataclasses

import pytest

from sharing import catalogue
from sharing.board import (
    GPU_INSTANCE_ENUMS,
    Architecture,
    Board,
    BoardMigProfile,
    Confidence,
    mig_label_gb,
)
from sharing.errors import InputError

BOARDS = catalogue.load().boards
NAMED = [
    "A30-24GB",
    "A100-40GB",
    "A100-80GB",
    "H100-80GB",
    "H100-PCIE-80GB",
    "H100-NVL-94GB",
    "H100-96GB",
    "GH200-96GB",
    "GH200-144GB",
    "H20-96GB",
    "H20-141GB",
    "H200-141GB",
    "B200-180GB",
    "GB200-186GB",
    "B300-269GB",
    "GB300-278GB",
    "RTX-PRO-6000-96GB",
    "RTX-PRO-5000-48GB",
    "RTX-PRO-4500-32GB",
    "L4-24GB",
    "L40S-48GB",
    "T4-16GB",
    "V100-32GB",
]


def each_board() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)


def test_every_promised_board_is_there() -> None:
    assert sorted(NAMED) == sorted(board.name for board in BOARDS)


@each_board()
def test_computed_profile_names_equal_listed_names(board: Board) -> None:
    for offered in board.mig:
        slices, suffix = GPU_INSTANCE_ENUMS[offered.enum]
        label = mig_label_gb(offered.memory_mib, board.memory_mib)
        assert f"{slices}g.{label}gb{suffix}" == str(offered.profile)


@each_board()
def test_every_fact_has_a_source(board: Board) -> None:
    own = ("product_names", "architecture", "compute_capability", "memory_mib", "sms")
    for fact in (*own, "pci_device_ids", "earliest_driver"):
        assert board.source(fact).origin
    if board.mig:
        assert board.source("mig").origin
    facts = {field.name for field in dataclasses.fields(BoardMigProfile)}
    facts -= {"profile", "earliest_driver"}
    for offered in board.mig:
        assert board.source("name", offered.profile).origin
        for fact in facts:
            assert isinstance(board.source(fact, offered.profile).confidence, Confidence)
        if offered.earliest_driver:
            assert board.source("earliest_driver", offered.profile).origin


@each_board()
def test_no_source_speaks_of_a_fact_that_is_not_there(board: Board) -> None:
    profiles = [str(offered.profile) for offered in board.mig]
    facts = {field.name for field in dataclasses.fields(BoardMigProfile)} | {"name", "engines"}
    for key, _ in board.sources:
        if key.startswith("mig."):
            profile, _, fact = key.removeprefix("mig.").rpartition(".")
            assert fact in facts
            assert not profile or profile in profiles
        else:
            assert hasattr(board, key)


@each_board()
def test_profiles_fit_their_board(board: Board) -> None:
    assert len({offered.enum for offered in board.mig}) == len(board.mig)
    assert len({offered.id for offered in board.mig}) == len(board.mig)
    for offered in board.mig:
        assert offered.memory_mib * offered.max_instances <= board.memory_mib
        assert offered.sms * offered.max_instances <= board.sms
        assert offered.profile.gpu_slices * offered.max_instances <= board.mig_compute_slices
        assert offered.placements
        assert all(place.end <= board.mig_slots for place in offered.placements)
        assert {place.size for place in offered.placements} == {offered.length}


@each_board()
def test_mig_mode_needs_a_reset_before_hopper_only(board: Board) -> None:
    assert board.resetless == (
        board.mig_capable and board.architecture in {Architecture.HOPPER, Architecture.BLACKWELL}
    )


@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("H100-80GB", "H100-80GB"),
        ("h100-80gb", "H100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("Tesla T4", "T4-16GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-96GB"),
    ],
)
def test_a_board_is_found_by_our_name_and_by_nvmls(name: str, board: str) -> None:
    assert catalogue.load().board(name).name == board


@pytest.mark.parametrize("name", ["H100-80", "", None, 7, "H100" * 100, "8xH100-80GB"])
def test_an_unknown_board_is_refused_with_the_names_that_exist(name: object) -> None:
    with pytest.raises(InputError, match=r"not in the catalogue.*H100-PCIE-80GB.*for example"):
        catalogue.load().board(name)


def test_a_misspelt_board_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="for example: H200-141GB"):
        catalogue.load().board("H200-14GB")


def test_an_unknown_product_is_none_rather_than_an_error() -> None:
    assert catalogue.load().of_product("NVIDIA Z999") is None


def test_a_product_of_other_memory_is_another_board() -> None:
    load = catalogue.load()
    assert load.of_product("NVIDIA GH200 480GB", memory_mib=97000) == load.board("GH200-96GB")
    assert load.of_product("NVIDIA GH200 480GB", memory_mib=147456) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("2xH100-80GB", ["H100-80GB"] * 2),
        ("A30-24GB", ["A30-24GB"]),
        (["H100-80GB", "2xA100-40GB"], ["H100-80GB", "A100-40GB", "A100-40GB"]),
        ("2xTesla T4", ["T4-16GB"] * 2),
    ],
)
def test_gpus_of_a_node_keep_their_order(text: object, names: list[str]) -> None:
    assert [board.name for board in catalogue.parse_node_gpus(text)] == names


@pytest.mark.parametrize(
    "text", ["", [], None, 8, "0xH100-80GB", "-1xH100-80GB", "9999xH100-80GB", "8x", [["T4-16GB"]]]
)
def test_gpus_that_no_node_has_are_refused(text: object) -> None:
    with pytest.raises(InputError):
        catalogue.parse_node_gpus(text)
