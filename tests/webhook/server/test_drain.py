"""A server that ends loses no call: not on busy connections, not on idle ones."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import trustme

from tests.support.admission import RETRIES, Served, pod, review, serving, until

BODY = json.dumps(review(pod())).encode()
CALL = (
    b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
) + BODY

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def exchange(connection: Connection) -> tuple[bytes, bytes]:
    """Head, in lower case, and body of the answer to one review on a connection."""
    reader, writer = connection
    writer.write(CALL)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


async def call(connection: Connection) -> bool:
    """One review on a connection; whether the connection goes on."""
    head, body = await exchange(connection)
    assert head.startswith(b"http/1.1 200"), head
    assert b'"allowed":true' in body
    return b"connection: close" not in head


class ApiServer:
    """Calls as an API server does: connections are kept, and new ones go to what is ready.

    A review that is turned away with Retry-After is asked again, on a new connection.
    """

    def __init__(self, replicas: list[Served]) -> None:
        self.replicas = replicas
        self.calls = 0
        self.stopping = False

    async def dial(self) -> Connection:
        ready = next(replica for replica in self.replicas if not replica.server.draining)
        return await ready.connect()

    async def call_on(self) -> None:
        connection = await self.dial()
        refusals = 0
        while not self.stopping:
            head, body = await exchange(connection)
            if head.startswith(b"http/1.1 503"):
                refusals += 1
                assert refusals < RETRIES, head
                await asyncio.sleep(float(head.split(b"retry-after: ")[1].split(b"\r\n")[0]))
            else:
                assert head.startswith(b"http/1.1 200"), head
                assert b'"allowed":true' in body
                self.calls += 1
                refusals = 0
            if b"connection: close" in head:
                connection[1].close()
                connection = await self.dial()
        connection[1].close()


async def connected(served: Served) -> Connection:
    """A connection that has carried a call and is kept."""
    while True:
        connection = await served.connect()
        head, _ = await exchange(connection)
        if b"connection: close" not in head:
            return connection
        connection[1].close()


async def test_a_server_that_drains_under_load_loses_nothing(authority: trustme.CA) -> None:
    # With the shedding of a real server: a busy machine makes it turn reviews away.
    async with (
        serving(authority, most_lag_s=0.5) as first,
        serving(authority, most_lag_s=0.5) as second,
    ):
        callers = ApiServer([first, second])
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(callers.call_on())
            await until(lambda: callers.calls > 300, timeout_s=40)
            idle = [await connected(first) for _ in range(3)]

            draining = asyncio.create_task(first.server.drain(delay_s=0.3, timeout_s=30))
            await until(lambda: first.server._closing)
            before = callers.calls
            # Idle connections were not closed under their owners: each carries one more call.
            for connection in idle:
                head, _ = await exchange(connection)
                assert head.startswith((b"http/1.1 200", b"http/1.1 503")), head
                assert b"connection: close" in head
            await draining
            await until(lambda: callers.calls > before + 300, timeout_s=40)
            callers.stopping = True

        assert first.count("allowed") + first.count("patched") >= 300
        assert second.count("allowed") + second.count("patched") >= 300


async def test_while_endpoints_forget_it_a_draining_server_serves_as_before(
    served: Served,
) -> None:
    draining = asyncio.create_task(served.server.drain(delay_s=1.0, timeout_s=10))
    await until(lambda: served.server.draining)

    connection = await served.connect()
    assert await call(connection)
    connection[1].close()

    await draining


async def test_the_port_closes_and_the_last_connection_is_the_end(served: Served) -> None:
    connection = await served.connect()
    assert await call(connection)
    began = time.monotonic()
    draining = asyncio.create_task(served.server.drain(delay_s=0.0, timeout_s=60))
    await until(lambda: served.server._closing)

    try:
        await asyncio.open_connection("localhost", served.server.port)
        refused = False
    except ConnectionRefusedError:
        refused = True
    assert not await call(connection)
    await draining

    assert refused
    assert time.monotonic() - began < 30


async def test_a_connection_in_its_handshake_is_waited_for(served: Served) -> None:
    # Only the TCP connection stands when the port closes; its owner has a review to send.
    loop = asyncio.get_running_loop()
    bare = socket.create_connection(("127.0.0.1", served.server.port))
    bare.setblocking(False)
    await until(lambda: bool(served.server._listener._in_handshake))
    draining = asyncio.create_task(served.server.drain(delay_s=0.0, timeout_s=30))
    await until(lambda: served.server._closing)

    reader, writer = await asyncio.open_connection(
        sock=bare, ssl=served.trusting(), server_hostname="localhost"
    )
    assert not await call((reader, writer))
    began = loop.time()
    await draining

    assert loop.time() - began < 10


async def test_a_handshake_that_never_ends_does_not_hold_the_end_up_for_ever(
    authority: trustme.CA,
) -> None:
    async with serving(authority, handshake_timeout_s=0.5) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        await until(lambda: bool(served.server._listener._in_handshake))

        async with asyncio.timeout(10):
            await served.server.drain(delay_s=0.0, timeout_s=60)
        writer.close()


async def test_connections_that_stay_are_dropped_after_the_last_grace(served: Served) -> None:
    reader, writer = await served.connect()
    await until(lambda: served.server._listener.open_count == 1)

    await served.server.drain(delay_s=0.0, timeout_s=0.2)

    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
