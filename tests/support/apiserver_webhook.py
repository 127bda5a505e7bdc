"""A real HTTPS admission webhook whose answers a test chooses."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import trustme
from aiohttp import web

Json = dict[str, Any]
Answer = Callable[[Json], Any]


def allow(review: Json, **more: Any) -> Json:
    """An AdmissionReview that allows."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": True, **more},
    }


def deny(review: Json, **status: Any) -> Json:
    """An AdmissionReview that refuses."""
    body = allow(review)
    body["response"] |= {"allowed": False, "status": status}
    return body


def patched(review: Json, *operations: Json, **more: Any) -> Json:
    """An AdmissionReview that allows with a JSON patch."""
    encoded = base64.b64encode(orjson.dumps(list(operations))).decode()
    return allow(review, patch=encoded, patchType="JSONPatch", **more)


@dataclass
class Webhook:
    """A webhook server that listens; ``answers`` maps a path to what it does."""

    port: int
    ca: bytes
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, Json, web.Request]] = field(default_factory=list)

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.ca).decode()

    def reviews(self, path: str = "/m") -> list[Json]:
        return [review["request"] for at, review, _ in self.requests if at == path]

    def client_config(self, path: str = "/m") -> Json:
        return {"url": f"https://localhost:{self.port}{path}", "caBundle": self.bundle}

    def entry(self, name: str = "pods.test.io", path: str = "/m", **more: Any) -> Json:
        """One webhook of a configuration, for the creation of pods unless told otherwise."""
        return {
            "name": name,
            "clientConfig": self.client_config(path),
            "rules": [rule("pods")],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }


def rule(*resources: str, operations: tuple[str, ...] = ("CREATE",), **more: Any) -> Json:
    """A rule for resources of any group."""
    return {
        "operations": list(operations),
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources),
        **more,
    }


def configuration(*entries: Json, name: str = "cfg", kind: str = "Mutating") -> Json:
    """A webhook configuration."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(entries),
    }


@asynccontextmanager
async def webhook_server(*names: str) -> AsyncIterator[Webhook]:
    """Serve until the block ends; the certificate is for localhost and the given names."""
    import ssl

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1", *names).configure_cert(context)
    hook = Webhook(port=0, ca=authority.cert_pem.bytes())

    async def handle(request: web.Request) -> web.StreamResponse:
        review = orjson.loads(await request.read())
        hook.requests.append((request.path, review, request))
        chosen: Answer = hook.answers.get(request.path) or allow
        answer = chosen(review)
        if hasattr(answer, "__await__"):
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_post("/{tail:.*}", handle)
    runner = web.AppRunner(app, keepalive_timeout=300, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    hook.port = runner.addresses[0][1]
    try:
        yield hook
    finally:
        await runner.cleanup()
