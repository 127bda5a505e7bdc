"""Names of MIG profiles follow from memory; a board answers for its profiles."""

from __future__ import annotations

import pytest

from sharing import catalogue
from sharing.board import Placement, mig_label_gb
from sharing.errors import LayoutError
from sharing.migprofile import MigProfile


@pytest.mark.parametrize(
    ("profile_mib", "total_mib", "label"),
    [
        (5952, 24258, 6),
        (4864, 40960, 5),
        (9728, 81920, 10),
        (81152, 81559, 80),
        (47488, 95830, 47),
        (16384, 143771, 18),  # 16.0 GiB are called 18gb
        (71168, 143771, 71),  # 70.5 is rounded half up
        (17920, 147456, 18),
        (20992, 183359, 23),
        (46592, 189471, 47),
        (23680, 97887, 24),
    ],
)
def test_label_is_the_share_of_the_board_in_eighths(
    profile_mib: int, total_mib: int, label: int
) -> None:
    assert mig_label_gb(profile_mib, total_mib) == label


def test_one_mib_over_an_eighth_jumps_to_the_next() -> None:
    assert mig_label_gb(35526, 284208) == 35
    assert mig_label_gb(35527, 284208) == 70


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (Placement(0, 4), Placement(4, 4), False),
        (Placement(0, 4), Placement(3, 1), True),
        (Placement(3, 3), Placement(0, 12), True),
        (Placement(6, 2), Placement(0, 6), False),
    ],
)
def test_placements_overlap_where_they_share_a_unit(
    one: Placement, other: Placement, overlap: bool
) -> None:
    assert one.overlaps(other) is overlap
    assert other.overlaps(one) is overlap


def test_a_profile_of_another_board_is_refused_with_the_nearest() -> None:
    board = catalogue.load().board("A100-40GB")
    with pytest.raises(LayoutError, match=r"A100-40GB.*'3g\.40gb'.*for example: 3g\.20gb"):
        board.mig_profile(MigProfile.parse("3g.40gb"))


def test_a_board_without_mig_says_what_to_use_instead() -> None:
    board = catalogue.load().board("L4-24GB")
    with pytest.raises(LayoutError, match=r"has no MIG.*use mode mps"):
        board.mig_profile(MigProfile.parse("1g.5gb"))
