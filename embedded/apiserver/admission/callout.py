"""Calls webhooks over HTTPS as kube-apiserver's client does.

One client for each pair of address and trust (HTTP/1.1, kept-alive connections, at most 200
clients); answers 429 and 5xx with an integer Retry-After are tried again, at most ten times
and within the webhook's timeout; transport errors never are.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import math
import ssl
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from embedded.apiserver.objects import Json, section

_CLIENTS: Final = 200
_RETRIES: Final = 10
_IDLE_S: Final = 90.0
_GOOD: Final = range(200, 207)
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = range(500, 600)
_SHOWN: Final = 400

# (namespace, name, port) → (host, port) of a service's backend, or nothing.
ServiceResolver = Callable[[str, str, int], tuple[str, int] | None]


class CalloutError(Exception):
    """The call did not give an answer; subject to failurePolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a webhook is.

    Attributes:
        url: What is dialled.
        shown: The address as messages name it.
        server_name: The name that its certificate must carry; empty for the URL's host.
        authority: PEM of the trusted authorities; empty for the system's.
    """

    url: str
    shown: str
    server_name: str = ""
    authority: str = ""


def target_of(config: Json, resolve: ServiceResolver) -> Target:
    """Where ``clientConfig`` points.

    Raises:
        CalloutError: It points nowhere.
    """
    authority = _authority(str(config.get("caBundle") or ""))
    service = section(config, "service")
    if not service:
        url = str(config.get("url") or "")
        if urlsplit(url).scheme != "https":
            raise CalloutError(f"{url!r} is no https URL")
        return Target(url=url, shown=url, authority=authority)
    name, namespace = str(service.get("name")), str(service.get("namespace"))
    port, path = int(service.get("port") or 443), str(service.get("path") or "/")
    host_name = f"{name}.{namespace}.svc"
    shown = f"https://{host_name}:{port}/{path.lstrip('/')}"
    backend = resolve(namespace, name, port)
    if backend is None:
        raise CalloutError(f'Post "{shown}": service "{name}" not found')
    host, backend_port = backend
    return Target(
        url=f"https://{host}:{backend_port}/{path.lstrip('/')}",
        shown=shown,
        server_name=host_name,
        authority=authority,
    )


def _authority(bundle: str) -> str:
    if not bundle:
        return ""
    try:
        return base64.b64decode(bundle, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise CalloutError("unable to load root certificates: caBundle is not base64") from error


class CalloutClient:
    """The clients that webhooks are called with."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[Target, aiohttp.ClientSession] = OrderedDict()

    async def close(self) -> None:
        """Close all connections."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def post(self, target: Target, body: bytes, timeout_s: float) -> bytes:
        """The body of a good answer.

        Raises:
            CalloutError: There was none in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        shown = f"{target.shown}?timeout={max(1, math.ceil(timeout_s - 0.001))}s"
        try:
            async with asyncio.timeout_at(deadline):
                session = await self._session(target)
                return await self._attempts(session, target, body, deadline)
        except TimeoutError as error:
            raise CalloutError(f'Post "{shown}": context deadline exceeded') from error
        except aiohttp.ClientConnectorCertificateError as error:
            problem = getattr(error.certificate_error, "verify_message", error.certificate_error)
            raise CalloutError(
                f'Post "{shown}": tls: failed to verify certificate: x509: {problem}'
            ) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise CalloutError(f'Post "{shown}": {reason}') from error

    async def _attempts(
        self, session: aiohttp.ClientSession, target: Target, body: bytes, deadline: float
    ) -> bytes:
        loop = asyncio.get_running_loop()
        for attempt in range(_RETRIES + 1):
            left_s = max(1, math.ceil(deadline - loop.time() - 0.001))
            async with session.post(
                target.url,
                data=io.BytesIO(body),  # aiohttp warns about raw bytes beyond 1 MiB
                params={"timeout": f"{left_s}s"},
                headers=_headers(target),
                server_hostname=target.server_name or None,
                allow_redirects=False,
            ) as response:
                raw = await response.read()
                if response.status in _GOOD:
                    return raw
                wait_s = _retry_after_s(response)
                if wait_s is None or attempt == _RETRIES:
                    raise CalloutError(_refusal(response.status, raw))
            await asyncio.sleep(wait_s)
        raise CalloutError("too many attempts")

    async def _session(self, target: Target) -> aiohttp.ClientSession:
        found = self._sessions.get(target)
        if found is not None:
            self._sessions.move_to_end(target)
            return found
        connector = aiohttp.TCPConnector(
            ssl=_trust(target.authority), limit=0, keepalive_timeout=_IDLE_S
        )
        session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=True
        )
        self._sessions[target] = session
        if len(self._sessions) > _CLIENTS:
            _, oldest = self._sessions.popitem(last=False)
            await oldest.close()
        return session


def _headers(target: Target) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, */*",
        "Accept-Encoding": "gzip",
        "User-Agent": "kube-apiserver-admission",
    }
    if target.server_name:
        headers["Host"] = urlsplit(target.shown).netloc
    return headers


def _trust(authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise CalloutError("unable to load root certificates") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _retry_after_s(response: aiohttp.ClientResponse) -> int | None:
    text = response.headers.get("Retry-After", "")
    retried = response.status == _TOO_MANY or response.status in _SERVER_ERRORS
    return int(text) if retried and text.isdecimal() else None


def _refusal(status: int, raw: bytes) -> str:
    """client-go's words for an answer that is no success."""
    text = raw[:_SHOWN].decode(errors="replace").strip()
    if status == 404:  # noqa: PLR2004 - the HTTP status of that name
        return "the server could not find the requested resource"
    if status in _SERVER_ERRORS:
        quoted = text.replace('"', '\\"')
        return f'an error on the server ("{quoted}") has prevented the request from succeeding'
    return f"the server rejected our request for an unknown reason (HTTP {status}: {text})"
