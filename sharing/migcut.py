"""What a board says to MIG instances that are cut further: whether all shares can be had (pure).

A server takes 48 MPS clients on a whole GPU; on a MIG device as many fewer as its compute instance
is smaller. A share that no client can come to would be worth nothing, so it is never made.

Source: NVIDIA MIG User Guide, "CUDA Multi-Process Service": the client limit is lowered
proportionally to the compute instance.
"""

from __future__ import annotations

from sharing.board import Board
from sharing.errors import LayoutError
from sharing.layout import GpuLayout
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.size import MOST_PARTS


def most_clients(board: Board, profile: MigProfile) -> int:
    """How many MPS clients an instance of a MIG profile takes, rounded down."""
    return MOST_PARTS * profile.gpu_slices // max(board.mig_compute_slices, 1)


def check_cuts(board: Board, layout: GpuLayout) -> None:
    """See that a board's instances can be cut as a layout says.

    Raises:
        LayoutError: The board lacks a MIG profile, or takes too few MPS clients on it.
    """
    for profile, cut in layout.cuts:
        board.mig_profile(profile)
        count = sum(number for _, number in cut.sizes)
        if cut.mode is Mode.MPS and count > (most := most_clients(board, profile)):
            raise LayoutError(
                f"board {board.name}",
                f"cannot serve {count} MPS shares on one {profile}",
                expected=f"at most {most}, the MPS clients that such an instance takes",
                fix="cut it into fewer shares, or use time-slicing there",
            )
