"""The short way of a call: what takes it, and that it makes no difference to the caller."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admission import Served, pod, review, serving, until
from webhook.express import LONGEST_HEAD, Framed, framed

HEAD = (
    b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: gpu-sharing-webhook.gpu-sharing.svc\r\n"
    b"User-Agent: kube-apiserver-admission\r\nContent-Length: %d\r\n"
    b"Accept: application/json, */*\r\nContent-Type: application/json\r\n"
    b"Accept-Encoding: gzip\r\n"
)
BODY = json.dumps(review(pod())).encode()


def call(body: bytes = BODY, more: bytes = b"") -> bytes:
    return HEAD % len(body) + more + b"\r\n" + body


def test_a_call_as_api_servers_send_it_is_framed() -> None:
    begins = len(call(b""))

    assert framed(call(b"12345")) == Framed(begins, begins + 5)
    assert framed(call(b"12345", b"Traceparent: 00-0af7-b7ad-01\r\n")) is not None
    assert framed(call(b"12345")[:-1]) == Framed(begins, begins + 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"POST", b"post"),
        (b"POST ", b"POST  "),
        (b"/mutate", b"/mutate/"),
        (b"?timeout=10s", b"?timeout=10"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Host: ", b"Host:"),
        (b"Host", b"Hosts"),
        (b"Host: ", b"Host : "),
        (b"\r\nUser", b"\r\n User"),
        (b"\r\nUser", b"\nUser"),
        (b"kube-", b"kube\0-"),
        (b"kube-", b"kube\xe4-"),
        (b"Content-Length: 5", b"Content-Length: 05"),
        (b"Content-Length: 5", b"Content-Length: +5"),
        (b"Content-Length: 5", b"Content-Length: 5, 5"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nContent-Length: 5"),
        (b"Content-Length: 5", b"Content-Length: 5\r\ncontent-length: 6"),
        (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nExpect: 100-continue"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nConnection: close"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nUpgrade: h2c"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nContent-Encoding: gzip"),
        (b"Content-Length: 5", b"Content-Length: 99999999"),
        (b"application/json\r\n", b"application/yaml\r\n"),
        (b"Accept: ", b"Accept: " + b"x" * LONGEST_HEAD),
    ],
)
def test_whatever_looks_otherwise_takes_the_long_way(old: bytes, new: bytes) -> None:
    sent = call(b"12345")
    assert old in sent

    assert framed(sent.replace(old, new, 1)) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_framed_or_not(data: bytes) -> None:
    assert framed(data) is None


async def answer_to(served: Served, *pieces: bytes) -> tuple[bytes, dict[str, str], bytes]:
    """Status line, header fields but for the date, and body."""
    reader, writer = await served.connect()
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        # Lets the server read what has come so far.
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        status, *lines = head.decode("ascii").strip().split("\r\n")
        fields: dict[str, str] = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(fields["Content-Length"]))
    writer.close()
    assert fields.pop("Date").endswith(" GMT")
    return status.encode(), fields, body


@pytest.mark.parametrize("body", [BODY, b"{", json.dumps(review(pod(gpu="x"))).encode()])
async def test_both_ways_give_the_same_answer(served: Served, body: bytes) -> None:
    short = await answer_to(served, call(body))
    long = await answer_to(served, call(body, b"X-Odd: 1\r\n"))

    assert short == long


async def test_both_ways_turn_away_alike_before_anything_is_known(served: Served) -> None:
    served.current[0] = None

    await check_turned_away(served)


async def test_both_ways_turn_away_alike_when_there_is_too_much(authority: trustme.CA) -> None:
    # No lag is small enough for this one.
    async with serving(authority, most_lag_s=-1.0) as served:
        await until(lambda: served.server._lag.overloaded)

        await check_turned_away(served)


async def check_turned_away(served: Served) -> None:
    short = await answer_to(served, call())
    long = await answer_to(served, call(BODY, b"X-Odd: 1\r\n"))

    assert short == long
    assert short[0] == b"HTTP/1.1 503 Service Unavailable"
    assert short[1]["Retry-After"] == "1"
    assert short[1]["Connection"] == "close"


async def test_a_call_in_pieces_is_one_call(served: Served) -> None:
    sent = call()
    pieces = [sent[start : start + 100] for start in range(0, len(sent), 100)]

    status, _, body = await answer_to(served, *pieces)

    assert status == b"HTTP/1.1 200 OK"
    assert json.loads(body)["response"]["allowed"] is True


async def test_ways_may_change_on_one_connection(served: Served) -> None:
    reader, writer = await served.connect()
    for number, more in enumerate((b"", b"X-Odd: 1\r\n", b"", b"X-Odd: 1\r\n")):
        writer.write(call(json.dumps(review(pod(), uid=f"u-{number}")).encode(), more))
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        assert json.loads(body)["response"]["uid"] == f"u-{number}"
    writer.close()


async def test_an_idle_connection_that_took_the_short_way_ends_in_time(
    authority: trustme.CA,
) -> None:
    async with serving(authority, keepalive_timeout_s=0.3) as served:
        reader, writer = await served.connect()
        writer.write(call())

        async with asyncio.timeout(20):
            rest = await reader.read()

        assert b"Connection: close" not in rest
        assert b'"allowed":true' in rest
        writer.close()


async def test_a_caller_that_does_not_read_gets_all_its_answers_later(served: Served) -> None:
    reader, writer = await served.connect()
    calls: list[Any] = [
        call(json.dumps(review(pod(), uid=f"u-{n:03}")).encode()) for n in range(400)
    ]

    async def read_all() -> bytes:
        data = b""
        while data.count(b'"uid":"u-') < len(calls):
            data += await reader.read(2**16)
        return data

    reading = None
    for number, one in enumerate(calls):
        writer.write(one)
        await asyncio.sleep(0)
        if number == len(calls) // 2:
            reading = asyncio.create_task(read_all())
    assert reading is not None
    async with asyncio.timeout(60):
        data = await reading

    places = [data.index(b'"uid":"u-%03d"' % number) for number in range(len(calls))]
    assert places == sorted(places)
    writer.close()
