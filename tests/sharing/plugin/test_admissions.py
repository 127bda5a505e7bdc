"""kubernetes#137534: lists and admissions at once let a kubelet forget an assignment."""

from __future__ import annotations

import asyncio

from sharing.plugin.admissions import Admissions


async def test_a_list_begins_when_the_admission_under_way_has_been_written_down() -> None:
    admissions, events = Admissions(settled_s=0.01), []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def admit() -> None:
        async with admissions.answering():
            begun.set()
            await go_on.wait()
            events.append("answered")

    async def list_all() -> None:
        async with admissions.listing():
            events.append("listed")

    admitting = asyncio.create_task(admit())
    await begun.wait()
    listing = asyncio.create_task(list_all())
    await asyncio.sleep(0)
    assert events == []
    go_on.set()
    await asyncio.gather(admitting, listing)

    assert events == ["answered", "listed"]


async def test_an_admission_waits_for_a_list_that_has_begun() -> None:
    admissions, events = Admissions(settled_s=0), []

    async def admit() -> None:
        async with admissions.answering():
            events.append("answered")

    async with admissions.listing():
        admitting = asyncio.create_task(admit())
        await asyncio.sleep(0)
        events.append("listed")
    await admitting

    assert events == ["listed", "answered"]


async def test_an_admission_does_not_wait_for_a_list_that_hangs() -> None:
    admissions = Admissions(list_s=0.01)

    async with admissions.listing(), asyncio.timeout(5), admissions.answering():
        pass


async def test_a_kubelet_that_admits_without_a_pause_is_asked_all_the_same() -> None:
    admissions = Admissions(longest_s=0.01)

    async with admissions.answering(), asyncio.timeout(5), admissions.listing():
        pass
