"""Who is let in: bounds of handshakes and connections, and what waits when the port closes."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl

import pytest
import trustme

from tests.support.admission import Served, pod, review, serving, until
from webhook.listener import TLS_BUFFER_BYTES, Listener
from webhook.settings import ServerSettings

BODY = json.dumps(review(pod())).encode()
CALL = (
    b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
) + BODY


def dropped(served: Served, reason: str) -> float:
    """How many connections ended for a reason, by the server's own metrics."""
    value = served.metrics.registry.get_sample_value(
        "gpu_sharing_webhook_dropped_connections_total", {"reason": reason}
    )
    assert value is not None
    return value


def bare(served: Served) -> socket.socket:
    """A TCP connection whose owner has not said a word."""
    return socket.create_connection(("127.0.0.1", served.server.port))


async def shake_hands(served: Served, connection: socket.socket) -> bytes:
    """The status line of the answer to a review that is sent over it."""
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(
        sock=connection, ssl=served.trusting(), server_hostname="localhost"
    )
    writer.write(CALL)
    line = await reader.readuntil(b"\r\n")
    writer.close()
    return line


async def test_beyond_the_bound_of_handshakes_the_oldest_gives_way(authority: trustme.CA) -> None:
    async with serving(authority, most_handshakes=3) as served:
        crowd = [bare(served) for _ in range(5)]

        await until(lambda: dropped(served, "crowded") == 2)
        assert served.server._listener.handshakes == 3
        ended = []
        for connection in crowd:
            connection.setblocking(False)
            try:
                ended.append(connection.recv(1) == b"")
            except BlockingIOError:
                ended.append(False)
            except ConnectionResetError:
                ended.append(True)
        assert ended == [True, True, False, False, False]
        assert (await served.ask(review(pod())))["response"]["allowed"] is True
        for connection in crowd:
            connection.close()


async def test_what_waits_to_be_accepted_when_the_port_closes_is_served(
    authority: trustme.CA,
) -> None:
    async with serving(authority) as served:
        # In one turn of the loop: the server has no chance to accept them before.
        waiting = [bare(served) for _ in range(70)]
        served.server._closing = True
        served.server._listener.stop_listening()
        ended = asyncio.create_task(served.server._listener.wait_empty(60))

        lines = await asyncio.gather(*(shake_hands(served, one) for one in waiting))

        assert set(lines) == {b"HTTP/1.1 200 OK\r\n"}
        assert await ended
        with pytest.raises(ConnectionRefusedError):
            bare(served)


async def test_connections_that_end_without_an_answer_are_counted_by_why(
    authority: trustme.CA,
) -> None:
    async with serving(authority, head_timeout_s=0.3, handshake_timeout_s=0.3) as served:
        untrusting = ssl.create_default_context()
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("localhost", served.server.port, ssl=untrusting)
        silent = bare(served)
        await until(lambda: dropped(served, "handshake") == 2)

    async with serving(authority, unused_timeout_s=0.3) as served:
        _, writer = await served.connect()
        await until(lambda: dropped(served, "late_head") == 1)
        writer.close()
    silent.close()


async def test_a_tls_connection_holds_little_memory(served: Served) -> None:
    reader, writer = await served.connect()
    await until(lambda: served.server._listener.open_count == 1)
    (connection,) = served.server._listener.connections
    assert connection.transport is not None

    protocol = connection.transport._ssl_protocol  # type: ignore[attr-defined]

    assert len(protocol._ssl_buffer) == TLS_BUFFER_BYTES
    writer.close()
    assert reader is not None


async def test_a_free_port_is_one_number_on_all_addresses(served: Served) -> None:
    listener = Listener(served.server._respond, ServerSettings(), lambda _: None)
    port = await listener.listen("localhost", 0, None)

    assert {one.getsockname()[1] for one in listener._sockets} == {port}
    await listener.close()
