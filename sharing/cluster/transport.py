"""How requests travel to an API server: connections, credentials, time limits, failures.

Everything here is about HTTP; the verbs of Kubernetes are in ``client``. Connections are
kept and reused; credentials are loaded on first use, again when they run out, and once
more when the server refuses them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import aiohttp
import orjson
from yarl import URL

from sharing.cluster import credentials
from sharing.cluster.errors import (
    ApiError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    error_of,
)

if TYPE_CHECKING:
    from types import TracebackType

Warnings: TypeAlias = list[str]
Body: TypeAlias = Mapping[str, Any] | list[dict[str, Any]]

TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
_THROTTLE_RETRIES: Final = 3
_THROTTLE_CAP_S: Final = 10.0
_KEEPALIVE_IDLE_S: Final = 15
_BAD_STATUS: Final = 400


class Transport:
    """A connection to one API server; an async context manager.

    Args:
        source: Where credentials come from, see ``credentials.find``.
        user_agent: Who we are in the server's audit log, such as ``gpu-sharing-agent``.
        timeout_s: Limit of one request, watches excepted.
    """

    def __init__(
        self,
        source: credentials.Source,
        *,
        user_agent: str = "gpu-sharing",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._source = source
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._access: credentials.Access | None = None
        self._session: aiohttp.ClientSession | None = None
        self._retired: list[aiohttp.ClientSession] = []
        self._loading = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Requests under way fail."""
        sessions = [*self._retired, *([self._session] if self._session else [])]
        self._session, self._retired, self._access = None, [], None
        for session in sessions:
            await session.close()

    async def request(  # noqa: PLR0913 - the one place where a request's parts meet
        self,
        method: str,
        path: str,
        *,
        subject: str = "",
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        warnings: Warnings | None = None,
        patient: bool = True,
    ) -> dict[str, Any]:
        """One request and its JSON answer, for addresses that no verb above covers.

        A request that the server's flow control turned away (429 with Retry-After) is
        sent again a few times, unless ``patient`` is False.
        """
        subject = subject or f"{method} {path}"
        response = None
        attempt = 0
        while response is None:
            try:
                response = await self._send(
                    method, path, subject, query=query, body=body, content_type=content_type
                )
            except TooManyRequestsError as error:
                attempt += 1
                if not patient or error.retry_after_s is None or attempt > _THROTTLE_RETRIES:
                    raise
                await asyncio.sleep(min(error.retry_after_s, _THROTTLE_CAP_S))
        async with response:
            if warnings is not None:
                warnings += _warnings(response)
            content = await _read(response, subject)
        try:
            answer = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError as error:
            raise UnreachableError(subject, f"the answer is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise UnreachableError(subject, "the answer is not a JSON object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        subject: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """A response with a good status; credentials that were refused are loaded anew once."""
        payload = None if body is None else orjson.dumps(body)
        refused: credentials.Access | None = None
        while True:
            access, session = await self._connect(refused)
            headers = {"Authorization": access.authorization} if access.authorization else {}
            if payload is not None:
                headers["Content-Type"] = content_type
            try:
                response = await session.request(
                    method,
                    URL(access.server + path, encoded=True).extend_query(dict(query or {})),
                    data=payload,
                    headers=headers,
                    proxy=access.proxy or None,
                    server_hostname=access.server_name or None,
                    timeout=timeout
                    or aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=CONNECT_TIMEOUT_S),
                )
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise _unreachable(subject, access, error) from error
            if response.status < _BAD_STATUS:
                return response
            failure = await _failure(response, subject)
            if not isinstance(failure, UnauthorizedError) or refused is not None:
                raise failure
            refused = access

    async def _connect(
        self, refused: credentials.Access | None
    ) -> tuple[credentials.Access, aiohttp.ClientSession]:
        """The credentials and the session that goes with them, both made on first use."""
        async with self._loading:
            access, session = self._access, self._session
            stale = access is None or time.time() >= access.fresh_until
            if stale or access is refused:
                access = await self._source()
            assert access is not None  # noqa: S101 - for the type checker; stale otherwise
            if session is None or self._access is None or _tls(access) != _tls(self._access):
                # Watches may still run on the session before; the one before that has
                # outlived a whole life of credentials.
                for retired in self._retired:
                    await retired.close()
                self._retired = [session] if session is not None else []
                session = _session(access, self._user_agent)
            self._access, self._session = access, session
            return access, session


def _session(access: credentials.Access, user_agent: str) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        ssl=credentials.tls_context(access) or True,
        limit=0,
        keepalive_timeout=60,
        socket_factory=_socket,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers={"User-Agent": user_agent, "Accept": "application/json"},
    )


def _socket(address: Any) -> socket.socket:
    """A socket that notices within a minute that the other side is gone without a word.

    A watch may be silent for minutes; without this a server that lost power is never
    missed.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_IDLE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return made


def _tls(access: credentials.Access) -> tuple[object, ...]:
    """What a session is made from; the rest of an access travels with each request."""
    return (
        access.server.startswith("https"),
        access.ca_file,
        access.cert_file,
        access.key_file,
        access.verify,
        access.proxy,
    )


def _unreachable(subject: str, access: credentials.Access, error: Exception) -> UnreachableError:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        wrong = f"the certificate of {access.server} is not trusted: {error.certificate_error}"
    elif isinstance(error, TimeoutError):
        wrong = f"{access.server} did not answer in time"
    elif isinstance(error, aiohttp.ClientConnectorError):
        wrong = f"cannot connect to {access.server}: {error.os_error.strerror or error.os_error}"
    else:
        wrong = f"the connection to {access.server} broke: {str(error) or type(error).__name__}"
    return UnreachableError(subject, wrong)


async def _read(response: aiohttp.ClientResponse, subject: str) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise UnreachableError(subject, f"the answer broke off: {error}") from error


async def _failure(response: aiohttp.ClientResponse, subject: str) -> ApiError:
    async with response:
        content = await _read(response, subject)
    try:
        status = orjson.loads(content)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = None
    header = response.headers.get("Retry-After", "")
    return error_of(
        subject,
        response.status,
        status,
        body=content,
        retry_after_s=float(header) if header.isascii() and header.isdigit() else None,
    )


def _warnings(response: aiohttp.ClientResponse) -> list[str]:
    """The texts of the Warning headers: ``299 - "text"``, quotes escaped (RFC 7234 5.5)."""
    found = []
    for header in response.headers.getall("Warning", []):
        _, _, text = header.partition(' "')
        found.append(text.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\"))
    return found
