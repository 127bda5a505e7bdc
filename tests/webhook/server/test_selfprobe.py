"""Readiness is what a caller would meet at our own port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from datetime import UTC, datetime

import trustme

from certs.bundle import Bundle
from tests.support.admission import Served, leaf_of, until
from webhook.selfprobe import Callers, SelfProbe

HOST = "127.0.0.1"


def callers_of(*authorities: trustme.CA, name: str = "localhost") -> Callers:
    bundles = tuple(Bundle.parse(one.cert_pem.bytes()) for one in authorities)
    return Callers(name=name, bundles=bundles)


async def test_a_port_that_was_never_tried_is_not_ready(served: Served) -> None:
    probe = SelfProbe(lambda: callers_of(served.authority), served.context)

    assert probe.unready_reason() == "its own port was not tried yet"
    await probe.look(HOST, served.server.port)
    assert probe.unready_reason() == ""


async def test_one_bundle_of_several_that_does_not_trust_us_makes_us_unready(
    served: Served,
) -> None:
    probe = SelfProbe(lambda: callers_of(served.authority, trustme.CA()), served.context)

    await probe.look(HOST, served.server.port)

    assert "does not verify" in probe.unready_reason()


async def test_an_emptied_bundle_makes_us_unready(served: Served) -> None:
    probe = SelfProbe(lambda: Callers(name="localhost", bundles=(Bundle(),)), served.context)

    await probe.look(HOST, served.server.port)

    assert "does not verify" in probe.unready_reason()


async def test_another_name_than_the_one_asked_for_makes_us_unready(served: Served) -> None:
    probe = SelfProbe(lambda: callers_of(served.authority, name="other.test"), served.context)

    await probe.look(HOST, served.server.port)

    assert "does not verify" in probe.unready_reason()


async def test_where_nobody_says_whom_callers_trust_the_handshake_alone_counts(
    served: Served,
) -> None:
    probe = SelfProbe(lambda: None, served.context)

    await probe.look(HOST, served.server.port)

    assert probe.unready_reason() == ""


async def test_dates_are_judged_by_the_clock_of_the_context(served: Served) -> None:
    probe = SelfProbe(lambda: callers_of(served.authority), served.context)
    await probe.look(HOST, served.server.port)
    served.context._clock = lambda: datetime(1999, 1, 1, tzinfo=UTC)

    await probe.look(HOST, served.server.port)

    assert probe.unready_reason() != ""


async def test_a_handshake_that_does_not_come_about_counts_only_the_third_time(
    served: Served,
) -> None:
    # A crowd must not take us out of service.
    probe = SelfProbe(lambda: callers_of(served.authority), served.context)
    await probe.look(HOST, served.server.port)
    with contextlib.closing(socket.create_server((HOST, 0))) as closed:
        nowhere = closed.getsockname()[1]
    said = []
    for _ in range(3):
        await probe.look(HOST, nowhere)
        said.append(probe.unready_reason())

    assert said[:2] == ["", ""]
    assert "no TLS connection" in said[2]
    await probe.look(HOST, served.server.port)
    assert probe.unready_reason() == ""


async def test_a_change_of_trust_or_certificate_is_noticed_at_once(served: Served) -> None:
    stranger = trustme.CA()
    trust = [callers_of(served.authority)]
    probe = SelfProbe(lambda: trust[0], served.context)
    running = asyncio.create_task(probe.run(HOST, served.server.port))
    await until(lambda: not probe.unready_reason())

    served.context.swap(leaf_of(stranger.issue_cert("localhost")))
    await until(lambda: bool(probe.unready_reason()), timeout_s=5)
    trust[0] = callers_of(served.authority, stranger)
    await until(lambda: bool(probe.unready_reason()), timeout_s=5)
    trust[0] = callers_of(stranger)
    await until(lambda: not probe.unready_reason(), timeout_s=5)

    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
