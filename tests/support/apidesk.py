"""An API server of few words: it answers what a test puts into it, over real HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Desk:
    """What the server knows: answers by method and path, lists, and one stream of events."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    answers: dict[tuple[str, str], list[web.Response]] = field(default_factory=dict)
    items: list[dict[str, Any]] = field(default_factory=list)
    version: int = 1
    page: int = 500
    watches: list[str] = field(default_factory=list)
    feed: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    watch_opened: asyncio.Condition = field(default_factory=asyncio.Condition)
    refuse: web.Response | None = None

    def answer(self, method: str, path: str, *responses: web.Response) -> None:
        self.answers.setdefault((method, path), []).extend(responses)

    def tell(self, kind: str, item: dict[str, Any]) -> None:
        self.feed.put_nowait(orjson.dumps({"type": kind, "object": item}) + b"\n")

    def end_watch(self) -> None:
        self.feed.put_nowait(None)

    async def until_watches(self, count: int) -> None:
        async with asyncio.timeout(10), self.watch_opened:
            await self.watch_opened.wait_for(lambda: len(self.watches) >= count)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.seen.append(
            Seen(
                method=request.method,
                path=request.rel_url.raw_path,
                query=dict(request.query),
                headers=dict(request.headers),
                body=orjson.loads(raw) if raw else None,
            )
        )
        waiting = self.answers.get((request.method, request.rel_url.raw_path))
        if waiting:
            return waiting.pop(0) if len(waiting) > 1 else _copy(waiting[0])
        if self.refuse is not None:
            return _copy(self.refuse)
        if request.query.get("watch"):
            return await self._stream(request)
        start = int(request.query.get("continue", "0"))
        end = start + self.page
        more = {"continue": str(end)} if end < len(self.items) else {}
        return web.json_response(
            {
                "kind": "List",
                "metadata": {"resourceVersion": str(self.version), **more},
                "items": self.items[start:end],
            }
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async with self.watch_opened:
            self.watches.append(request.query.get("resourceVersion", ""))
            self.watch_opened.notify_all()
        while (line := await self.feed.get()) is not None:
            await response.write(line)
        return response


def _copy(response: web.Response) -> web.Response:
    headers = {k: v for k, v in response.headers.items() if not k.startswith("Content-")}
    body = response.body
    assert body is None or isinstance(body, bytes)
    return web.Response(
        status=response.status, body=body, headers=headers, content_type=response.content_type
    )


def status(code: int, reason: str, message: str, **headers: str) -> web.Response:
    """An answer with a Status object, as an API server gives it."""
    return web.json_response(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message},
        status=code,
        headers=headers,
    )


def pod(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "a",
            "name": name,
            "resourceVersion": str(version),
            "labels": labels,
        },
    }
