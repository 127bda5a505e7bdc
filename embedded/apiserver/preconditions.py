"""What a writer says of the object that it means: name, namespace, uid, revision (pure)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from embedded.apiserver.fieldowners import Write
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, meta, name_of, namespace_of
from embedded.apiserver.status import StatusError, bad_request, conflict, invalid, invalid_value

_READ_FIRST: Final = frozenset({"leases.coordination.k8s.io"})
"""Built-in kinds without AllowUnconditionalUpdate, of those that are served here."""


def check_identity(new: Json, old: Json, kind: ResourceKind) -> None:
    """An update is of the object that is there.

    Raises:
        StatusError: 400 or 409.
    """
    if name_of(new) and name_of(new) != name_of(old):
        raise bad_request(
            f"the name of the object ({name_of(new)}) does not match the name on the URL "
            f"({name_of(old)})"
        )
    if namespace_of(new) and namespace_of(new) != namespace_of(old):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    wanted = meta(new).get("uid")
    if wanted and wanted != meta(old).get("uid"):
        raise conflict(
            kind,
            name_of(old),
            f"StorageError: invalid object, Code: 4, Key: {_storage_key(kind, old)}, "
            f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
            f"{wanted}, UID in object meta: {meta(old).get('uid')}",
        )


def _storage_key(kind: ResourceKind, obj: Json) -> str:
    parts = (kind.group if kind.custom else "", kind.plural, namespace_of(obj), name_of(obj))
    return "/".join(("/registry", *filter(None, parts)))


def demanded_revision(new: Json, kind: ResourceKind, write: Write | None) -> str:
    """The revision that a writer has read; empty where it does not matter to it.

    Raises:
        StatusError: 422, the kind's objects are replaced only by who has read them; 500, it is
            no revision.
    """
    demanded = str(meta(new).get("resourceVersion") or "")
    conditional = kind.custom or kind.qualified in _READ_FIRST
    if not demanded and conditional and write is not None and write.whole:
        why = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        named = replace(kind, kind=kind.plural)
        error = invalid(named, name_of(new), [why])
        error.message = error.message.replace(f"{named.kind}.{kind.group}", kind.qualified, 1)
        raise error
    if demanded and not demanded.isdecimal():
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{demanded}": invalid syntax')
    return demanded
