"""A small client for tests of the embedded API server: plain HTTP, nothing hidden."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class Reply:
    """An answer: status code, decoded body, headers."""

    code: int
    body: Any
    headers: Any

    @property
    def warnings(self) -> list[str]:
        return [text.split('"', 1)[1][:-1] for text in self.headers.getall("Warning", [])]

    @property
    def causes(self) -> list[tuple[str, str]]:
        details = self.body.get("details") or {}
        return [(c.get("field", ""), c.get("message", "")) for c in details.get("causes", [])]


@dataclass
class Watch:
    """A running watch; events come one by one."""

    response: aiohttp.ClientResponse
    seen: list[Json] = field(default_factory=list)

    async def next(self, timeout_s: float = 5.0) -> Json:
        line = await asyncio.wait_for(self.response.content.readline(), timeout_s)
        assert line, "the server ended the watch"
        event: Json = orjson.loads(line)
        self.seen.append(event)
        return event

    async def ended(self, timeout_s: float = 5.0) -> bool:
        return await asyncio.wait_for(self.response.content.readline(), timeout_s) == b""


class Client:
    """Requests to one server."""

    def __init__(self, url: str, session: aiohttp.ClientSession, token: str = "") -> None:
        self.url = url
        self._session = session
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        raw = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        sent = {**self._headers, **({"Content-Type": media} if raw is not None else {})}
        async with self._session.request(
            method,
            self.url + path,
            data=None if raw is None else io.BytesIO(raw),
            headers=sent | (headers or {}),
            params=query,
        ) as response:
            data = await response.read()
            json_like = "json" in response.headers.get("Content-Type", "")
            return Reply(
                response.status, orjson.loads(data) if json_like else data, response.headers
            )

    async def get(self, path: str, **query: Any) -> Reply:
        return await self.call("GET", path, **query)

    async def create(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.call("POST", path, body, **query)

    async def made(self, path: str, body: Any, **query: Any) -> Json:
        """Create and insist on success."""
        reply = await self.create(path, body, **query)
        assert reply.code == 201, reply.body
        made: Json = reply.body
        return made

    async def patch(self, path: str, body: Any, media: str = MERGE, **query: Any) -> Reply:
        return await self.call("PATCH", path, body, media=media, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.call("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.call("DELETE", path, body, **query)

    async def gone(self, path: str, timeout_s: float = 5.0) -> None:
        """Wait until a path answers 404."""
        async with asyncio.timeout(timeout_s):
            while (await self.get(path)).code != 404:  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watch]:
        async with self._session.get(
            self.url + path, params={"watch": "true", **query}, headers=self._headers
        ) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)


def pod(name: str = "p", **limits: str) -> Json:
    """A pod with one container."""
    resources = {"limits": {key.replace("__", "/"): value for key, value in limits.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox:1", "resources": resources}]},
    }


def gpu_pod(name: str = "p", resource: str = "nvidia.com/gpu", count: Any = 1) -> Json:
    """A pod whose container wants an extended resource."""
    wanted = pod(name)
    wanted["spec"]["containers"][0]["resources"]["limits"][resource] = count
    return wanted


def config_map(name: str = "m", **data: str) -> Json:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data or {"a": "1"},
    }
