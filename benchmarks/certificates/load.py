"""Pods that ask for a GPU, created as a dry run, so many a second, whatever else happens.

Each goes through the API server to the webhook and back. The connections to the API server are
kept, as a controller keeps its own; what comes back is read only as far as has to be known.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

_CALLED: Final = "failed calling webhook"
_ENDED_S: Final = 40.0
"""After so long a call counts as lost; the webhook's own timeout is 5 s."""
_AGAIN_S: Final = 0.2
_LATE_S: Final = 1.0
"""What is later than that was not sent: a load that catches up would be another load."""
_CREATED: Final = 201
_MOMENTS: Final = 100

POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "asks-"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/app:1",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ]
    },
}

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class Seen:
    """What the callers saw.

    Attributes:
        created: Pods that were reviewed and accepted.
        failed: Pods refused because the webhook could not be called, by the API server's words.
        refused: Pods that the API server refused for another reason, by status and words.
        lost: Calls without an answer of the API server, by why.
        times_s: How long each of the created took.
        moments: When, by the monotonic clock, and how reviews failed, the first of them.
    """

    created: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    times_s: list[float] = field(default_factory=list)
    moments: list[tuple[float, str]] = field(default_factory=list)


class Load:
    """The callers; an async context manager that ends them.

    Args:
        server: The API server's address.
        context: How it is met: its authority, and a certificate of an administrator.
        namespace: Where the pods are.
        rate: Pods a second in all.
        connections: How many callers.
    """

    def __init__(
        self, server: str, context: ssl.SSLContext, *, namespace: str, rate: float, connections: int
    ) -> None:
        where = urlsplit(server)
        self._address = str(where.hostname), where.port or 443
        self._context = context
        self._call = _call_to(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", where.netloc)
        self._interval_s = connections / rate
        self._connections = connections
        self._tasks: list[asyncio.Task[None]] = []
        self._open = asyncio.Event()
        self._open.set()
        self._stopping = False
        self.seen = Seen()

    def start(self) -> None:
        """Begin to call."""
        self._tasks = [
            asyncio.create_task(self._caller(number / self._connections), name=f"caller {number}")
            for number in range(self._connections)
        ]

    def hold(self) -> None:
        """Call no more for now, as behind a load balancer whose API server is not ready."""
        self._open.clear()

    def go_on(self) -> None:
        """Call again."""
        self._open.set()

    async def stop(self) -> Seen:
        """Call no more, wait for the calls under way, and tell what was seen until now."""
        self._stopping = True
        self._open.set()
        await asyncio.gather(*self._tasks)
        self._tasks, self._stopping = [], False
        seen, self.seen = self.seen, Seen()
        return seen

    async def _caller(self, phase: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + phase * self._interval_s
        connection: Connection | None = None
        try:
            while True:
                await asyncio.sleep(due_s - loop.time())
                await self._open.wait()
                if self._stopping:
                    return
                due_s = max(due_s + self._interval_s, loop.time() - _LATE_S)
                try:
                    async with asyncio.timeout(_ENDED_S):
                        if connection is None:
                            connection = await self._dial()
                        await self._create(connection)
                except (OSError, EOFError, TimeoutError) as error:
                    self.seen.lost[type(error).__name__] += 1
                    _end(connection)
                    connection = None
                    due_s = loop.time() + _AGAIN_S
        finally:
            _end(connection)

    async def _dial(self) -> Connection:
        host, port = self._address
        return await asyncio.open_connection(host, port, ssl=self._context)

    async def _create(self, connection: Connection) -> None:
        reader, writer = connection
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        writer.write(self._call)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await _body(reader, head.lower())
        self._note(int(head.split(None, 2)[1]), body, loop.time() - began_s)

    def _note(self, status: int, body: bytes, took_s: float) -> None:
        if status == _CREATED:
            self.seen.created += 1
            self.seen.times_s.append(took_s)
            return
        with suppress(ValueError):
            body = json.loads(body).get("message", "").encode()
        text = body.decode("utf-8", "replace")
        if _CALLED in text:
            why = text.rpartition(": ")[2]
            self.seen.failed[why] += 1
            if len(self.seen.moments) < _MOMENTS:
                self.seen.moments.append((asyncio.get_running_loop().time(), why))
        else:
            self.seen.refused[f"{status} {text[:120]}"] += 1


def _call_to(path: str, host: str) -> bytes:
    body = json.dumps(POD).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The rest of an answer."""
    if b"\r\ncontent-length: " in head:
        length = head.split(b"\r\ncontent-length: ")[1].split(b"\r\n", 1)[0]
        return await reader.readexactly(int(length))
    chunks = []
    while size := int(await reader.readline(), 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(chunks)


def _end(connection: Connection | None) -> None:
    if connection is not None:
        connection[1].transport.abort()
