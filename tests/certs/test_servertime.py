"""The clock that certificates are judged by is the API server's, not this machine's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.cluster import Cluster
from certs.servertime import ServerTime, TimedClient, since_boot_s
from embedded.apiserver.server import ApiServer
from sharing.cluster.kind import NAMESPACES
from tests.certs.bench import PLACE

WALL = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
THEIRS = datetime(2026, 5, 5, 9, 30, tzinfo=UTC)
HEADER = "Tue, 05 May 2026 09:30:00 GMT"


def test_until_a_server_has_answered_the_machines_clock_counts() -> None:
    assert ServerTime(lambda: WALL, lambda: 7.0)() == WALL


def test_a_machine_whose_clock_jumps_goes_on_by_the_servers() -> None:
    wall, steady = [WALL], [100.0]
    clock = ServerTime(lambda: wall[0], lambda: steady[0])
    clock.note(HEADER)

    wall[0], steady[0] = WALL - timedelta(days=1), 160.0

    assert clock() == THEIRS + timedelta(minutes=1)


def test_the_newest_answer_counts_also_where_it_is_earlier() -> None:
    clock = ServerTime(lambda: WALL, lambda: 0.0)
    clock.note("Wed, 06 May 2026 09:30:00 GMT")
    clock.note(HEADER)

    assert clock() == THEIRS


@pytest.mark.parametrize(
    "date",
    ["", "soon", "Mon, 30 Nov 99999 15:12:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "\N{SNOWMAN}"],
)
def test_what_is_no_time_of_a_server_is_passed_over(date: str) -> None:
    clock = ServerTime(lambda: WALL, lambda: 0.0)
    clock.note(date)

    assert clock() == WALL


def test_sleep_counts_as_time() -> None:
    assert since_boot_s() > 0


async def test_every_answer_brings_the_time(tmp_path: Path) -> None:
    async with ApiServer(tls=True) as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with TimedClient.from_kubeconfig(path) as client:
            client.time = ServerTime(lambda: WALL)
            cluster = Cluster(client, PLACE, clock=client.time)
            await client.create(NAMESPACES, {"metadata": {"name": PLACE.namespace}})

            assert abs(cluster.clock() - datetime.now(UTC)) < timedelta(seconds=30)
