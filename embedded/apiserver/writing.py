"""The verbs that change objects: create, replace, patch, apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embedded.apiserver import patches
from embedded.apiserver.apply import apply
from embedded.apiserver.codec import to_intent, to_object, to_patched
from embedded.apiserver.fieldowners import Write
from embedded.apiserver.objects import Json, deep_copy, meta, name_of, own_meta
from embedded.apiserver.registry import Registry
from embedded.apiserver.requests import Request
from embedded.apiserver.status import (
    bad_request,
    field_forbidden,
    invalid,
    invalid_options,
    invalid_value,
    not_found,
    required,
    unsupported_media_type,
    unsupported_patch_type,
)


async def create(registry: Registry, request: Request) -> Json:
    """POST on a collection.

    Raises:
        StatusError: Whatever is wrong with the object.
    """
    return await registry.create(request.call, request.kind, request.namespace, request.body())


async def replace(registry: Registry, request: Request) -> Json:
    """PUT on an object or on a subresource that shares its form.

    Raises:
        StatusError: 404, 409, or whatever is wrong with the object.
    """
    body = request.body()
    call, kind = request.call, request.kind

    def change(_: Json) -> Json:
        return to_object(deep_copy(body), kind, call)

    return await registry.update(
        call,
        kind,
        request.namespace,
        request.path.name,
        change,
        subresource=request.path.subresource,
        write=Write(manager=call.manager, whole=True),
    )


async def patch(registry: Registry, request: Request) -> tuple[Json, bool]:
    """PATCH in any of the four forms; returns the object and whether it was created.

    Raises:
        StatusError: 404, 409, 415, 422, …
    """
    media = request.content_type.partition(";")[0].strip().lower()
    if media not in patches.PATCH_TYPES:
        raise unsupported_patch_type()
    if media == patches.STRATEGIC_PATCH and request.kind.custom:
        # Custom resources have no Go type to take merge keys from.
        raise unsupported_media_type((patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH))
    if "force" in request.query and media != patches.APPLY_PATCH:
        why = "may not be specified for non-apply patch"
        raise invalid_options("PatchOptions", field_forbidden("force", why))
    body = request.body()
    if media == patches.APPLY_PATCH:
        return await _apply(registry, request, body)
    change = _change(request, media, body)
    updated = await registry.update(
        request.call,
        request.kind,
        request.namespace,
        request.path.name,
        change,
        subresource=request.path.subresource,
        write=Write(manager=request.call.manager),
    )
    return updated, False


def _change(request: Request, media: str, body: Any) -> Callable[[Json], Json]:
    kind, call = request.kind, request.call
    if media != patches.JSON_PATCH and not isinstance(body, dict):
        raise patches.not_a_mapping(body)

    def change(old: Json) -> Json:
        patched: Any
        if media == patches.JSON_PATCH:
            patched = patches.apply_json_patch(old, body)
        elif media == patches.MERGE_PATCH:
            patched = patches.apply_merge_patch(old, body)
        else:
            patched = patches.apply_strategic_patch(old, body, kind.type_name)
        return _checked(to_patched(patched, kind, call), old, request)

    return change


def _checked(new: Json, old: Json, request: Request) -> Json:
    """A patched object with the uid that it had.

    Raises:
        StatusError: 422, the patch changes it.
    """
    wanted = meta(new).get("uid")
    if wanted and wanted != meta(old).get("uid"):
        why = invalid_value("metadata.uid", wanted, "field is immutable")
        raise invalid(request.kind, name_of(old), [why])
    return new


async def _apply(registry: Registry, request: Request, body: Any) -> tuple[Json, bool]:
    """Server-side apply."""
    call, kind, name = request.call, request.kind, request.path.name
    if "fieldManager" not in request.query:
        why = required("fieldManager", "is required for apply patch")
        raise invalid_options("PatchOptions", why)
    if not isinstance(body, dict):
        raise bad_request("the body of an apply patch is an object with apiVersion and kind")
    if (body.get("metadata") or {}).get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    version, named = body.get("apiVersion") or "", body.get("kind") or ""
    if (version, named) != (kind.api_version, kind.kind):
        shown = version if "/" in version else f"/{version}"
        raise bad_request(f"invalid object type: {shown}, Kind={named}")
    intent = to_intent(body, kind, call)
    own_meta(intent).setdefault("name", name)
    if kind.namespaced:
        own_meta(intent).setdefault("namespace", request.namespace)
    write = Write(manager=call.manager, applied=True)

    async def create_new() -> Json:
        fresh = apply(None, intent, kind, call, subresource="")
        return await registry.create(call, kind, request.namespace, fresh, write=write)

    def change(old: Json) -> Json:
        merged = apply(old, intent, kind, call, subresource=request.path.subresource)
        return to_object(merged, kind, call)

    if (
        request.path.subresource
        and registry.store.get(kind.qualified, request.namespace, name) is None
    ):
        raise not_found(kind, name)
    return await registry.upsert(
        call,
        kind,
        request.namespace,
        name,
        create=create_new,
        change=change,
        subresource=request.path.subresource,
        write=write,
    )
