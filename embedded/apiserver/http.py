"""The HTTP surface: routes, limits, identities, audit; every failure becomes a Status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
from aiohttp import web

from embedded.apiserver import discovery, openapi, paths
from embedded.apiserver.answers import refuse, respond
from embedded.apiserver.audit import AuditEvent, AuditLog
from embedded.apiserver.calls import User
from embedded.apiserver.identity import of_request
from embedded.apiserver.kinds import KindTable
from embedded.apiserver.negotiation import Answer, Shape, choose
from embedded.apiserver.requests import Request, call_of
from embedded.apiserver.resources import Resources
from embedded.apiserver.status import StatusError, bad_request, no_such_path, not_found, too_large

MAX_BODY_BYTES: Final = 3 * 1024 * 1024

_log = structlog.get_logger()
_HEALTH: Final = frozenset({"/healthz", "/readyz", "/livez"})


class HttpSurface:
    """Answers HTTP requests.

    Args:
        resources: The resource API.
        kinds: What is served, for discovery.
        tokens: Bearer tokens and whose they are.
        audit: Where answered writes are recorded.
    """

    def __init__(
        self,
        resources: Resources,
        kinds: KindTable,
        tokens: Mapping[str, User],
        audit: AuditLog,
    ) -> None:
        self._resources = resources
        self._kinds = kinds
        self._tokens = tokens
        self._audit = audit

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        return app

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answer one request; nothing but a cancellation gets out."""
        try:
            return await self._answer(http)
        except StatusError as error:
            return refuse(error)
        except web.HTTPRequestEntityTooLarge:
            return refuse(too_large(MAX_BODY_BYTES))
        except RecursionError:
            return refuse(bad_request("the request is nested too deeply"))
        except Exception:  # noqa: BLE001 - the last line of defence
            # The client gets no insides; whoever runs the server finds them in the log.
            _log.exception("request failed", method=http.method, path=http.path)
            return refuse(StatusError(500, "InternalError", "Internal error occurred: see the log"))

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        user = self._user(http)
        if http.path in _HEALTH:
            return web.Response(text="ok")
        path = paths.parse(http.rel_url.raw_path)
        if path is None:
            return self._document(http, user)
        kind = self._kinds.find(path.group, path.version, path.resource)
        if kind is None and not self._kinds.is_served(path.group, path.version):
            return web.Response(text="404 page not found\n", status=404)
        if kind is None or (path.namespace and not kind.namespaced):
            raise no_such_path()
        if path.name and kind.namespaced and not path.namespace:
            raise not_found(kind, path.name)
        query = {key: http.query[key] for key in http.query}
        request = Request(
            method=http.method,
            path=path,
            kind=kind,
            query=query,
            raw=await http.read() if http.can_read_body else b"",
            content_type=http.headers.get("Content-Type", ""),
            answer=choose(http.headers.get("Accept", "")),
            call=call_of(http.method, query, user, http.headers.get("User-Agent", "")),
        )
        return await self._audited(request, http)

    async def _audited(self, request: Request, http: web.Request) -> web.StreamResponse:
        try:
            response = await self._resources.answer(request, http)
        except StatusError as error:
            response = refuse(error, request.call.warnings)
        if request.method not in {"GET", "HEAD"}:
            self._audit.add(
                AuditEvent(
                    method=request.method,
                    path=http.path,
                    user=request.call.user.name,
                    code=response.status,
                    annotations=dict(request.call.annotations),
                    warnings=tuple(request.call.warnings),
                )
            )
        return response

    def _user(self, http: web.Request) -> User:
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        return of_request(http.headers.get("Authorization", ""), certificate, self._tokens)

    def _document(self, http: web.Request, user: User) -> web.Response:
        """Everything that is not the resource API: discovery, version, OpenAPI, who am I."""
        path = http.path.rstrip("/") or "/"
        if path in {"/api", "/apis"}:
            return self._discovery(path, http)
        if path == "/version":
            return respond(discovery.VERSION)
        if path == "/openapi/v2":
            return respond(openapi.v2_document())
        if path == "/openapi/v3":
            return respond(openapi.root(self._kinds))
        found = None
        if path.startswith("/openapi/v3/"):
            found = openapi.document(self._kinds, path.removeprefix("/openapi/v3/"))
        elif path.startswith("/api/") and path.count("/") == 2:  # noqa: PLR2004 - /api/v1
            found = discovery.resource_list(self._kinds, "", path.removeprefix("/api/"))
        elif path.startswith("/apis/"):
            found = self._group_document(path.removeprefix("/apis/"))
        if found is None:
            raise no_such_path()
        del user
        return respond(found)

    def _discovery(self, path: str, http: web.Request) -> web.Response:
        answer: Answer = choose(http.headers.get("Accept", ""))
        core = path == "/api"
        if answer.shape is Shape.DISCOVERY:
            version = answer.discovery_version or "v2"
            body = discovery.aggregated(self._kinds, core=core, version=version)
            response = respond(body)
            response.headers["Content-Type"] = (
                f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            )
            return response
        return respond(
            discovery.core_versions(http.host) if core else discovery.group_list(self._kinds)
        )

    def _group_document(self, rest: str) -> dict[str, object] | None:
        group, _, version = rest.partition("/")
        if not version:
            return discovery.group(self._kinds, group)
        return discovery.resource_list(self._kinds, group, version)
