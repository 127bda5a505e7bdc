"""What the parts of each board are worth: what MPS enforces, what is told, what quota counts."""

from __future__ import annotations

import pytest

from sharing import catalogue
from sharing.board import Board
from sharing.layout import GpuLayout
from sharing.mode import Mode
from sharing.mps.limits import share_limits
from sharing.share import shares_of, worth_milli
from sharing.size import OneOf

BOARDS = catalogue.load().boards
SIZES = [OneOf(parts) for parts in (1, 2, 3, 4, 8, 16, 32, 48)]


@pytest.mark.parametrize(
    ("board", "parts", "memory_mib", "percentage", "milli"),
    [
        ("A30-24GB", 4, 6064, 25, 250),
        ("A100-40GB", 2, 20480, 50, 500),
        ("A100-40GB", 48, 853, 2, 21),
        ("H100-80GB", 1, 81559, 100, 1000),
        ("H100-80GB", 2, 40779, 50, 500),
        ("H100-80GB", 3, 27186, 33, 334),
        ("H100-80GB", 4, 20389, 25, 250),
        ("H100-80GB", 8, 10194, 12, 125),
        ("H100-80GB", 16, 5097, 6, 63),
        ("H100-80GB", 48, 1699, 2, 21),
        ("H200-141GB", 4, 35942, 25, 250),
        ("B200-180GB", 8, 22919, 12, 125),
        ("L4-24GB", 4, 5758, 25, 250),
        ("T4-16GB", 2, 7680, 50, 500),
        ("RTX-PRO-6000-96GB", 4, 24471, 25, 250),
    ],
)
@pytest.mark.parametrize("mode", [Mode.MPS, Mode.TIME_SLICING])
def test_a_part_is_worth_what_the_table_says(
    board: str, parts: int, memory_mib: int, percentage: int, milli: int, mode: Mode
) -> None:
    size, total = OneOf(parts), catalogue.load().board(board).memory_mib
    shares = shares_of(
        GpuLayout(mode=mode, sizes=((size, parts),)), gpu_uuid="GPU-a", memory_mib=total
    )
    limits = share_limits(size, total)

    assert len(shares) == parts
    assert {share.memory_mib for share in shares} == {limits.memory_mib} == {memory_mib}
    assert limits.thread_percentage == percentage
    assert {
        worth_milli(share.share_class, memory_mib=share.memory_mib, gpu_memory_mib=total)
        for share in shares
    } == {milli}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_parts_never_exceed_the_board_and_are_enforced_as_they_are_told(
    board: Board, size: OneOf
) -> None:
    limits = share_limits(size, board.memory_mib)
    for mode in (Mode.MPS, Mode.TIME_SLICING):
        layout = GpuLayout(mode=mode, sizes=((size, size.parts),))
        shares = shares_of(layout, gpu_uuid="GPU-a", memory_mib=board.memory_mib)
        assert sum(share.memory_mib for share in shares) <= board.memory_mib
        assert {share.memory_mib for share in shares} == {limits.memory_mib}
    assert limits.thread_percentage * size.parts <= 100
