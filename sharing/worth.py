"""What one part of a GPU is worth: memory, threads, multiprocessors, thousandths.

Each figure is rounded down, so that all parts together never exceed the GPU, but for the
thousandths, which are for quota and are rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharing.board import Board
from sharing.size import MILLI_PER_GPU, OneOf

_PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """One of N equal parts of a board, under MPS or time-slicing."""

    size: OneOf
    memory_mib: int
    """A limit under MPS; a budget that nothing enforces under time-slicing."""
    thread_percentage: int
    """Of the GPU's threads at any time under MPS; of its time under time-slicing."""
    sms: int
    """Multiprocessors that an MPS client of it runs on; 0 where the board's are not known."""
    milli: int
    """Thousandths of a GPU, as quota counts it."""


def worth_of(board: Board, size: OneOf) -> Worth:
    """What one part of a board is worth."""
    percentage = _PERCENT // size.parts
    return Worth(
        size=size,
        memory_mib=board.memory_mib // size.parts,
        thread_percentage=percentage,
        sms=board.sms * percentage // _PERCENT,
        milli=-(-MILLI_PER_GPU // size.parts),
    )
