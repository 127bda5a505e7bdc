"""Shedding: counting that decides when there is too much at once."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admission import pod, review, serving, until
from webhook.shedding import Arrival, Buffers, LoopLag


def arrival(began_s: float = 0.0) -> Arrival:
    return Arrival(began_s=began_s, give_way=lambda: None)


def overloads(*lags_s: float) -> list[bool]:
    lag = LoopLag(most_s=0.5)
    seen = []
    for lag_s in lags_s:
        lag.observe(lag_s)
        seen.append(lag.overloaded)
    return seen


def test_a_loop_that_stays_late_is_overloaded_until_it_is_well_below_the_limit() -> None:
    assert overloads(0.6, 0.6, 0.6, 0.4, 0.2, 0.4) == [False, False, True, True, False, False]


def test_a_hiccup_is_no_overload() -> None:
    assert not any(overloads(0.6, 0.1, 5.0, 0.6, 0.2, -0.1))


def test_where_all_have_just_begun_the_newcomer_is_refused() -> None:
    buffers = Buffers(most_bytes=10)
    first, second = arrival(), arrival()
    buffers.begin(first)
    buffers.begin(second)

    assert buffers.take(first, 8, now_s=0.1)
    assert not buffers.take(second, 3, now_s=0.2)
    assert (buffers.total, first.evicted) == (8, False)


def test_the_longest_on_its_way_gives_way() -> None:
    gone = []
    buffers = Buffers(most_bytes=10)
    slow = Arrival(began_s=0.0, give_way=lambda: gone.append("slow"))
    buffers.begin(slow)
    assert buffers.take(slow, 8, now_s=0.1)
    fresh = arrival(5.0)
    buffers.begin(fresh)

    assert buffers.take(fresh, 9, now_s=5.1)
    assert gone == ["slow"]
    assert buffers.total == 9
    # What was evicted takes nothing any more, and its end changes no count.
    assert not buffers.take(slow, 1, now_s=5.2)
    buffers.end(slow)
    assert buffers.total == 9


@pytest.mark.parametrize("size", [11, 1000])
def test_a_body_larger_than_all_room_is_refused_even_alone(size: int) -> None:
    buffers = Buffers(most_bytes=10)
    only = arrival()
    buffers.begin(only)

    assert not buffers.take(only, size, now_s=100.0)


steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.booleans()), max_size=60)


@given(steps)
def test_the_bound_holds_and_the_count_is_true_in_any_history(
    history: list[tuple[int, int, bool]],
) -> None:
    buffers = Buffers(most_bytes=100)
    open_arrivals: dict[int, Arrival] = {}
    for now, (number, size, ends) in enumerate(history):
        if number not in open_arrivals:
            open_arrivals[number] = arrival(float(now))
            buffers.begin(open_arrivals[number])
        if not buffers.take(open_arrivals[number], size, float(now)) or ends:
            buffers.end(open_arrivals.pop(number))
        assert 0 <= buffers.total <= 100
        assert buffers.total == sum(a.size for a in open_arrivals.values() if not a.evicted)


async def test_a_loop_that_hangs_turns_reviews_away_and_takes_them_again(
    authority: trustme.CA,
) -> None:
    async with serving(authority, most_lag_s=0.1) as served:
        body = json.dumps(review(pod())).encode()

        async def hang() -> None:
            while True:
                # This is the fault itself: something that blocks the event loop, again and again.
                time.sleep(0.25)  # noqa: ASYNC251
                await asyncio.sleep(0)

        hanging = asyncio.create_task(hang())
        await until(lambda: served.server._lag.overloaded, timeout_s=40)
        status, headers, _ = await served.post(body)
        hanging.cancel()

        assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")
        # By itself, as soon as the machine lets it.
        await until(lambda: not served.server._lag.overloaded, timeout_s=40)
        assert (await served.ask(review(pod())))["response"]["allowed"] is True
