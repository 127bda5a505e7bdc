"""Connections live long, and certificates change beside them."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
import trustme

from certs.errors import CertificateError
from certs.leaf import Leaf
from tests.support.admission import Served, leaf_of, pod, review, serving
from webhook.settings import ServerSettings


async def test_one_connection_carries_many_reviews(served: Served) -> None:
    made = 0

    async def count(*_: object) -> None:
        nonlocal made
        made += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    connector = aiohttp.TCPConnector(ssl=served.trusting())
    async with aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as session:
        for number in range(20):
            body = review(pod(), uid=f"u-{number}")
            async with session.post(served.url, json=body) as answer:
                assert (await answer.json())["response"]["uid"] == f"u-{number}"

    assert made == 1


def test_the_server_never_closes_an_idle_connection_before_the_api_server_does() -> None:
    # kubernetes#127335: whoever closes first may do so under a POST. The API server waits 90 s.
    assert ServerSettings().keepalive_timeout_s >= 120
    assert ServerSettings().unused_timeout_s >= 120
    assert ServerSettings().drain_timeout_s >= 100


async def test_a_caller_that_pauses_up_to_its_own_limit_never_meets_a_closed_connection(
    authority: trustme.CA,
) -> None:
    # aiohttp#9138, #13283: idle near the timeout, and the caller sees EOF. An API server drops
    # what was idle for 90 s and we for 300 s; here it is 0.3 s and 1 s.
    body = json.dumps(review(pod())).encode()
    call = (
        b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    ) + body
    async with serving(authority, keepalive_timeout_s=1.0) as served:

        async def calls(pause_s: float) -> int:
            reader, writer = await served.connect()
            for _ in range(4):
                writer.write(call)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split()[0]))
                await asyncio.sleep(pause_s)
            writer.close()
            return 4

        pauses = [0.29 + 0.002 * step for step in range(10)]
        async with asyncio.timeout(60):
            assert sum(await asyncio.gather(*map(calls, pauses))) == 40


async def test_http_1_1_is_what_is_spoken(served: Served) -> None:
    # kubernetes#75791: API servers speak HTTP/1.1 so that calls spread over replicas.
    context = served.trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection(
        "localhost", served.server.port, ssl=context, server_hostname="localhost"
    )
    session: ssl.SSLObject = writer.get_extra_info("ssl_object")

    assert session.selected_alpn_protocol() == "http/1.1"
    assert session.version() == "TLSv1.3"
    writer.close()


def serial_of(writer: asyncio.StreamWriter) -> int:
    session = writer.get_extra_info("ssl_object")
    return int(session.getpeercert()["serialNumber"], 16)


async def test_a_new_certificate_serves_new_handshakes_and_leaves_connections_alone(
    served: Served,
) -> None:
    assert served.context.leaf is not None
    before = served.context.leaf.certificate.serial_number
    await served.ask(review(pod()))
    _, old = await served.connect()

    served.context.swap(leaf_of(served.authority.issue_cert("localhost")))

    _, new = await served.connect()
    assert serial_of(old) == before
    assert serial_of(new) == served.context.leaf.certificate.serial_number != before
    # The session's connection is from before the change, and still good.
    assert (await served.ask(review(pod())))["response"]["allowed"] is True
    old.close()
    new.close()


async def test_a_certificate_that_is_no_good_leaves_the_served_one_in_place(
    served: Served,
) -> None:
    assert served.context.leaf is not None
    before = served.context.leaf.certificate.serial_number
    one, two = (served.authority.issue_cert("localhost") for _ in range(2))
    with pytest.raises(CertificateError):
        Leaf.from_pem(one.cert_chain_pems[0].bytes(), two.private_key_pem.bytes())
    expired = trustme.CA().issue_cert("localhost", not_after=datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(CertificateError):
        served.context.swap(leaf_of(expired))

    _, writer = await served.connect()

    assert serial_of(writer) == before
    writer.close()
