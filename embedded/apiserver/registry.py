"""Reads and writes of objects: what is common to every resource.

A write is: decode, mutating admission, the kind's own preparation and validation,
validating admission, and the store with the revision that was read. Updates that lose the
race start again unless the client named a revision (GuaranteedUpdate upstream).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from embedded.apiserver import metadata, strategies
from embedded.apiserver.admission.attributes import Admission, Attributes, Operation
from embedded.apiserver.calls import Call, Options
from embedded.apiserver.codec import to_object
from embedded.apiserver.fieldowners import Write, record_write
from embedded.apiserver.kinds import KindTable, ResourceKind
from embedded.apiserver.objects import (
    Json,
    meta,
    name_of,
    namespace_of,
    own_meta,
    revision_of,
    section,
)
from embedded.apiserver.preconditions import check_identity, demanded_revision
from embedded.apiserver.status import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    required,
)
from embedded.apiserver.store import RevisionConflictError, Store

_ATTEMPTS: Final = 8

# From the stored object to the wanted one; may refuse with a StatusError.
Change = Callable[[Json], Json]


class Registry:
    """The resources of one cluster.

    Args:
        store: Where objects live.
        kinds: Which resources there are.
        admission: The chain that every write passes.
    """

    def __init__(self, store: Store, kinds: KindTable, admission: Admission) -> None:
        self.store = store
        self.kinds = kinds
        self.admission = admission
        self.after_write: list[Callable[[ResourceKind, Json | None, Json | None], None]] = []

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Json:
        """One object, in the version of ``kind``.

        Raises:
            StatusError: 404.
        """
        obj = self.store.get(kind.qualified, namespace, name)
        if obj is None:
            raise not_found(kind, name)
        return in_version(obj, kind)

    async def create(
        self,
        call: Call,
        kind: ResourceKind,
        namespace: str,
        body: Any,
        *,
        write: Write | None = None,
    ) -> Json:
        """Create an object from a request's body.

        Raises:
            StatusError: Whatever is wrong with it.
        """
        obj = to_object(body, kind, call)
        _settle_namespace(obj, kind, namespace)
        if meta(obj).get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        metadata.forget_system_fields(obj)
        if not name_of(obj) and not meta(obj).get("generateName"):
            raise invalid(kind, "", [required("metadata.name", "name or generateName is required")])
        _record(obj, None, kind, call, write)
        attributes = Attributes(
            operation=Operation.CREATE,
            kind=kind,
            namespace=namespace if kind.namespaced else "",
            name=name_of(obj),
            call=call,
            options=_options("CreateOptions", call),
            obj=obj,
        )
        await self.admission.mutate(attributes)
        obj = _object(attributes)
        strategies.prepare_create(kind, obj)
        metadata.complete_new(obj)
        strategies.finish_create(kind, obj)
        causes = metadata.causes_of(obj, kind.qualified, namespaced=kind.namespaced)
        causes += strategies.create_causes(kind, obj)
        if causes:
            raise invalid(kind, name_of(obj), causes)
        if self.store.get(kind.qualified, namespace_of(obj), name_of(obj)) is not None:
            raise already_exists(kind, name_of(obj))
        await self.admission.validate(attributes)
        return self._insert(kind, attributes, obj)

    def _insert(self, kind: ResourceKind, attributes: Attributes, obj: Json) -> Json:
        key = (namespace_of(obj), name_of(obj))
        self.admission.reserve(attributes)
        if self.store.get(kind.qualified, *key) is not None:
            raise already_exists(kind, key[1])
        if attributes.call.dry_run:
            return obj
        stored = self.store.put(kind.qualified, key, stored_form(obj, kind), expected=0)
        self._written(kind, None, stored)
        return in_version(stored, kind)

    async def update(  # noqa: PLR0917 - who, what, where and how
        self,
        call: Call,
        kind: ResourceKind,
        namespace: str,
        name: str,
        change: Change,
        *,
        subresource: str = "",
        write: Write | None = None,
    ) -> Json:
        """Change an object; ``change`` is called again when another writer was faster.

        Raises:
            StatusError: 404, 409, or whatever is wrong with the new object.
        """
        for _ in range(_ATTEMPTS):
            old = self.get(kind, namespace, name)
            new = change(old)
            check_identity(new, old, kind)
            demanded = demanded_revision(new, kind, write)
            if demanded and demanded != meta(old)["resourceVersion"]:
                raise conflict(kind, name)
            new = await self._admit_update(call, kind, new, old, subresource, write)
            if call.dry_run or _same(new, old):
                return new
            try:
                return self._replace(kind, new, old)
            except RevisionConflictError:
                # A client that named a revision gets its conflict at the next comparison.
                continue
        raise conflict(kind, name)

    async def _admit_update(  # noqa: PLR0917 - one step of update()
        self,
        call: Call,
        kind: ResourceKind,
        new: Json,
        old: Json,
        subresource: str,
        write: Write | None,
    ) -> Json:
        metadata.keep_system_fields(new, old)
        strategies.prepare_update(kind, new, old, subresource)
        _record(new, old, kind, call, write, subresource)
        attributes = Attributes(
            operation=Operation.UPDATE,
            kind=kind,
            subresource=subresource,
            namespace=namespace_of(old),
            name=name_of(old),
            call=call,
            options=_options("UpdateOptions", call),
            obj=new,
            old=old,
        )
        await self.admission.mutate(attributes)
        new = _object(attributes)
        metadata.keep_system_fields(new, old)
        strategies.prepare_update(kind, new, old, subresource)
        strategies.count_generation(kind, new, old)
        causes = metadata.causes_of(new, kind.qualified, namespaced=kind.namespaced)
        causes += strategies.update_causes(kind, new, old, subresource)
        if causes:
            raise invalid(kind, name_of(old), causes)
        await self.admission.validate(attributes)
        return new

    def _replace(self, kind: ResourceKind, new: Json, old: Json) -> Json:
        """Write an update; an object whose last finalizer went is removed instead."""
        key = (namespace_of(old), name_of(old))
        expected = revision_of(old)
        if _is_finished(kind, new):
            last = self.store.remove(kind.qualified, key, expected=expected)
            self._written(kind, old, None)
            revision = meta(last)["resourceVersion"]
            return {**new, "metadata": {**meta(new), "resourceVersion": revision}}
        stored = self.store.put(kind.qualified, key, stored_form(new, kind), expected=expected)
        self._written(kind, old, stored)
        return in_version(stored, kind)

    async def upsert(  # noqa: PLR0913 - the parts of a request
        self,
        call: Call,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        create: Callable[[], Awaitable[Json]],
        change: Change,
        subresource: str = "",
        write: Write | None = None,
    ) -> tuple[Json, bool]:
        """Update, or create where there is nothing; returns the object and whether it is new."""
        if self.store.get(kind.qualified, namespace, name) is None and not subresource:
            return await create(), True
        updated = await self.update(
            call, kind, namespace, name, change, subresource=subresource, write=write
        )
        return updated, False

    def _written(self, kind: ResourceKind, old: Json | None, new: Json | None) -> None:
        for hook in self.after_write:
            hook(kind, old, new)

    def remove_now(self, kind: ResourceKind, obj: Json) -> Json:
        """Take an object out of the store; its finalizers and grace are over.

        Raises:
            RevisionConflictError: It changed meanwhile.
        """
        key = (namespace_of(obj), name_of(obj))
        last = self.store.remove(kind.qualified, key, expected=revision_of(obj))
        self._written(kind, obj, None)
        return last

    def mark(self, kind: ResourceKind, new: Json, old: Json) -> Json:
        """Write a change of the server's own, without admission.

        Raises:
            RevisionConflictError: The object changed meanwhile.
        """
        return self._replace(kind, new, old)


def in_version(obj: Json, kind: ResourceKind) -> Json:
    """The object as a version of its kind (versions differ by apiVersion alone)."""
    return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}


def stored_form(obj: Json, kind: ResourceKind) -> Json:
    """The object in the storage version, with metadata of its own."""
    return {
        **obj,
        "apiVersion": kind.storage_api_version,
        "metadata": dict(obj["metadata"]),
    }


def _options(option_kind: str, call: Call) -> Options:
    fields: dict[str, Any] = {"fieldManager": call.manager}
    if call.dry_run:
        fields["dryRun"] = ["All"]
    if call.field_validation != "Warn":
        fields["fieldValidation"] = call.field_validation
    return Options(kind=option_kind, fields=fields)


def _settle_namespace(obj: Json, kind: ResourceKind, namespace: str) -> None:
    """EnsureObjectNamespaceMatchesRequestNamespace."""
    found = namespace_of(obj)
    if not kind.namespaced:
        return
    if found and found != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    own_meta(obj)["namespace"] = namespace


def _object(attributes: Attributes) -> Json:
    if attributes.obj is None:
        raise StatusError(
            500, "InternalError", "Internal error occurred: admission lost the object"
        )
    return attributes.obj


def _record(  # noqa: PLR0917 - the parts of a write
    new: Json,
    old: Json | None,
    kind: ResourceKind,
    call: Call,
    write: Write | None,
    subresource: str = "",
) -> None:
    record_write(new, old, kind, write or Write(manager=call.manager), subresource=subresource)


def _is_finished(kind: ResourceKind, obj: Json) -> bool:
    metadata_ = meta(obj)
    if kind.qualified == "namespaces" and section(obj, "spec").get("finalizers"):
        return False
    return (
        bool(metadata_.get("deletionTimestamp"))
        and not metadata_.get("finalizers")
        and not metadata_.get("deletionGracePeriodSeconds")
    )


def _same(new: Json, old: Json) -> bool:
    """Whether a write changes nothing but the bookkeeping of field managers."""

    def bare(obj: Json) -> Json:
        return {**obj, "metadata": {k: v for k, v in meta(obj).items() if k != "managedFields"}}

    return _owners(new) == _owners(old) and bare(new) == bare(old)


def _owners(obj: Json) -> list[Json]:
    return [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in meta(obj).get("managedFields") or []
    ]
