"""MPS limits: integers, nothing lost, nothing that rounds to nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.mps.errors import MpsError, MpsLimitError
from sharing.mps.limits import MpsLimits, ceiling, share_limits
from sharing.mps.protocol import check_memory, check_threads, parse_pids
from sharing.mps.standin import shown_memory
from sharing.size import OneOf

PARTS = st.integers(1, 48)
QUARTER = MpsLimits(memory_mib=3840, thread_percentage=25)


@given(PARTS, st.integers(48, 1 << 20))
def test_all_equal_shares_fit_and_lose_less_than_one_unit_each(parts: int, memory_mib: int) -> None:
    limits = share_limits(OneOf(parts), memory_mib)
    assert memory_mib - parts < limits.memory_mib * parts <= memory_mib
    assert 100 - parts < limits.thread_percentage * parts <= 100


def test_forty_eight_shares_have_two_percent_each() -> None:
    assert share_limits(OneOf(48), 81559) == MpsLimits(memory_mib=1699, thread_percentage=2)


@pytest.mark.parametrize("memory_mib", [0, 1, 47])
def test_memory_that_rounds_to_nothing_is_refused(memory_mib: int) -> None:
    with pytest.raises(MpsLimitError, match=r"rounds to nothing.*at least 48 MiB"):
        share_limits(OneOf(48), memory_mib)


@pytest.mark.parametrize(("memory_mib", "threads"), [(0, 10), (-1, 10), (10, 0), (10, 101)])
def test_limits_out_of_range_are_refused(memory_mib: int, threads: int) -> None:
    with pytest.raises(MpsLimitError):
        MpsLimits(memory_mib=memory_mib, thread_percentage=threads)


def test_the_ceiling_of_mixed_sizes_is_the_largest_share() -> None:
    sizes = [share_limits(OneOf(parts), 81559) for parts in (2, 4, 4)]
    assert ceiling(sizes) == MpsLimits(memory_mib=40779, thread_percentage=50)


@pytest.mark.parametrize("count", [0, 49])
def test_a_daemon_has_one_to_forty_eight_shares(count: int) -> None:
    with pytest.raises(MpsLimitError, match="1 to 48"):
        ceiling([QUARTER] * count)


@given(st.integers(1, 1 << 20))
def test_what_a_daemon_prints_agrees_with_what_it_was_given(memory_mib: int) -> None:
    check_memory(shown_memory(memory_mib), MpsLimits(memory_mib=memory_mib, thread_percentage=1))


@pytest.mark.parametrize("answer", ["3G", "3840M", "3840 MiB", str(3840 << 20), " 3G\n"])
def test_a_limit_agrees_down_to_the_unit_it_is_printed_in(answer: str) -> None:
    check_memory(answer, QUARTER)


@pytest.mark.parametrize("answer", ["4G", "2G", "3841M", "0G", "", "unlimited", "3G\n3G", "³G"])
def test_another_limit_is_a_misreport(answer: str) -> None:
    with pytest.raises(MpsError, match="reports memory limit"):
        check_memory(answer, QUARTER)


@pytest.mark.parametrize("answer", ["25", "25.0", "25.000", "25%"])
def test_a_percentage_may_have_decimals(answer: str) -> None:
    check_threads(answer, QUARTER)


@pytest.mark.parametrize("answer", ["25.5", "100.0", "", "twenty", "-25", "25.0\n25.0"])
def test_another_percentage_is_a_misreport(answer: str) -> None:
    with pytest.raises(MpsError, match="reports thread percentage"):
        check_threads(answer, QUARTER)


def test_lists_are_process_ids_a_line() -> None:
    assert parse_pids("12\n\n 7 \n12\n") == (7, 12)
    assert parse_pids("") == ()
    for nonsense in ("Server 1", "0", "-1", "1 2", "9" * 30):
        with pytest.raises(MpsError, match="one process id a line"):
            parse_pids(nonsense)
