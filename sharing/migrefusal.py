"""Why MIG profiles do not fit a board, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sharing.board import Board, Placement
from sharing.migprofile import MigProfile

ONE_MEDIA = frozenset({"+me", "+me.all"})
"""A GPU has one optical-flow and JPEG block, so one instance at most has such a suffix."""


def why_not(
    board: Board, total: Counter[MigProfile], fixed: Sequence[tuple[MigProfile, Placement]]
) -> str:
    """Why a board cannot hold MIG profiles.

    Args:
        board: The GPU's model.
        total: All of them, those in use included.
        fixed: Those in use, which stay where they are.
    """
    offered = {known.profile: known for known in board.mig}
    for profile in sorted(total):
        if profile in offered and total[profile] > offered[profile].max_instances:
            return f"it takes {offered[profile].max_instances} of {profile} at most"
    suffixes = [profile.attributes for profile in total.elements()]
    if sum(suffix in ONE_MEDIA for suffix in suffixes) > 1:
        return "its media engines go to one instance"
    if "+me.all" in suffixes and set(suffixes) - {"+me.all", "-me"}:
        return "beside an instance with all media engines only '-me' profiles fit"
    slices = sum(profile.gpu_slices for profile in total.elements())
    if slices > board.mig_compute_slices:
        return f"that is {slices} compute slices, the board has {board.mig_compute_slices}"
    units = sum(offered[each].length for each in total.elements() if each in offered)
    if units > board.mig_slots:
        return f"that is {units} of {board.mig_slots} units of its memory grid"
    if fixed:
        at = ", ".join(f"{profile} at {placement.start}" for profile, placement in fixed)
        return f"the places that are left do not suit; in use: {at}"
    return "their legal places collide"


def sizes_text(profiles: Counter[MigProfile]) -> str:
    """As people write it in a layout: ``{3g.40gb: 1, 1g.10gb: 4}``."""
    parts = (f"{profile}: {profiles[profile]}" for profile in sorted(profiles, reverse=True))
    return "{" + ", ".join(parts) + "}"
