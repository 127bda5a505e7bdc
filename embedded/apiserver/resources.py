"""From a request to the verb that answers it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web

from embedded.apiserver import patches, subresources, writing
from embedded.apiserver.answers import add_warnings, respond, shaped
from embedded.apiserver.deletion import DeleteOptions, delete, parse_options
from embedded.apiserver.listing import Lister, too_large_revision
from embedded.apiserver.objects import Json, deep_copy, meta, name_of, namespace_of
from embedded.apiserver.status import (
    method_not_supported,
    no_such_path,
    not_found,
    success,
)
from embedded.apiserver.watching import events

if TYPE_CHECKING:
    from embedded.apiserver.lifecycle import Lifecycle
    from embedded.apiserver.registry import Registry
    from embedded.apiserver.requests import Request

# Kinds whose deletion answers with the object itself (ReturnDeletedObject upstream).
_RETURN_DELETED: Final = frozenset({"pods", "serviceaccounts", "services", "resourcequotas"})


class Resources:
    """Answers requests to the resource API.

    Args:
        registry: The resources.
        lifecycle: Told which owners leave their dependents behind.
    """

    def __init__(self, registry: Registry, lifecycle: Lifecycle) -> None:
        self._registry = registry
        self._lifecycle = lifecycle
        self.lister = Lister(registry.store)

    async def answer(self, request: Request, http: web.Request) -> web.StreamResponse:
        """The response to one request.

        Raises:
            StatusError: Any refusal.
        """
        path = request.path
        if path.subresource:
            return await self._subresource(request)
        if request.method in {"GET", "HEAD"}:
            if request.flag("watch"):
                return await self._watch(request, http)
            result = self._read(request)
            return self._reply(request, result)
        if request.method == "POST" and not path.name:
            return await self._create(request)
        if request.method == "PUT" and path.name:
            return self._reply(request, await writing.replace(self._registry, request))
        if request.method == "PATCH" and path.name:
            result, created = await writing.patch(self._registry, request)
            return self._reply(request, result, 201 if created else 200)
        if request.method == "DELETE":
            return await (self._delete(request) if path.name else self._delete_many(request))
        raise method_not_supported()

    def _reply(self, request: Request, result: Json, code: int = 200) -> web.Response:
        include = request.query.get("includeObject", "")
        body = shaped(result, request.kind, request.answer, include)
        return respond(body, code=code, answer=request.answer, warnings=request.call.warnings)

    def _read(self, request: Request) -> Json:
        if request.path.name:
            return self._registry.get(request.kind, request.namespace, request.path.name)
        return self.lister.answer(request)

    async def _create(self, request: Request) -> web.Response:
        if request.kind.qualified == "bindings":
            return self._reply(request, await subresources.bind(self._registry, request), 201)
        if request.kind.namespaced and not request.path.namespace:
            raise method_not_supported()
        return self._reply(request, await writing.create(self._registry, request), 201)

    async def _delete(self, request: Request) -> web.Response:
        options = _delete_options(request)
        call, kind, name = request.call, request.kind, request.path.name
        if options.orphan:
            self._lifecycle.orphan(self._registry.get(kind, request.namespace, name))
        last, gone = await delete(self._registry, call, kind, request.namespace, name, options)
        if gone and kind.qualified not in _RETURN_DELETED:
            details: Json = {"name": name, "kind": kind.plural, "uid": meta(last)["uid"]}
            if kind.group:
                details["group"] = kind.group
            return self._reply(request, success(details))
        return self._reply(request, last)

    async def _delete_many(self, request: Request) -> web.Response:
        options, kind = _delete_options(request), request.kind
        chosen = self.lister.select(kind, request.wanted())
        for obj in chosen:
            await delete(
                self._registry, request.call, kind, namespace_of(obj), name_of(obj), options
            )
        result = {
            "kind": kind.list_kind,
            "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(self._registry.store.revision)},
            "items": chosen,
        }
        return self._reply(request, result)

    async def _subresource(self, request: Request) -> web.Response:
        kind, name = request.kind, request.path.subresource
        if name not in kind.subresources:
            raise not_found(kind, request.path.name) if kind.custom else no_such_path()
        if name in {"binding", "eviction"}:
            return await self._action(request, name)
        if name == "finalize" and request.method == "PUT":
            return self._reply(request, subresources.finalize_namespace(self._registry, request))
        if name == "scale":
            return await self._scale(request)
        if request.method == "GET":
            return self._reply(request, self._read(request))
        if request.method == "PUT":
            return self._reply(request, await writing.replace(self._registry, request))
        if request.method == "PATCH":
            result, _ = await writing.patch(self._registry, request)
            return self._reply(request, result)
        raise method_not_supported()

    async def _action(self, request: Request, name: str) -> web.Response:
        if request.method != "POST":
            raise method_not_supported()
        act = subresources.bind if name == "binding" else subresources.evict
        return self._reply(request, await act(self._registry, request), 201)

    async def _scale(self, request: Request) -> web.Response:
        if request.method == "GET":
            return respond(subresources.scale_of(self._read(request)))
        body = request.body()
        if request.method not in {"PUT", "PATCH"}:
            raise method_not_supported()

        def change(old: Json) -> Any:
            if request.method == "PUT":
                return deep_copy(body)
            if isinstance(body, list):
                return patches.apply_json_patch(old, body)
            return patches.apply_merge_patch(old, body)

        result = await subresources.set_scale(self._registry, request, change)
        return respond(result, warnings=request.call.warnings)

    async def _watch(self, request: Request, http: web.Request) -> web.StreamResponse:
        store, options, wanted = self._registry.store, request.watch_options(), request.wanted()
        if options.since is not None and options.since > store.revision:
            raise too_large_revision(options.since, store.revision)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        add_warnings(response, request.call.warnings)
        response.enable_chunked_encoding()
        await response.prepare(http)
        now = asyncio.get_running_loop().time
        include = request.query.get("includeObject", "")
        stream = events(store, request.kind, wanted, options, now)
        try:
            async for change, obj in stream:
                plain = change in {"ERROR", "BOOKMARK"}
                body = obj if plain else shaped(obj, request.kind, request.answer, include)
                await response.write(orjson.dumps({"type": change, "object": body}) + b"\n")
            await response.write_eof()
        except ConnectionError:
            pass  # the watcher went away; there is nobody to tell
        finally:
            await stream.aclose()
        return response


def _delete_options(request: Request) -> DeleteOptions:
    query, body = request.query, request.body() if request.raw.strip() else None
    if isinstance(body, dict) and body.get("dryRun"):
        request.call.dry_run = True
    return parse_options(body, query.get("gracePeriodSeconds"), query.get("propagationPolicy"))
