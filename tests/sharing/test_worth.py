"""What the parts of each board are worth."""

from __future__ import annotations

import pytest

from sharing import catalogue
from sharing.board import Board
from sharing.layout import GpuLayout
from sharing.mode import Mode
from sharing.mps.limits import share_limits
from sharing.share import shares_of, worth_milli
from sharing.size import OneOf
from sharing.worth import worth_of

BOARDS = catalogue.load().boards
SIZES = [OneOf(parts) for parts in (1, 2, 3, 4, 8, 16, 32, 48)]


@pytest.mark.parametrize(
    ("board", "parts", "memory_mib", "percentage", "sms", "milli"),
    [
        ("A30-24GB", 4, 6064, 25, 14, 250),
        ("A100-40GB", 2, 20480, 50, 54, 500),
        ("A100-40GB", 48, 853, 2, 2, 21),
        ("H100-80GB", 1, 81559, 100, 132, 1000),
        ("H100-80GB", 2, 40779, 50, 66, 500),
        ("H100-80GB", 3, 27186, 33, 43, 334),
        ("H100-80GB", 4, 20389, 25, 33, 250),
        ("H100-80GB", 8, 10194, 12, 15, 125),
        ("H100-80GB", 16, 5097, 6, 7, 63),
        ("H100-80GB", 48, 1699, 2, 2, 21),
        ("H200-141GB", 4, 35942, 25, 33, 250),
        ("B200-180GB", 8, 22919, 12, 17, 125),
        ("L4-24GB", 4, 5758, 25, 14, 250),
        ("T4-16GB", 2, 7680, 50, 20, 500),
        ("RTX-PRO-6000-96GB", 4, 24471, 25, 47, 250),
    ],
)
def test_a_part_is_worth_what_the_table_says(
    board: str, parts: int, memory_mib: int, percentage: int, sms: int, milli: int
) -> None:
    worth = worth_of(catalogue.load().board(board), OneOf(parts))
    assert (worth.memory_mib, worth.thread_percentage) == (memory_mib, percentage)
    assert (worth.sms, worth.milli) == (sms, milli)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_the_parts_never_exceed_the_board_and_agree_with_what_is_handed_out(board: Board) -> None:
    for size in SIZES:
        worth = worth_of(board, size)
        assert worth.memory_mib * size.parts <= board.memory_mib
        assert worth.thread_percentage * size.parts <= 100
        assert worth.sms * size.parts <= board.sms
        limits = share_limits(size, board.memory_mib)
        assert (limits.memory_mib, limits.thread_percentage) == (
            worth.memory_mib,
            worth.thread_percentage,
        )
        for mode in (Mode.MPS, Mode.TIME_SLICING):
            layout = GpuLayout(mode=mode, sizes=((size, size.parts),))
            shares = shares_of(layout, gpu_uuid="GPU-a", memory_mib=board.memory_mib)
            assert {share.memory_mib for share in shares} == {worth.memory_mib}
            assert {
                worth_milli(
                    share.share_class,
                    memory_mib=share.memory_mib,
                    gpu_memory_mib=board.memory_mib,
                )
                for share in shares
            } == {worth.milli}
