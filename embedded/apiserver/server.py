"""The embedded API server: start it, stop it, get a kubeconfig for it."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml
from aiohttp import web

from embedded.apiserver.admission.chain import AdmissionChain
from embedded.apiserver.audit import AuditLog
from embedded.apiserver.calls import ADMIN, SYSTEM, Call, User
from embedded.apiserver.definitions import Definitions
from embedded.apiserver.http import HttpSurface
from embedded.apiserver.kinds import KindTable
from embedded.apiserver.lifecycle import Lifecycle
from embedded.apiserver.objects import Json
from embedded.apiserver.quotastatus import QuotaStatus
from embedded.apiserver.registry import Registry
from embedded.apiserver.resources import Resources
from embedded.apiserver.store import Store
from embedded.apiserver.tls import Authority, Pair, server_context
from embedded.errors import EmbeddedError

_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_KEEPALIVE_S: Final = 300.0


class ApiServer:
    """A Kubernetes API server in this process.

    Use it as an async context manager, or call ``start`` and ``stop``.

    Args:
        host: Address to listen on.
        port: Port; 0 for a free one.
        tls: Serve HTTPS with a certificate of an authority made for this run.
        tokens: Bearer tokens and whose they are, beside those that ``token_for`` makes.
        services: (namespace, name) → (host, port): where services of webhooks are served. A
            Service may also say it in the annotation ``embedded.gpu.sharing/endpoint``.
        history_events: How many past events each resource keeps for late watchers.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = False,
        tokens: Mapping[str, User] | None = None,
        services: Mapping[tuple[str, str], tuple[str, int]] | None = None,
        history_events: int = 5000,
    ) -> None:
        self._host = host
        self._port = port
        self._authority = Authority() if tls else None
        self._tokens: dict[str, User] = dict(tokens or {})
        self._runner: web.AppRunner | None = None
        self.audit = AuditLog()
        self.kinds = KindTable()
        self.store = Store(history_events=history_events)
        self._services = dict(services or {})
        self._admission = AdmissionChain(self.store, self.kinds, self._services)
        self.registry = Registry(self.store, self.kinds, self._admission)
        Definitions(self.registry)
        QuotaStatus(self.registry)
        self._lifecycle = Lifecycle(self.registry)
        self._resources = Resources(self.registry, self._lifecycle)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Create the first namespaces and listen.

        Raises:
            EmbeddedError: The address cannot be listened on.
        """
        await self._first_objects()
        surface = HttpSurface(self._resources, self.kinds, self._tokens, self.audit)
        runner = web.AppRunner(
            surface.application(),
            access_log=None,
            keepalive_timeout=_KEEPALIVE_S,
            handler_cancellation=True,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        context = None
        if self._authority is not None:
            pair = self._authority.server("localhost", "127.0.0.1", "::1", *self._extra_hosts())
            context = server_context(pair, self._authority.certificate)
        site = web.TCPSite(runner, self._host, self._port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise EmbeddedError(
                f"{self._host}:{self._port}",
                f"the API server cannot listen here ({error.strerror or error})",
                fix="choose another port, or 0 for a free one",
                example="port 0",
            ) from error
        self._port = runner.addresses[0][1]
        self._runner = runner

    def _extra_hosts(self) -> tuple[str, ...]:
        return () if self._host in {"127.0.0.1", "localhost", "0.0.0.0", "::"} else (self._host,)

    async def stop(self) -> None:
        """End watches, connections and background work; nothing is kept."""
        self.store.end_subscriptions()
        await self._lifecycle.stop()
        await self._admission.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self) -> None:
        """Stop and start again at the same address, with all objects and no history.

        Watches and connections end; who watches from a revision before this one lists again.

        Raises:
            EmbeddedError: The address cannot be listened on any more.
        """
        await self.stop()
        self.store.forget_history()
        await self.start()
        self._lifecycle.resume()

    async def _first_objects(self) -> None:
        kind = self.kinds.named("namespaces")
        for name in _NAMESPACES:
            if self.store.get("namespaces", "", name) is None:
                call = Call(user=SYSTEM, manager="kube-apiserver")
                await self.registry.create(call, kind, "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """Where the server listens."""
        scheme = "https" if self._authority is not None else "http"
        host = "127.0.0.1" if self._host in {"0.0.0.0", "::"} else self._host
        return f"{scheme}://{host}:{self._port}"

    @property
    def authority(self) -> bytes:
        """The certificate that clients trust, PEM; empty without TLS."""
        return self._authority.certificate if self._authority is not None else b""

    def serve_service(self, namespace: str, name: str, host: str, port: int) -> None:
        """Say where the backend of a service is that webhook configurations name."""
        self._services[namespace, name] = (host, port)

    def token_for(self, user: User) -> str:
        """A bearer token that means this user."""
        for token, known in self._tokens.items():
            if known == user:
                return token
        token = secrets.token_urlsafe(24)
        self._tokens[token] = user
        return token

    def client_pair(self, user: User) -> Pair:
        """A client certificate that means this user.

        Raises:
            EmbeddedError: The server speaks no TLS.
        """
        if self._authority is None:
            raise EmbeddedError(
                self.url, "client certificates need TLS", fix="start the server with tls=True"
            )
        groups = tuple(group for group in user.groups if group != "system:authenticated")
        return self._authority.client(user.name, groups)

    def kubeconfig(self, user: User = ADMIN, *, namespace: str = "default") -> Json:
        """A kubeconfig for a user."""
        cluster: Json = {"server": self.url}
        if self._authority is not None:
            encoded = base64.b64encode(self.authority).decode()
            cluster["certificate-authority-data"] = encoded
        context = {"cluster": "embedded", "user": user.name, "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": self.token_for(user)}}],
            "contexts": [{"name": "embedded", "context": context}],
            "current-context": "embedded",
        }

    def write_kubeconfig(
        self, path: Path, user: User = ADMIN, *, namespace: str = "default"
    ) -> Path:
        """Write a kubeconfig that only its owner can read; returns the path.

        Raises:
            EmbeddedError: The file cannot be written.
        """
        text = yaml.safe_dump(self.kubeconfig(user, namespace=namespace), sort_keys=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(text)
        except OSError as error:
            raise EmbeddedError(
                str(path),
                f"the kubeconfig cannot be written ({error.strerror or error})",
                fix="name a file in a folder that you may write to",
            ) from error
        return path
