"""Deletes objects: grace for pods, finalizers, preconditions, collections."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from embedded.apiserver.admission.attributes import Attributes, Operation
from embedded.apiserver.calls import Call, Options
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import (
    Json,
    meta,
    name_of,
    namespace_of,
    own_meta,
    section,
    timestamp,
)
from embedded.apiserver.registry import Registry
from embedded.apiserver.status import (
    bad_request,
    conflict,
    forbidden,
    invalid_options,
    not_supported,
)
from embedded.apiserver.store import RevisionConflictError
from embedded.apiserver.strategies import copy_for_change

IMMORTAL_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})
_ATTEMPTS: Final = 8
_POLICIES: Final = frozenset({"Orphan", "Background", "Foreground"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """What a client says about a deletion.

    Attributes:
        grace_s: ``gracePeriodSeconds``; None where the client says nothing.
        uid: Precondition.
        revision: Precondition.
        orphan: Whether dependents stay.
    """

    grace_s: int | None = None
    uid: str = ""
    revision: str = ""
    orphan: bool = False


def parse_options(body: Any, grace: str | None, policy: str | None) -> DeleteOptions:
    """Options from a DeleteOptions body and the query.

    Raises:
        StatusError: 400, something in them cannot be.
    """
    if body is not None and not isinstance(body, dict):
        raise bad_request("the body of a DELETE is a DeleteOptions object or empty")
    fields = body or {}
    raw = fields.get("gracePeriodSeconds", grace)
    if raw is not None and not str(raw).lstrip("-").isdecimal():
        raise bad_request(f"gracePeriodSeconds is no whole number: {str(raw)[:40]!r}")
    chosen = fields.get("propagationPolicy") or policy or "Background"
    if chosen not in _POLICIES:
        choices = ("Foreground", "Background", "Orphan", "nil")
        wrong = not_supported("propagationPolicy", str(chosen), choices)
        raise invalid_options("DeleteOptions", wrong)
    preconditions = section(fields, "preconditions")
    return DeleteOptions(
        grace_s=max(int(raw), 0) if raw is not None else None,
        uid=str(preconditions.get("uid") or ""),
        revision=str(preconditions.get("resourceVersion") or ""),
        orphan=chosen == "Orphan" or fields.get("orphanDependents") is True,
    )


async def delete(  # noqa: PLR0917 - who, what, where and how
    registry: Registry,
    call: Call,
    kind: ResourceKind,
    namespace: str,
    name: str,
    options: DeleteOptions,
) -> tuple[Json, bool]:
    """Delete one object.

    Returns:
        Its last state and whether it is gone; not gone means that grace or finalizers run.

    Raises:
        StatusError: 404, 409 for a precondition, or what admission says.
    """
    old = registry.get(kind, namespace, name)
    _check(kind, old, options)
    attributes = Attributes(
        operation=Operation.DELETE,
        kind=kind,
        namespace=namespace_of(old),
        name=name,
        call=call,
        options=Options(kind="DeleteOptions", fields=_option_fields(call, options)),
        old=old,
    )
    await registry.admission.mutate(attributes)
    await registry.admission.validate(attributes)
    for _ in range(_ATTEMPTS):
        old = registry.get(kind, namespace, name)
        _check(kind, old, options)
        if call.dry_run:
            return old, True
        try:
            return _delete_now(registry, kind, old, options)
        except RevisionConflictError:
            continue
    raise conflict(kind, name)


def _option_fields(call: Call, options: DeleteOptions) -> Json:
    fields: Json = {}
    if options.grace_s is not None:
        fields["gracePeriodSeconds"] = options.grace_s
    if call.dry_run:
        fields["dryRun"] = ["All"]
    fields["propagationPolicy"] = "Orphan" if options.orphan else "Background"
    return fields


def _check(kind: ResourceKind, old: Json, options: DeleteOptions) -> None:
    name, metadata = name_of(old), meta(old)
    named = replace(kind, plural=kind.kind)  # upstream takes the kind for the resource here
    if options.uid and options.uid != metadata["uid"]:
        raise conflict(
            named,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). The object might have been deleted and then recreated",
        )
    if options.revision and options.revision != metadata["resourceVersion"]:
        raise conflict(
            named,
            name,
            f"the ResourceVersion in the precondition ({options.revision}) does not match the "
            f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have "
            "been modified",
        )
    if kind.qualified == "namespaces" and name in IMMORTAL_NAMESPACES:
        raise forbidden(kind, name, "this namespace may not be deleted")


def _delete_now(
    registry: Registry, kind: ResourceKind, old: Json, options: DeleteOptions
) -> tuple[Json, bool]:
    grace_s = _grace_s(kind, old, options)
    running = meta(old).get("deletionTimestamp")
    if kind.qualified == "namespaces":
        return (old, False) if running else (registry.mark(kind, _terminating(old), old), False)
    if grace_s == 0 and not meta(old).get("finalizers"):
        last = registry.remove_now(kind, old)
        return (_dying(last, 0) if kind.qualified == "pods" else last), True
    if running:
        current = int(meta(old).get("deletionGracePeriodSeconds") or 0)
        if grace_s >= current:
            return old, False
    return registry.mark(kind, _dying(old, grace_s), old), False


def _grace_s(kind: ResourceKind, obj: Json, options: DeleteOptions) -> int:
    """Only pods have grace, and only while they may run somewhere (podStrategy)."""
    if kind.qualified != "pods":
        return 0
    spec, phase = section(obj, "spec"), section(obj, "status").get("phase")
    if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    if options.grace_s is not None:
        return options.grace_s
    return int(spec.get("terminationGracePeriodSeconds") or 0)


def _dying(old: Json, grace_s: int) -> Json:
    new = copy_for_change(old)
    metadata = own_meta(new)
    metadata["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=grace_s))
    metadata["deletionGracePeriodSeconds"] = grace_s
    if "generation" in metadata:
        metadata["generation"] = int(metadata["generation"]) + 1
    return new


def _terminating(old: Json) -> Json:
    new = copy_for_change(old)
    own_meta(new)["deletionTimestamp"] = timestamp()
    new["status"] = {**section(old, "status"), "phase": "Terminating"}
    return new
